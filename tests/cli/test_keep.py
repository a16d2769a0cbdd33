"""``--keep``: columns of the input beside the vectors, as they were."""

import json
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cli.conftest import Ended, Run
from tests.tiny import tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny("llama", tmp_path_factory.mktemp("models") / "llama")


def embed(run: Run, model: Path, *words: object) -> Ended:
    return run("embed", "-m", model, "--method", "classical", *words)


def kept(path: Path) -> list[dict[str, object]]:
    """The rows of an output without their vectors, and whether there is one."""
    lines = path.read_text("utf-8").splitlines() if path.suffix == ".jsonl" else []
    rows = [json.loads(line) for line in lines] or pq.read_table(path).to_pylist()
    return [{**row, "vector": row["vector"] is not None} for row in rows]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_columns_of_a_table_are_strings(run: Run, model: Path, tmp_path: Path, kind: str):
    source, out = tmp_path / "in.csv", tmp_path / f"out.{kind}"
    source.write_text('id;"a;b";text\n007;"x\ny";hello\n8;z;"   "\n9;only\n10;;"you ""too"""\n')
    ended = embed(run, model, "-i", source, "-o", out, "--keep", 'id,"a;b"')
    assert ended.code == 1 and f"{source}: read as ';'-separated" in ended.err
    assert kept(out) == [
        {"text": "hello", "id": "007", "a;b": "x\ny", "vector": True},
        {"text": "   ", "id": "8", "a;b": "z", "vector": False},
        {"text": None, "id": None, "a;b": None, "vector": False},
        {"text": 'you "too"', "id": "10", "a;b": "", "vector": True},
    ]


COLUMNS = {
    "id": pa.array([1, None], pa.uint64()),
    "at": pa.array([1, 1234567890123456789], pa.timestamp("ns", "UTC")),
    "day": pa.array([date(2026, 1, 31), None]),
    "cost": pa.array([Decimal("1.50"), None]),
    "tags": pa.array([["a"], []], pa.large_list(pa.string())),
    "kind": pa.array(["x", "y"]).dictionary_encode(),
    "raw": pa.array([b"\xff", b""], pa.large_binary()),
    "more": pa.array([{"a": 1.5}, {"a": float("inf")}]),
    "half": pa.array([0.5, None], pa.float16()),
}


def test_columns_of_a_parquet_file_keep_their_types(run: Run, model: Path, tmp_path: Path):
    source, out = tmp_path / "in.parquet", tmp_path / "out.parquet"
    pq.write_table(pa.table({**COLUMNS, "text": pa.array(["a", "b"], pa.large_string())}), source)
    names = ",".join(COLUMNS)
    assert embed(run, model, "-i", source, "-o", out, "--keep", names).code == 0
    before, after = pq.read_table(source), pq.read_table(out)
    assert after.column_names == ["text", *COLUMNS, "vector"]
    for name in COLUMNS:
        assert after[name].type == before[name].type and after[name].equals(before[name]), name
    assert embed(run, model, "-i", source, "-o", tmp_path / "out.jsonl", "--keep", names).code == 0
    assert [list(row.values())[1:-1] for row in kept(tmp_path / "out.jsonl")] == [
        [1, "1970-01-01T00:00:00.000000001+00:00", "2026-01-31", "1.50", ["a"], "x", "/w==", {"a": 1.5}, 0.5],
        [None, "2009-02-13T23:31:30.123456789+00:00", None, None, [], "y", "", {"a": None}, None],
    ]
