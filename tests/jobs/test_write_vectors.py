"""Vectors on disk: the same to the last bit, a block at a time, whole or not at all."""

import gc
import io
import json
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from afterword.errors import DataError
from afterword.files.atomic import atomic_file
from afterword.jobs.output import JsonLinesSink, NpySink, ParquetSink, Sink, kind_of, spelled
from afterword.jobs.rows import Block

TYPES = [np.float32, np.float64]
COLUMNS, EMPTY = {"text": "text", "line": "number"}, {"vector": np.zeros((0, 4), np.float32)}
SINKS: dict[str, Callable[..., Sink]] = {
    "jsonl": JsonLinesSink,
    "npy": lambda file: NpySink(file, 4, np.dtype(np.float32)),
    "parquet": lambda file: ParquetSink(file, COLUMNS, EMPTY),
}


def blocks(dtype: type, rows: int = 5, count: int = 3, width: int = 4) -> list[Block]:
    random = np.random.default_rng(0)
    made = []
    for start in range(count):
        vectors = random.standard_normal((rows, width)).astype(dtype)
        vectors[1] = np.nan
        texts = [None, *(f'每 "{start} {i}"\n' for i in range(rows - 1))]
        made.append(Block({"text": texts, "line": list(range(rows))}, {"vector": vectors}))
    return made


def joined(parts: list[Block]) -> np.ndarray:
    return np.concatenate([b.vectors["vector"] for b in parts])


def write(path: Path, parts: list[Block], sink: Callable[..., Sink]) -> None:
    with atomic_file(path) as file:
        into = sink(file)
        for part in parts:
            into.write(part)
        into.close()


@given(st.data(), st.sampled_from([16, 32, 64]))
def test_every_number_reads_back_as_the_same_float(data: st.DataObject, width: int):
    elements = st.floats(width=width, allow_nan=False, allow_infinity=False)
    rows = data.draw(arrays(f"f{width // 8}", (3, 2), elements=elements))
    back = np.array([json.loads(line) for line in spelled(rows)], rows.dtype)
    assert np.array_equal(back.view(f"i{width // 8}"), rows.view(f"i{width // 8}"))


def test_a_row_of_a_transposed_array_and_an_integer_over_64_bits(tmp_path: Path):
    vectors = np.arange(6, dtype=np.float32).reshape(3, 2).T
    write(tmp_path / "a.jsonl", [Block({"id": [10**30, -(10**30)]}, {"vector": vectors})], JsonLinesSink)
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text("utf-8").splitlines()]
    assert rows == [{"id": 10**30, "vector": [0, 2, 4]}, {"id": -(10**30), "vector": [1, 3, 5]}]


@pytest.mark.parametrize("dtype", TYPES)
def test_json_lines(tmp_path: Path, dtype: type):
    parts = blocks(dtype)
    write(tmp_path / "a.jsonl", parts, JsonLinesSink)
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text("utf-8").splitlines()]
    assert [row["text"] for row in rows] == [t for b in parts for t in b.columns["text"]]
    wanted = joined(parts)
    for row, vector in zip(rows, wanted, strict=True):
        assert (
            row["vector"] is None if np.isnan(vector).any() else np.array_equal(np.array(row["vector"], dtype), vector)
        )


@pytest.mark.parametrize("dtype", TYPES)
def test_an_array(tmp_path: Path, dtype: type):
    parts = blocks(dtype)
    write(tmp_path / "a.npy", parts, lambda file: NpySink(file, 4, np.dtype(dtype)))
    made = np.load(tmp_path / "a.npy", mmap_mode="r")
    assert made.dtype == dtype and np.array_equal(made, joined(parts), equal_nan=True)
    write(tmp_path / "a.npy", [], lambda file: NpySink(file, 4, np.dtype(dtype)))
    assert np.load(tmp_path / "a.npy").shape == (0, 4)


