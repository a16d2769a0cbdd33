"""The models that the package ships: small, open by name in either library, better than what they come from."""

import gzip
import json
from pathlib import Path

import pytest
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer, logging

from afterword import Encoder, bellm
from afterword.backbone.model_source import PACKAGED
from afterword.tasks.pairs import Pairs
from afterword.tasks.task import Folder

METHODS = {
    "afterword-mini-bellm": bellm(),
    "afterword-mini-distilled": bellm(last=6, template=None),
}
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


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.soak)])
def test_training_paid(data: Path, tmp_path: Path, step: int):
    """On pairs that nothing was trained on, every fifth of them (all in `make soak`): far above the untrained model."""
    rows = gzip.decompress((data / "en/sts/sickr.dev.jsonl.gz").read_bytes()).splitlines()[::step]
    (tmp_path / "dev.jsonl").write_bytes(b"\n".join(rows))
    task, dev = Pairs("dev", "dev"), Folder(tmp_path)
    scores = {name: 100 * task.run(Encoder.load(name), dev).main for name in METHODS}
    scores["untrained"] = 100 * task.run(Encoder.load("afterword-mini", bellm()), dev).main
    assert [scores[name] for name in (*METHODS, "untrained")] == pytest.approx(PAID[step], abs=0.05)
