"""The recipe of afterword-mini through its command line: a whole tiny run, a killed one, and every way to fail."""

import gzip
import json
import lzma
import math
import shutil
import sys
from collections import Counter
from pathlib import Path

import measure_mini
import pretrain_mini
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mini import corpus
from tests.examples import examples
from tests.scripts import script
from transformers import AutoModelForCausalLM, AutoTokenizer

pytestmark = pytest.mark.slow


def command(out: Path, *more: str) -> list[str]:
    """A tiny run that needs only the project."""
    return [
        pretrain_mini.__file__,
        "--tiny",
        "--corpus",
        str(out / "none"),
        "--out",
        str(out),
        "--device",
        "cpu",
        *more,
    ]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished tiny run. It went through a resume: half of the steps, then the rest from the checkpoint."""
    out = tmp_path_factory.mktemp("tiny")
    done = script(*command(out))
    assert done.code == 0, done.err
    assert "going on from step 30" in done.err
    return out


def test_a_tiny_run_goes_from_text_to_a_model_that_loads(tiny: Path):
    rows = [json.loads(line) for line in (tiny / "loss.jsonl").read_text().splitlines()]
    losses = [row["loss"] for row in rows if "loss" in row]
    assert losses[-1] < losses[0] - 1
    assert [row["step"] for row in rows] == sorted(row["step"] for row in rows)
    assert rows[-1]["enwiki_perplexity"] == pytest.approx(math.exp(rows[-1]["enwiki_nats"]))
    assert rows[-1]["zhwiki_bits_per_character"] > 0
    assert (tiny / "loss.png").stat().st_size > 1000
    model = AutoModelForCausalLM.from_pretrained(tiny / "model")
    tokenizer = AutoTokenizer.from_pretrained(tiny / "model")
    assert model.dtype == torch.float16
    assert model.config.vocab_size == len(tokenizer) == pretrain_mini.TINY.vocab


def test_nan_stops_the_run_and_keeps_the_last_checkpoint(tiny: Path, tmp_path: Path, monkeypatch, capsys):
    out = tmp_path / "nan"
    shutil.copytree(tiny / "data", out / "data")
    sane, calls = pretrain_mini.loss_of, Counter[str]()

    def breaks(model, ids):
        calls["all"] += 1
        return sane(model, ids) * (math.nan if calls["all"] > 14 else 1)  # two forwards a step: in step 7

    monkeypatch.setattr(pretrain_mini, "loss_of", breaks)
    arguments = ["--device", "cpu", "--tiny", "--out", str(out), "--every", "7"]
    monkeypatch.setattr(sys, "argv", ["pretrain_mini", *arguments])
    assert pretrain_mini.main() == 2
    assert "no number at step 7" in capsys.readouterr().err.splitlines()[-1]
    state = torch.load(out / "last.pt", weights_only=True)
    assert state["step"] == 7
    assert all(weight.isfinite().all() for weight in state["model"].values())


def test_texts_of_the_evaluation_sets_are_dropped(tmp_path: Path):
    folder = tmp_path / "corpus"
    folder.mkdir()
    copied = "The U.S. Army left the island in May."
    english = [f"Kept words before. {copied} Kept words after.", "Yes it is.\nTwo men are dancing on the roof"]
    novels = [corpus.NOVELS_AFTER_1929[0] + " and more.", "It was a dark night. Yes it is."]
    texts = {"enwiki": english, "enwiki_more": [], "novels": novels, "zhwiki": ["天气很好。一个男人在河边弹吉他。好。"]}
    for name, documents in texts.items():
        (folder / f"{name}.txt.xz").write_bytes(lzma.compress("\n\n".join(documents).encode()))
    rows = [{"sentence1": "the u.s. army left the island in may .", "sentence2": "Yes it is.", "score": 1}]
    rows.append({"sentence1": "Two men are dancing on the roof.", "sentence2": "一个男人在河边弹吉他", "score": 1})
    (tmp_path / "en").mkdir()
    (tmp_path / "en" / "sts.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    found = corpus.read_corpus(folder)
    assert found["enwiki"].train == ["Kept words before. Kept words after.", "Yes it is."]  # three words prove nothing
    assert found["novels"].train == ["It was a dark night. Yes it is."]
    assert found["zhwiki"].train == ["天气很好。好。"]
    assert found["enwiki"].hits == {"en/sts": 2} and found["zhwiki"].hits == {"en/sts": 1}


@examples(30, 10_000)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_every_text_survives_the_tokenizer(tiny: Path, text: str):
    tokenizer = AutoTokenizer.from_pretrained(tiny / "model")
    for sample in (text, "我们 love 🙂👩‍👩‍👧  in 2024,\n\t  isn't it?"):
        ids = tokenizer(sample).input_ids
        assert ids[0] == tokenizer.bos_token_id and ids[-1] != tokenizer.eos_token_id
        assert tokenizer.decode(ids, skip_special_tokens=True) == sample


def test_the_measurement_runs_and_a_reload_is_bitwise(tiny: Path, tmp_path: Path, monkeypatch, capsys):
    folders = ["--model", str(tiny / "model"), "--data", str(tiny / "data"), "--shared", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["measure_mini", *folders, "--characters", "2000"])
    assert measure_mini.main() == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["reload_bitwise"] is True
    assert figures["language"]["afterword-mini"]["zhwiki"]["unknown"] == 0
