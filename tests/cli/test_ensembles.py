"""Ensembles on the command line: embedded, compared, and refused where one method is needed."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import Run, array

from afterword import Encoder, parse_method

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
    assert other.code == 2 and "ensemble ck" in other.last


def test_an_ensemble_where_one_method_is_needed_is_refused(run: Run, llama: Path, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.jsonl").write_text(json.dumps({"anchor": "a", "positive": "b", "negative": "c"}) + "\n")
    train = ("train", "-m", llama, "--method", "ensemble:ck", "--data", "rows.jsonl", "--out", "trained")
    for words in (("analyse", "attention", "-m", llama, "--method", "ensemble:ck", "dog and cat"), train):
        ended = run(*words)
        assert ended.code in (1, 2) and "takes one method" in " ".join(ended.err.split()), ended.err
    assert not Path("trained").exists()
