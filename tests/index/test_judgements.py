"""Queries and judgements are read as BEIR, TREC and JSON lines have them; what is broken is named by its line."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from afterword.errors import BadRow, DataError
from afterword.index.judgements import read_judgements, read_query_file

WANTED = {"q1": {"d 1": 2.0, "7": 0.0}, "3": {"7": 1.0}}
JUDGED = [("q1", "d 1", 2), ("q1", 7, 0), (3, 7, 1)]


def lines(file: Path, rows: list[dict[str, Any]]) -> Path:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    file.write_bytes(gzip.compress(text.encode()) if file.suffix == ".gz" else text.encode())
    return file


def named(query: str, document: str, score: str) -> list[dict[str, Any]]:
    return [{query: q, document: d, score: s} for q, d, s in JUDGED]


@pytest.mark.parametrize(
    "names", [("query-id", "corpus-id", "score"), ("query", "doc", "score"), ("query", "corpus", "relevance")]
)
def test_judgements_of_json_lines(tmp_path: Path, names: tuple[str, str, str]):
    assert read_judgements(lines(tmp_path / "a.jsonl.gz", named(*names))) == WANTED


def test_judgements_of_beirs_table(tmp_path: Path):
    (tmp_path / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td 1\t2\nq1\t7\t0\n3\t7\t1\n")
    (tmp_path / "test.csv").write_text("score,query-id,corpus-id\n2,q1,d 1\n0,q1,7\n1,3,7\n")
    assert read_judgements(tmp_path / "test.tsv") == read_judgements(tmp_path / "test.csv") == WANTED


@pytest.mark.parametrize("name", ["qrels.txt", "qrels.test", "a.tsv", "qrels", "qrels.txt.gz"])
def test_judgements_of_trec(tmp_path: Path, name: str):
    text = b"q1 0 d1 2\nq1\t0\t7\t-1\n 3  Q0  7  1 \n"
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    assert read_judgements(tmp_path / name) == {"q1": {"d1": 2.0, "7": -1.0}, "3": {"7": 1.0}}


def test_judgements_and_queries_of_parquet(tmp_path: Path):
    pq.write_table(pa.table({"query-id": ["1"], "corpus-id": [2], "score": [0.5]}), tmp_path / "a.parquet")
    assert read_judgements(tmp_path / "a.parquet") == {"1": {"2": 0.5}}
    pq.write_table(pa.table({"_id": [1], "query": ["a bank"]}), tmp_path / "q.parquet")
    assert read_query_file(tmp_path / "q.parquet") == {"1": "a bank"}


def test_queries_of_several_files(tmp_path: Path):
    wanted = {"1": "a bank", "x": "银行"}
    (tmp_path / "q.tsv").write_text("id\tquery\n1\ta bank\nx\t银行\n", "utf-8")
    rows = [{"_id": "1", "text": "a bank", "metadata": {}}, {"_id": "x", "text": "银行"}]
    assert read_query_file(tmp_path / "q.tsv") == read_query_file(lines(tmp_path / "q.jsonl", rows)) == wanted


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([{"id": "1", "text": "a"}, {"id": "1", "text": "b"}], "jsonl:2: has the id '1' of another query"),
        ([{"id": "1", "text": " "}], "jsonl:1: the text of query '1' is blank"),
        ([{"id": None, "text": "a"}], "jsonl:1: None is no id"),
        ([{"name": "1", "text": "a"}], "jsonl:1: has no field _id or id or .*only 'name', 'text'"),
        ([], "has no rows"),
    ],
)
def test_broken_queries_are_named(tmp_path: Path, rows: list[dict[str, Any]], told: str):
    with pytest.raises(DataError, match=told):
        read_query_file(lines(tmp_path / "q.jsonl", rows))


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.jsonl", '{"query": "1", "doc": "2", "score": 1}\n{"query"\n', r"jsonl:2: is not JSON"),
        ("a.jsonl", '{"query": "1", "doc": "2", "score": "much"}\n', r"jsonl:1: the score 'much' is not a number"),
        ("a.jsonl", '{"query": "1", "doc": "2", "score": NaN}\n', r"jsonl:1: the score nan is not a number"),
        ("a.jsonl", '{"query": "1", "doc": "2", "score": true}\n', r"jsonl:1: the score True is not a number"),
        ("a.tsv", "query-id\tcorpus-id\tscore\n1\t2\t1\n1\t2\t0\n", r"tsv:3: judges document '2' for query '1' again"),
        (
            "a.tsv",
            "q1\td1\t1\nq1\td2\t1\n",
            r"tsv:2: has no field query-id or .*only 'q1', 'd1', '1'; the first line names",
        ),
        ("a.tsv", "q1\td1\t1\n", r"tsv has no rows below its first line, which names the columns"),
        ("a.tsv", "query-id\tcorpus-id\tscore\n1\t2\n", r"tsv:2: has 2 fields"),
        ("qrels", "1 0 d 1\n1 0 d\n", r"qrels:2: has 3 columns, not TREC's four"),
        ("qrels", "1 0 d x\n", r"qrels:1: the score 'x' is not a number"),
        ("qrels", "", r"qrels has no rows"),
    ],
)
def test_broken_judgements_are_named(tmp_path: Path, name: str, text: str, told: str):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=told):
        read_judgements(tmp_path / name)


@pytest.mark.parametrize(("name", "cut"), [("a.tsv", "\t"), ("a.csv", ",")])
def test_blanks_around_ids_of_a_table_are_dropped(tmp_path: Path, name: str, cut: str):
    rows = [("query-id", "corpus-id", "score"), (" q1", "d 1 ", " 2 "), ("q1 ", "\u00a0d2", "0")]
    (tmp_path / name).write_text("\n".join(map(cut.join, rows)))
    assert read_judgements(tmp_path / name) == {"q1": {"d 1": 2.0, "d2": 0.0}}
    (tmp_path / name).write_text(f"_id{cut}text\n q1 {cut} a bank\n")
    assert read_query_file(tmp_path / name) == {"q1": " a bank"}
    (tmp_path / name).write_text(f"_id{cut}text\n  {cut}a bank\n")
    with pytest.raises(BadRow, match="is no id"):
        read_query_file(tmp_path / name)
    assert read_query_file(lines(tmp_path / "q.jsonl", [{"_id": " q1", "text": "a"}])) == {" q1": "a"}


@pytest.mark.parametrize("name", ["a.tsv", "a.qrels"])
def test_blank_lines_of_trec_are_passed_over(tmp_path: Path, name: str):
    (tmp_path / name).write_text("q 0 d 1\n\nq 0 e 0\n \n")
    assert read_judgements(tmp_path / name) == {"q": {"d": 1.0, "e": 0.0}}
