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


def test_values_of_json_are_kept(run: Run, model: Path, tmp_path: Path):
    values = [7, 2**70, 1.5, True, None, "é", {"a": [1, None]}, float("nan"), "\ud800"]
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps({"text": "a", "x": x, "y": i}) + "\n" for i, x in enumerate(values)))
    assert embed(run, model, "-i", source, "-o", tmp_path / "out.jsonl", "--keep", "x", "--keep", "y").code == 1
    rows = kept(tmp_path / "out.jsonl")
    assert [row["x"] for row in rows] == [*values[:-2], None, None] and [row["y"] for row in rows] == [*range(9)]
    assert [row["vector"] for row in rows] == [True] * 8 + [False]
    told = json.loads((tmp_path / "out.jsonl.rejects.jsonl").read_text())
    assert told == {"row": 8, "line": 9, "reason": "'x' holds a lone surrogate"}
    assert embed(run, model, "-i", source, "-o", tmp_path / "out.parquet", "--keep", "x").code == 1
    assert [row["x"] for row in kept(tmp_path / "out.parquet")] == [
        "7", str(2**70), "1.5", "true", None, "é", '{"a": [1, null]}', None, None
    ]  # fmt: skip


COLUMNS = {
    "id": pa.array([1, None], pa.uint64()),
    "at": pa.array([1, 1234567890123456789], pa.timestamp("ns", "UTC")),
    "day": pa.array([date(2026, 1, 31), None]),
    "cost": pa.array([Decimal("1.50"), None]),
    "tags": pa.array([["a"], []], pa.large_list(pa.string())),
    "kind": pa.array(["x", "y"]).dictionary_encode(),
    "view": pa.array(["x" * 30, None], pa.string_view()),
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
        [1, "1970-01-01T00:00:00.000000001+00:00", "2026-01-31", "1.50", ["a"], "x", "x" * 30, "/w==", {"a": 1.5}, 0.5],
        [None, "2009-02-13T23:31:30.123456789+00:00", None, None, [], "y", None, "", {"a": None}, None],
    ]
