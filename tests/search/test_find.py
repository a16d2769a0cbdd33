"""Searches by vectors, by words and by both; an index is measured as trec_eval measures a run."""

import gzip
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("lancedb")

from tests.search.rows import DIMENSION, made, random_vectors

from afterword.errors import BadRow, DataError, InputError
from afterword.search.find import JudgedQueries, Search, find, measure, read_qrels, read_queries
from afterword.search.index import METRIC, VECTOR, Index

TEXTS = ["the bank of the river", "银行提高了利率", "河边有一棵树", "銀行は金利を上げた"]
TEXTS += ["ธนาคารขึ้นดอกเบี้ย", "bank bank"]
QUERY = np.ones((1, DIMENSION), np.float32)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return made(tmp_path_factory.mktemp("a") / "i", TEXTS)


def ids(index: Index, text: str, **search: object) -> list[str]:
    (found,) = find(index, [text], QUERY, Search(**search))  # type: ignore[arg-type]
    return [hit.id for hit in found.hits]


@pytest.mark.parametrize(
    ("query", "wanted"),
    [("bank", ["5", "0"]), ("银行", ["1"]), ("河边", ["2"]), ("金利", ["3"]), ("ธนาคาร", ["4"]), ("nowhere", [])],
)
def test_words_of_several_languages_are_found(index: Index, query: str, wanted: list[str]):
    assert ids(index, query, by="text") == wanted


@pytest.mark.parametrize("query", ["bank AND (", '"bank', "*", ":", "+bank -river", "^2~", "a" * 10_000, "bank\nOR"])
def test_odd_syntax_is_plain_text(index: Index, query: str):
    assert set(ids(index, query, by="text")) <= {"0", "5"}
    assert len(ids(index, query)) == len(TEXTS)


def test_vectors_score_by_the_cosine(index: Index):
    stored = index.table.to_arrow()["vector"].combine_chunks().flatten().to_numpy().reshape(-1, DIMENSION)
    cosines = stored @ QUERY[0] / np.linalg.norm(stored, axis=1) / np.linalg.norm(QUERY)
    (found,) = find(index, ["any"], QUERY, Search(by="vector", top=3))
    order = np.argsort(-cosines)[:3]
    assert [hit.id for hit in found.hits] == [str(i) for i in order]
    assert [hit.score for hit in found.hits] == pytest.approx(cosines[order].tolist(), abs=1e-6)


def test_hybrid_joins_the_ranks_of_both_sides(index: Index):
    near, worded = ids(index, "bank", by="vector"), ids(index, "bank", by="text")
    (found,) = find(index, ["bank"], QUERY)
    wanted = {i: 1 / (61 + near.index(i)) + (1 / (61 + worded.index(i)) if i in worded else 0) for i in near}
    assert {hit.id: hit.score for hit in found.hits} == pytest.approx(wanted)
    assert found.matched


