"""Searches of an index: by vectors, by words, and by both."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("lancedb")

from tests.search.rows import DIMENSION, info, reader

from afterword.errors import DataError, InputError
from afterword.search.find import Search, find
from afterword.search.index import Index
from afterword.search.tune import index_texts, index_vectors

TEXTS = ["the bank of the river", "银行提高了利率", "河边有一棵树", "銀行は金利を上げた"]
TEXTS += ["ธนาคารขึ้นดอกเบี้ย", "bank bank"]
QUERY = np.ones((1, DIMENSION), np.float32)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    made = Index.create(tmp_path_factory.mktemp("a") / "i", reader(TEXTS), info(language="none"))
    index_texts(made)
    return made


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


@pytest.mark.parametrize("words", ["bank", "bank river", "bank bank", "银行", 'a" bank "c'])
def test_words_in_quotes_are_words(index: Index, words: str):
    assert ids(index, f'"{words}"', by="text") == ids(index, f' "{words}" ', by="text") == ids(index, words, by="text")


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
    assert not found.wordless


@pytest.fixture(scope="module")
def equal(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """90 rows with one text and one vector, in no order, and ten others."""
    names = [f"{i:03d}" for i in np.random.default_rng(1).permutation(100)]
    rows = reader(["the bank"] * 90 + ["a tree"] * 10, info(language="none"), ids=names).read_all()
    vectors = np.random.default_rng(0).standard_normal((100, DIMENSION)).astype(np.float32)
    vectors[:90] = QUERY[0]
    values = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), DIMENSION)
    place = rows.schema.get_field_index("vector")
    rows = rows.set_column(place, rows.schema.field("vector"), values)
    made = Index.create(tmp_path_factory.mktemp("e") / "i", rows.to_reader(), info(language="none"))
    index_texts(made)
    return made


@pytest.mark.parametrize("by", ["vector", "text", "hybrid"])
def test_equal_scores_are_in_the_order_of_ids(equal: Index, by: str):
    (result,) = find(equal, ["bank"], QUERY, Search(by=by, top=60))  # type: ignore[arg-type]
    places = [(-hit.score, hit.id) for hit in result.hits]
    assert len(places) == 60 and places == sorted(places)


def test_without_a_word_vectors_alone_are_taken(index: Index):
    (found,) = find(index, ["nowhere"], QUERY)
    assert found.wordless and [hit.id for hit in found.hits] == ids(index, "nowhere", by="vector")


def test_two_queries_are_each_alone(index: Index):
    two = np.stack([QUERY[0], -QUERY[0]])
    both = find(index, ["bank", "银行"], two)
    assert both == find(index, ["bank"], two[:1]) + find(index, ["银行"], two[1:])


def test_where_is_sql_and_a_wrong_one_is_named(index: Index):
    assert ids(index, "bank", where="id = '0'") == ["0"]
    with pytest.raises(DataError, match=r"year > 3.*'year'.* id, doc, "):
        ids(index, "bank", where="year > 3")
    with pytest.raises(DataError, match="chunk = 0 doc"):  # LanceDB ignores what follows a complete condition
        ids(index, "bank", where="chunk = 0 doc = '0'")


@pytest.mark.parametrize("query", ["", " \n", "\u3000"])
def test_a_blank_query_is_refused(index: Index, query: str):
    with pytest.raises(InputError, match="query 2 is blank"):
        find(index, ["bank", query], None, Search(by="text"))


def test_a_query_without_a_vector_is_refused(index: Index):
    with pytest.raises(InputError, match=r"query 1 .*'bank'"):
        find(index, ["bank"], np.full((1, DIMENSION), np.nan))


def test_strange_ids_come_back_whole(tmp_path: Path):
    strange = ["O'Brien", '"', "😀", "x" * 10_000, "a\nb"]
    made = Index.create(tmp_path / "i", reader(TEXTS[:5], ids=strange), info(text_search=False))
    (found,) = find(made, ["any"], QUERY)
    assert {hit.id for hit in found.hits} == set(strange)
    assert {hit.id: hit.text for hit in found.hits} == dict(zip(strange, TEXTS[:5], strict=True))
    with pytest.raises(DataError, match="--no-text-search"):
        find(made, ["any"], QUERY, Search(by="text"))


def test_conditions_find_as_many_rows_through_a_vector_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rows = reader([f"text {i}" for i in range(2000)]).read_all()
    docs = rows.set_column(1, rows.schema.field("doc"), [[str(i % 7 if i < 50 else 9) for i in range(2000)]])
    made = Index.create(tmp_path / "i", docs.to_reader(), info(text_search=False))
    index_vectors(made, "sq")
    monkeypatch.setattr("afterword.search.find.NPROBES", 1)
    for search in Search(top=12, where="doc != '9'"), Search(top=8, each=True), Search(top=60, where="chunk = 0"):
        (through,), (exact,) = (find(made, ["any"], QUERY, replace(search, exact=e)) for e in (False, True))
        assert len(through.hits) == search.top
        assert search.where == "chunk = 0" or through == exact


def test_each_gives_the_best_chunk_of_a_document(tmp_path: Path):
    rows = reader([f"text {i}" for i in range(40)]).read_all()
    docs = rows.set_column(1, rows.schema.field("doc"), [[str(i // 10) for i in range(40)]])
    made = Index.create(tmp_path / "i", docs.to_reader(), info(text_search=False))
    (every,) = find(made, ["any"], QUERY, Search(top=40))
    best: dict[str, str] = {}
    for hit in every.hits:
        best.setdefault(hit.doc, hit.id)
    (found,) = find(made, ["any"], QUERY, Search(top=3, each=True))
    assert [(hit.doc, hit.id) for hit in found.hits] == list(best.items())[:3]
    assert len(find(made, ["any"], QUERY, Search(top=9, each=True))[0].hits) == 4
