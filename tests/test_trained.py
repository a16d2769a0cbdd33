"""The models that the package ships: small, open by name in either library, better than what they come from."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer, logging

from afterword import Encoder, bellm
from afterword.backbone.model_source import PACKAGED
from afterword.tasks.pairs import Pairs
from afterword.tasks.task import Folder

METHODS = {
    "afterword-mini-bellm": bellm(),
    "afterword-mini-distilled": bellm(last=6, template=None),
}
TEXTS = ["A man plays the guitar.", "Somebody makes music on a string instrument.", "Share prices fell.", "雨"]
PAID = {1: [64.88, 75.20, 58.62], 5: [59.48, 77.77, 55.76]}
"""Spearman x 100 of the two trained models, and of the untrained one by BeLLM."""


def test_they_are_small_and_say_what_they_are():
    assert sum(path.stat().st_size for path in PACKAGED.rglob("*") if path.is_file()) < 40e6
    assert {path.name for path in PACKAGED.iterdir()} == {"afterword-mini", *METHODS}
    for folder in PACKAGED.iterdir():
        assert json.loads((folder / "config.json").read_text())["dtype"] == "float16"
        card = (folder / "README.md").read_text()
        assert "cc-by-sa" in card.lower().replace(" ", "-") and "recipes/" in card


def test_they_bring_their_method_and_say_nothing(capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder):
    """transformers opens afterword-mini, and we the others: offline, without a word."""
    before = logging.get_verbosity()
    logging.set_verbosity_warning()
    try:
        for kind in (AutoModel, AutoModelForCausalLM, AutoTokenizer):
            kind.from_pretrained(PACKAGED / "afterword-mini")
        loaded = {name: Encoder.load(name) for name in METHODS}
        assert [len(encoder.encode(["one", "two"])) for encoder in loaded.values()] == [2] * len(METHODS)
    finally:
        logging.set_verbosity(before)
    assert {name: encoder.method for name, encoder in loaded.items()} == METHODS
    assert capfd.readouterr() == ("", "") and not recwarn.list


@pytest.mark.parametrize("name", METHODS)
def test_sentence_transformers_opens_them(name: str):
    library = pytest.importorskip("sentence_transformers", reason="the extra st is not installed")
    theirs = library.SentenceTransformer(str(PACKAGED / name), trust_remote_code=True, device="cpu")
    theirs = theirs.float()  # there a checkpoint keeps its own type
    ours = Encoder.load(name, device="cpu").encode(TEXTS)
    assert np.abs(theirs.encode(TEXTS) - ours).max() <= 1e-6 * np.abs(ours).max()


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.soak)])
def test_training_paid(data: Path, tmp_path: Path, step: int):
    """On pairs that nothing was trained on, every fifth of them (all in `make soak`): far above the untrained model."""
    rows = gzip.decompress((data / "en/sts/sickr.dev.jsonl.gz").read_bytes()).splitlines()[::step]
    (tmp_path / "dev.jsonl").write_bytes(b"\n".join(rows))
    task, dev = Pairs("dev", "dev"), Folder(tmp_path)
    scores = {name: 100 * task.run(Encoder.load(name), dev).main for name in METHODS}
    scores["untrained"] = 100 * task.run(Encoder.load("afterword-mini", bellm()), dev).main
    assert [scores[name] for name in (*METHODS, "untrained")] == pytest.approx(PAID[step], abs=0.05)


@pytest.mark.parametrize(
    "text", ["The city is the capital of the province and has a large population.", "中国是世界上人口最多的国家之一。"]
)
def test_it_prefers_sentences_to_their_words_in_disorder(text: str):
    model = AutoModelForCausalLM.from_pretrained(PACKAGED / "afterword-mini", dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(PACKAGED / "afterword-mini")
    ids = tokenizer(text, return_tensors="pt").input_ids
    order = torch.randperm(ids.shape[1] - 1, generator=torch.Generator().manual_seed(1)) + 1
    shuffled = torch.cat([ids[:, :1], ids[:, order]], 1)
    with torch.inference_mode():
        right, wrong = (model(input_ids=row, labels=row).loss.item() for row in (ids, shuffled))
    assert right < wrong - 0.5
