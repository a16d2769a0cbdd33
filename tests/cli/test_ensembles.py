"""Ensembles on the command line: embedded, compared, evaluated, told, and refused where one method is needed."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import Run, array

from afterword import Encoder, ensemble, parse_method

BOTH = 'ensemble:methods="echo;reba:pool=mean",join=concat,weights=1+0.5'
TEXTS = ["dog", "a bank of the river", "cat"]


def test_embed_and_similar(run: Run, llama: Path, tmp_path: Path) -> None:
    rows = run("embed", "-m", llama, "--method", BOTH, "--method", "reba:pool=mean", *TEXTS)
    assert rows.code == 0, rows.err
    found = array(rows.rows, BOTH)
    wanted = Encoder.load(llama, parse_method(BOTH)).encode(TEXTS)
    assert np.abs(found - wanted).max() <= 2e-6 * np.abs(wanted).max() and found.shape == (3, 128)
    pytest.importorskip("pyarrow")
    assert run("embed", "-m", llama, "--method", BOTH, *TEXTS, "-o", tmp_path / "v.parquet").code == 0
    for method in ([], ["--method", BOTH], ["--method", BOTH.replace("1+0.5", "1.0+0.5")]):
        ended = run("similar", "-m", llama, *method, "dog", "--against", tmp_path / "v.parquet", "--top", "1", "--json")
        assert ended.code == 0, ended.err
        assert "dog" in ended.out and "cat" not in ended.out
    other = run("similar", "-m", llama, "--method", "ensemble:ck", "dog", "--against", tmp_path / "v.parquet")
    assert other.code == 2 and "made by" in other.last and "by ensemble ck" in other.last


def test_words_inspect_and_the_page(run: Run, llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    words = run("words", "-m", llama, "--method", "ensemble:ck", "a bank of the river", "bank")
    wanted = Encoder.load(llama, ensemble("ck")).encode_words("a bank of the river", ["bank"])
    np.testing.assert_allclose(words.rows[0]["vector"], wanted[0], atol=1e-6)
    assert "ensemble ck -> 64 components" in run("inspect", "-m", llama, "--method", "ensemble:ck").out
    page = run("methods", "ensemble").out
    assert "MetaEOL" in page and 'methods="echo;reba:pool=mean"' in page


def test_evaluate_and_compare(run: Run, llama: Path, dev: Path, tmp_path: Path) -> None:
    data, out = ("--data", dev.parent, "--tasks", dev), tmp_path / "out"
    made = run("evaluate", "-m", llama, "--method", "ensemble:ck", "--method", "reba", *data, "--out", out)
    assert made.code == 0, made.err
    shown = run("compare", out)
    assert shown.code == 0 and "ensemble:ck" in shown.out and "reba" in shown.out


def test_an_ensemble_where_one_method_is_needed_is_refused(run: Run, llama: Path, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.jsonl").write_text(json.dumps({"anchor": "a", "positive": "b", "negative": "c"}) + "\n")
    train = ("train", "-m", llama, "--method", "ensemble:ck", "--data", "rows.jsonl", "--out", "trained")
    for words in (("analyse", "attention", "-m", llama, "--method", "ensemble:ck", "dog and cat"), train):
        ended = run(*words)
        assert ended.code in (1, 2) and "takes one method" in " ".join(ended.err.split()), ended.err
    assert not Path("trained").exists()