@pytest.mark.parametrize("dtype", TYPES)
def test_parquet(tmp_path: Path, dtype: type):
    parts = blocks(dtype)
    kinds = {"text": "text", "line": "number"}
    write(
        tmp_path / "a.parquet",
        parts,
        lambda f: ParquetSink(f, kinds, {"vector": np.zeros((0, 4), dtype)}, {"made": "by"}),
    )
    table = pq.read_table(tmp_path / "a.parquet")
    assert table.schema.metadata[b"made"] == b"by"
    assert table.schema.field("vector").type == pa.list_(pa.from_numpy_dtype(np.dtype(dtype)), 4)
    assert pq.ParquetFile(tmp_path / "a.parquet").num_row_groups == 3
    assert table.column("text").to_pylist() == [t for b in parts for t in b.columns["text"]]
    wanted = [None if np.isnan(v).any() else v.tolist() for v in joined(parts)]
    assert table.column("vector").to_pylist() == wanted


def test_blocks_are_not_held(tmp_path: Path):
    """100 MB of vectors through each format; a block is 1 MB."""
    part = Block({"text": ["x"] * 1000}, {"vector": np.ones((1000, 256), np.float32)})
    for name, sink in (
        ("a.npy", lambda file: NpySink(file, 256, np.dtype(np.float32))),
        ("a.parquet", lambda file: ParquetSink(file, {"text": "text"}, {"vector": np.zeros((0, 256), np.float32)})),
    ):
        before = pa.total_allocated_bytes()
        tracemalloc.start()
        write(tmp_path / name, [part] * 100, sink)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 4e6, name
        assert pa.total_allocated_bytes() <= before + 1e6, name
    assert (tmp_path / "a.npy").stat().st_size > 1e8


@pytest.mark.parametrize("sink", ["jsonl", "npy", "parquet"])
def test_a_sink_that_is_interrupted_writes_nothing_later(tmp_path: Path, sink: str, monkeypatch: pytest.MonkeyPatch):
    """pyarrow's writer would write its index into a closed file when it is deleted."""
    said: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    make = SINKS[sink]

    def interrupted() -> None:
        with atomic_file(tmp_path / "a") as file, make(file) as into:
            into.write(blocks(np.float32)[0])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    gc.collect()
    assert not said and not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["jsonl", "npy", "parquet"])
def test_parts_that_are_appended_are_the_file_of_their_blocks(tmp_path: Path, kind: str):
    parts = blocks(np.float32)
    write(tmp_path / "whole", parts, SINKS[kind])
    for i, part in enumerate(parts):
        write(tmp_path / str(i), [part], SINKS[kind])
    with atomic_file(tmp_path / "joined") as file, SINKS[kind](file) as sink:
        for i in range(len(parts)):
            sink.append(tmp_path / str(i))
    assert (tmp_path / "joined").read_bytes() == (tmp_path / "whole").read_bytes()


def test_a_part_of_another_shape_is_refused(tmp_path: Path):
    write(tmp_path / "part", blocks(np.float32), lambda file: NpySink(file, 4, np.dtype(np.float32)))
    for width, dtype in ((3, np.float32), (4, np.float64)):
        with pytest.raises(DataError, match="part holds rows of"), atomic_file(tmp_path / "joined") as file:
            NpySink(file, width, np.dtype(dtype)).append(tmp_path / "part")


def test_a_file_has_its_name_only_when_it_is_whole(tmp_path: Path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"before")

    def interrupted() -> None:
        with atomic_file(path) as file:
            file.write(b"half")
            file.flush()
            (other,) = set(tmp_path.iterdir()) - {path}
            assert path.read_bytes() == b"before" and other.read_bytes() == b"half"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"] and path.read_bytes() == b"before"
    with atomic_file(path) as file:
        file.write(b"whole")
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"] and path.read_bytes() == b"whole"


def test_a_full_disk_is_told():
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")
    with open("/dev/full", "wb", buffering=0) as full:
        sink = JsonLinesSink(full)
        with pytest.raises(OSError, match="No space left"):
            sink.write(blocks(np.float32)[0])


def test_a_place_that_cannot_be_written(tmp_path: Path):
    with (
        pytest.raises(DataError, match=r"a\.txt cannot be written: No such file"),
        atomic_file(tmp_path / "none" / "a.txt"),
    ):
        pass
    with pytest.raises(DataError, match=r"write a \.jsonl, \.parquet, \.npy file"):
        kind_of(tmp_path / "a.doc")


def test_json_lines_are_handed_on_at_once():
    stream = io.BufferedWriter(raw := io.BytesIO(), 10_000_000)
    JsonLinesSink(stream).write(blocks(np.float32)[0])
    assert len(raw.getvalue().splitlines()) == 5