@pytest.fixture(scope="module")
def equal(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """90 rows with one text and one vector, in random order, and ten others."""
    names = [f"{i:03d}" for i in np.random.default_rng(1).permutation(100)]
    vectors = random_vectors(100)
    vectors[:90] = QUERY[0]
    return made(tmp_path_factory.mktemp("e") / "i", ["the bank"] * 90 + ["a tree"] * 10, names, vectors)


@pytest.mark.parametrize("by", ["vector", "text", "hybrid"])
def test_equal_scores_are_in_the_order_of_ids(equal: Index, by: str):
    (result,) = find(equal, ["bank"], QUERY, Search(by=by, top=60))  # type: ignore[arg-type]
    places = [(-hit.score, hit.id) for hit in result.hits]
    assert len(places) == 60 and places == sorted(places)


def test_without_a_word_vectors_alone_are_taken(index: Index):
    (found,) = find(index, ["nowhere"], QUERY)
    assert not found.matched and [hit.id for hit in found.hits] == ids(index, "nowhere", by="vector")


def test_where_is_sql_and_a_wrong_one_is_named(index: Index):
    assert ids(index, "bank", where="id = '0'") == ["0"]
    with pytest.raises(DataError, match=r"year > 3.*'year'.* id, doc, "):
        ids(index, "bank", where="year > 3")
    with pytest.raises(DataError, match="chunk = 0 doc"):  # LanceDB ignores what follows a complete condition
        ids(index, "bank", where="chunk = 0 doc = '0'")


def test_a_query_without_words_or_a_vector_is_named(index: Index):
    for blank in "", " \n", "\u3000":
        with pytest.raises(InputError, match="query 2"):
            find(index, ["bank", blank], None, Search(by="text"))
    with pytest.raises(InputError, match=r"query 1 .*'bank'"):
        find(index, ["bank"], np.full((1, DIMENSION), np.nan))


def with_documents(folder: Path, documents: list[str]) -> Index:
    """An index whose rows are chunks of these documents."""
    index = made(folder, [f"text {i}" for i in range(len(documents))])
    rows = index.table.to_arrow()
    place = rows.schema.get_field_index("doc")
    index.table.merge_insert("id").when_matched_update_all().execute(rows.set_column(place, "doc", [documents]))
    return index


def test_conditions_find_as_many_rows_through_a_vector_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from lancedb.index import IvfSq

    index = with_documents(tmp_path / "i", [str(i % 7 if i < 50 else 9) for i in range(2000)])
    index.table.create_index(VECTOR, config=IvfSq(distance_type=METRIC))
    monkeypatch.setattr("afterword.search.find.NPROBES", 1)
    for search in Search(top=12, where="doc != '9'"), Search(top=8, each=True), Search(top=60, where="chunk = 0"):
        (through,), (exact,) = (find(index, ["any"], QUERY, replace(search, exact=e)) for e in (False, True))
        assert len(through.hits) == search.top
        assert search.where == "chunk = 0" or through == exact


def test_each_gives_the_best_chunk_of_a_document(tmp_path: Path):
    index = with_documents(tmp_path / "i", [str(i // 10) for i in range(40)])
    (every,) = find(index, ["any"], QUERY, Search(top=40))
    best: dict[str, str] = {}
    for hit in every.hits:
        best.setdefault(hit.doc, hit.id)
    (found,) = find(index, ["any"], QUERY, Search(top=3, each=True))
    assert [(hit.doc, hit.id) for hit in found.hits] == list(best.items())[:3]
    assert len(find(index, ["any"], QUERY, Search(top=9, each=True))[0].hits) == 4


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
        assert read_queries(file) == {"1": "a bank", "x": "银行"}, file


@pytest.mark.parametrize(
    ("text", "line", "value"),
    [
        ("query-id\tcorpus-id\tscore\nq\td\tmuch\n", 2, "much"),
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
    (tmp_path / "q.tsv").write_text("id\ttext\n1\ta\n2\t \n")
    with pytest.raises(BadRow, match="text") as caught:
        read_queries(tmp_path / "q.tsv")
    assert caught.value.line == 3


def judged(index: Index, folder: Path, queries: dict[str, str], qrels: list[str]) -> JudgedQueries:
    (folder / "q.tsv").write_text("id\ttext\n" + "".join(f"{id}\t{text}\n" for id, text in queries.items()))
    (folder / "qrels").write_text("".join(f"{line}\n" for line in qrels))
    return JudgedQueries.read(index, folder / "q.tsv", folder / "qrels")


def test_the_metrics_are_their_formulas(tmp_path: Path):
    """The search for bank returns 0 and 1, the one for tree 2; document 9 is not in the index."""
    index = made(tmp_path / "i", ["bank bank", "bank", "a tree"])
    queries = {"a": "bank", "b": "tree", "c": "bank"}
    found = judged(index, tmp_path, queries, ["a 0 1 2", "a 0 9 1", "a 0 0 -1", "b 0 0 1"])
    assert list(found.queries) == ["a", "b"] and found.skipped == 1
    assert list(found.missing) == ["9"]
    scores = measure(index, found, None, Search(by="text"))
    ndcg = (2 / math.log2(3)) / (2 + 1 / math.log2(3))
    assert scores == pytest.approx({"nDCG@10": ndcg / 2, "recall@10": 0.25, "MRR@10": 0.25})
    with pytest.raises(DataError, match=r"'q'.*'other'"):
        judged(index, tmp_path, {"q": "bank"}, ["other 0 0 1"])
    with pytest.raises(DataError, match="'z'"):
        judged(index, tmp_path, {"q": "bank"}, ["q 0 z 1"])


def test_the_metrics_are_those_of_trec_eval(tmp_path: Path):
    pytrec_eval = pytest.importorskip("pytrec_eval")
    draw = np.random.default_rng(5)
    index = made(tmp_path / "i", [f"text {i}" for i in range(40)])
    lines = [f"q{q} 0 {d} {draw.integers(-1, 4)}" for q in range(9) for d in draw.permutation(40)[:25]]
    found = judged(index, tmp_path, {f"q{q}": f"query {q}" for q in range(9)}, lines)
    vectors = random_vectors(9, seed=3)
    runs, by_vector = {}, Search(by="vector")
    for id, result in zip(found.queries, find(index, list(found.queries.values()), vectors, by_vector), strict=True):
        runs[id] = {hit.doc: -float(rank) for rank, hit in enumerate(result.hits)}
    integers = {query: {d: int(score) for d, score in scores.items()} for query, scores in found.qrels.items()}
    names = {"nDCG@10": "ndcg_cut_10", "recall@10": "recall_10", "MRR@10": "recip_rank"}
    scores = pytrec_eval.RelevanceEvaluator(integers, {"ndcg_cut.10", "recall.10", "recip_rank"}).evaluate(runs)
    wanted = {name: np.mean([one[key] for one in scores.values()]) for name, key in names.items()}
    assert measure(index, found, vectors, by_vector) == pytest.approx(wanted)
