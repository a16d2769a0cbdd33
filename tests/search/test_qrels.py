"""Queries and judgements are read as BEIR and TREC have them; an index is measured as trec_eval measures a run."""

import gzip
import json
import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("lancedb")

from tests.search.rows import info, reader

from afterword.errors import BadRow, DataError
from afterword.search.find import Search
from afterword.search.index import Index
from afterword.search.qrels import measure, read_qrels, read_query_file, select
from afterword.search.tune import index_texts

WANTED = {"q1": {"d1": 2, "7": 0}, "3": {"7": 1}}
TREC = b"q1 0 d1 2\nq1\t0\t7\t0\n 3  Q0  7  1 \n"


def test_judgements_of_every_format(tmp_path: Path):
    rows = [("q1", "d1", 2), ("q1", "7", 0), ("3", "7", 1)]
    names = ("query-id", "corpus-id", "score")
    lines = [json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows]
    (tmp_path / "a.jsonl").write_text("".join(lines))
    (tmp_path / "a.tsv").write_text("\n".join("\t".join(map(str, row)) for row in [names, *rows]))
    pq.write_table(pa.table(dict(zip(names, zip(*rows, strict=True), strict=True))), tmp_path / "a.parquet")
    (tmp_path / "qrels.txt").write_bytes(TREC)
    (tmp_path / "qrels.test.gz").write_bytes(gzip.compress(TREC))
    for file in tmp_path.iterdir():
        assert read_qrels(file) == WANTED, file


def test_queries_of_every_format(tmp_path: Path):
    (tmp_path / "q.tsv").write_text("id\tquery\n1\ta bank\nx\t银行\n", "utf-8")
    rows = [{"_id": 1, "text": "a bank", "metadata": {}}, {"_id": "x", "text": "银行"}]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for file in tmp_path.iterdir():
        assert read_query_file(file) == {"1": "a bank", "x": "银行"}, file


@pytest.mark.parametrize(
    ("text", "line", "value"),
    [
        ("query-id\tcorpus-id\tscore\nq\td\tmuch\n", 2, "much"),
        ("query-id\tcorpus-id\tscore\nq\td\t0.5\n", 2, "0.5"),
        ("query-id\tcorpus-id\tscore\nq\td\t1\nq\td\t2\n", 3, "'d'"),
        ("query-id\tcorpus-id\tscore\n\td\t1\n", 2, "query-id"),
        ("q 0 d 1\nq d 1\n", 2, "3 columns"),
    ],
)
def test_a_judgement_that_cannot_be_used_is_named(tmp_path: Path, text: str, line: int, value: str):
    path = tmp_path / ("a.tsv" if "\t" in text else "qrels")
    path.write_text(text)
    with pytest.raises(BadRow, match=value) as caught:
        read_qrels(path)
    assert caught.value.line == line


def test_a_query_that_cannot_be_used_is_named(tmp_path: Path):
    for text, line, value in (("1\ta\n1\tb\n", 3, "'1'"), ("1\t \n", 2, "text")):
        (tmp_path / "q.tsv").write_text(f"id\ttext\n{text}")
        with pytest.raises(BadRow, match=value) as caught:
            read_query_file(tmp_path / "q.tsv")
        assert caught.value.line == line


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    texts = ["bank bank", "bank", "a tree"]
    made = Index.create(tmp_path_factory.mktemp("a") / "i", reader(texts), info(language="none"))
    index_texts(made)
    return made


def test_the_metrics_are_their_formulas(index: Index):
    """The search for bank returns 0 and 1, that for tree 2; document 9 is not in the index."""
    judged = select(index, {"a": "bank", "b": "tree", "c": "bank"}, {"a": {"1": 2, "9": 1, "0": -1}, "b": {"0": 1}})
    assert list(judged.queries) == ["a", "b"] and judged.skipped == 1
    assert (judged.documents, list(judged.missing)) == (3, ["9"])
    scores = measure(index, judged, None, Search(by="text"))
    ndcg = (2 / math.log2(3)) / (2 + 1 / math.log2(3))
    assert scores == pytest.approx({"nDCG@10": ndcg / 2, "recall@10": 0.25, "MRR@10": 0.25})


def test_files_that_do_not_belong_together_are_refused(index: Index):
    with pytest.raises(DataError, match=r"'q'.*'other'"):
        select(index, {"q": "bank"}, {"other": {"0": 1}})
    with pytest.raises(DataError, match=r"'z'.*--id"):
        select(index, {"q": "bank"}, {"q": {"z": 1}})
