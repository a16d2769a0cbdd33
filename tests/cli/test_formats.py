"""Every verb that reads a file reads a packed table and a .parquet file; all formats: tests/files/test_read.py."""

import csv
import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cli.conftest import Run, array
from tests.tiny import tiny

from afterword import Encoder, classical
from afterword.train.rows import TrainingRows

NAMES = ["rows.csv.gz", "rows.parquet"]
TEXTS = ["a cat sat down", "the dog, at once", "a bank"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny("llama", tmp_path_factory.mktemp("models") / "llama")


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
        return path
    text = io.StringIO()
    table = csv.DictWriter(text, list(rows[0]))
    table.writeheader()
    table.writerows(rows)
    path.write_bytes(gzip.compress(text.getvalue().encode()))
    return path


def pairs(path: Path) -> Path:
    return write(
        path,
        [{"sentence1": f"a {i} cats", "sentence2": f"{i} dogs or {i % 7}", "score": float(i % 5)} for i in range(44)],
    )


@pytest.mark.parametrize("name", NAMES)
def test_texts(run: Run, model: Path, tmp_path: Path, name: str):
    path = write(tmp_path / name, [{"text": text, "about": "b"} for text in TEXTS])
    wanted = Encoder.load(model, classical()).encode(TEXTS)
    made = run("embed", "-m", model, "--method", "classical", "-i", path)
    assert made.code == 0 and np.allclose(array(made.rows), wanted, rtol=1e-5)
    similar = run("similar", "-m", model, "--method", "classical", "-i", path)
    assert similar.code == 0 and TEXTS[1] in similar.out
    assert run("analyse", "dependency", "-m", model, "-i", path).code == 0
    assert run("embed", "-m", model, path).code == 2  # a file as a text


@pytest.mark.parametrize("name", NAMES)
def test_pairs(run: Run, model: Path, tmp_path: Path, name: str):
    path, out = pairs(tmp_path / name), tmp_path / "out"
    own = ("-m", model, "--method", "classical")
    options = ("--heads", "none", "--post", "none", "--copies", 1, "--no-progress")
    assert run("tune", *own, "--dev", path, "--out", out, *options).code == 0
    evaluated = run("evaluate", *own, "--data", tmp_path, "--tasks", path, "--out", tmp_path / "results")
    assert evaluated.code == 0 and "1/1 rows: classical: " in evaluated.err
    assert run("analyse", "turning-point", "-m", model, "--dev", path, "--pool", "mean").code == 0
    assert TrainingRows.read(path).form == "scored pairs" and len(TrainingRows.read(path)) == 44
