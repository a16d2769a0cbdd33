"""A file of vectors says what made them, and is read in blocks: each text once, null rows left out, numbers kept."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tests.agreement import close
from tests.cli.conftest import Run

from afterword import Encoder, classical, parse_method, prompt
from afterword.errors import DataError
from afterword.jobs.stored import (
    PROBE_TEXTS,
    TOLERANCE,
    StoredVectors,
    VectorsInfo,
    holds_vectors,
    probe_difference,
    probes,
    read_info,
    to_notes,
)
from afterword.methods.serialize import from_json

PROBES = np.random.default_rng(0).standard_normal((8, 3)).astype(np.float32)
INFO = VectorsInfo("a/model", {"name": "m"}, "f" * 32, "1" * 32, 2, True, "an instruction: ", PROBES)
TEXTS = ["a", None, "b", "a", "c", "", "b", "d"]
VECTORS = np.arange(16, dtype=np.float32).reshape(8, 2)


def write(path: Path, columns: dict[str, list] | None = None, missing: Sequence[int] = (1, 4)) -> Path:
    vectors = pa.array([None if i in missing else v for i, v in enumerate(VECTORS.tolist())], pa.list_(pa.float32(), 2))
    table = pa.table({**(columns or {"text": TEXTS}), "vector": vectors})
    pq.write_table(table.replace_schema_metadata(to_notes({"vector": INFO})), path)
    return path


def test_a_file_says_what_made_its_vectors(run: Run, gpt2: Path, tmp_path: Path):
    out, spec = tmp_path / "out.parquet", "reba:copies=2,pool=mean"
    words = ("--method", spec, "--normalize", "--truncate-dim", 8, "--prompt", "query: ", "-o", out, "a dog", "a cat")
    assert run("embed", "-m", gpt2, *words).code == 0
    encoder = Encoder.load(gpt2, parse_method(spec))
    (info,) = read_info(out).values()
    assert (info.model, info.fingerprint, info.identity) == (str(gpt2), encoder.fingerprint, encoder.identity)
    assert (info.dimension, info.normalized, info.prompt) == (8, True, "query: ")
    assert close(info.probes, probes(encoder), 1e-5)
    vectors = replace(encoder, method=from_json(info.method)).encode(
        ["a dog", "a cat"], prompt=info.prompt, truncate_dim=info.dimension, normalize_embeddings=info.normalized
    )
    assert close(np.array(pq.read_table(out).column("vector").to_pylist(), np.float32), vectors, 1e-5)
    assert json.loads(pq.read_schema(out).metadata[b"afterword.vectors.vector"])["identity"] == encoder.identity


@pytest.mark.parametrize("columns", [["vector"], ["echo", "prompt:template=a.b"]])
def test_it_is_read_as_it_was_written(tmp_path: Path, columns: list[str]):
    infos = {name: replace(INFO, identity=name, prompt=None if name == "echo" else "p") for name in columns}
    vectors = pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2))
    table = pa.table({"text": ["a"], **dict.fromkeys(columns, vectors)}).replace_schema_metadata(to_notes(infos))
    pq.write_table(table, tmp_path / "a.parquet")
    found = read_info(tmp_path / "a.parquet")
    assert list(found) == columns
    for name, info in found.items():
        assert np.array_equal(info.probes, PROBES)
        assert info.to_json() == infos[name].to_json()


def test_a_file_that_does_not_say_it_is_refused(tmp_path: Path):
    path = write(tmp_path / "a.parquet")
    pq.write_table(pq.read_table(path).replace_schema_metadata({}), path)
    (tmp_path / "text.parquet").write_text("no")
    for name in ("a.parquet", "text.parquet", "none.parquet"):
        with pytest.raises(DataError, match=name):
            read_info(tmp_path / name)
        assert not holds_vectors(tmp_path / name)


def test_probe_vectors_tell_encoders_apart(gpt2: Path):
    encoder = Encoder.load(gpt2, classical())
    stored = probes(encoder)
    assert stored.shape[0] == len(PROBE_TEXTS) == 8 == len(probes(Encoder.load(gpt2, prompt("csts"))))
    assert probe_difference(stored, probes(Encoder.load(gpt2, classical()))) <= TOLERANCE
    assert probe_difference(stored, probes(replace(encoder, method=classical("last")))) > TOLERANCE
    with torch.no_grad():
        next(encoder.backbone.model.parameters()).mul_(1.01)
    assert probe_difference(stored, probes(encoder)) > TOLERANCE
    gone = stored.copy()
    gone[2] = np.nan
    for a, b in ((stored, stored[:, :3]), (stored, gone), (gone, stored)):
        assert probe_difference(a, b) == float("inf")
    assert probe_difference(gone, gone) == 0 == probe_difference(np.zeros((8, 4)), np.zeros((8, 4)))


def test_texts_rows_and_vectors(tmp_path: Path):
    file = StoredVectors(write(tmp_path / "v.parquet"))
    assert file.rows == {0: [0, 3], 2: [2, 6], 5: [5], 7: [7]} and file.texts() == ["a", "b", "", "d"]
    assert np.array_equal(file.vectors("vector"), VECTORS[[0, 2, 5, 7]]) and (~file.valid).sum() == 2
    file = StoredVectors(write(tmp_path / "v.parquet", missing=[0, 1, 2, 6]))  # "a" has one in row 3, "b" has none
    assert file.rows == {3: [0, 3], 4: [4], 5: [5], 7: [7]} and file.texts() == ["a", "c", "", "d"]
    assert np.array_equal(file.vectors("vector"), VECTORS[[3, 4, 5, 7]])


def test_chunks_stay_apart_and_words_are_refused(tmp_path: Path):
    numbers = list(range(8))
    spans = {"line": numbers, "start": numbers, "end": numbers, "text": TEXTS}
    file = StoredVectors(write(tmp_path / "v.parquet", {**spans, "chunk": numbers}))
    assert list(file.rows) == [0, 2, 3, 5, 6, 7] and holds_vectors(tmp_path / "v.parquet")
    with pytest.raises(DataError, match="word"):
        StoredVectors(write(tmp_path / "w.parquet", {**spans, "word": TEXTS}))


def test_parts_are_read_as_one_file(tmp_path: Path):
    single = StoredVectors(write(tmp_path / "v.parquet"))
    table = pq.read_table(single.path)
    parts = [tmp_path / f"{i}.parquet" for i in range(3)]
    for path, (start, rows) in zip(parts, ((0, 3), (3, 0), (3, 5)), strict=True):
        pq.write_table(table.slice(start, rows), path)
    file = StoredVectors(tmp_path, parts)
    assert file.rows == single.rows and file.texts() == single.texts()
    assert np.array_equal(file.vectors("vector"), single.vectors("vector"))
    with pytest.raises(DataError):
        StoredVectors(tmp_path, [])
