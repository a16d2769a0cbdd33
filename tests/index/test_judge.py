"""An index is judged as trec_eval judges a run."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("lancedb")

from tests.index.rows import DIMENSION, info, reader

from afterword.errors import DataError
from afterword.index.find import Asked, find
from afterword.index.index import Index
from afterword.index.judge import Judged, judge, ndcg, recall, reciprocal_rank, task_of
from afterword.index.tune import index_texts

TEXTS = ["the bank of the river", "a bank", "a tree by the river", "rates rose", "a late parcel"]
IDS = st.integers(0, 40).map(str)
FOUND = st.lists(IDS, max_size=20, unique=True)
SCORES = st.dictionaries(IDS, st.integers(-1, 3), min_size=1, max_size=30)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    made = Index.create(tmp_path_factory.mktemp("a") / "i", reader(TEXTS), info(language="none"))
    index_texts(made)
    return made


@given(found=FOUND, scores=SCORES)
def test_ndcg_is_the_formula(found: list[str], scores: dict[str, int]):
    """Written out in another way: every rank from 1 to 10 by itself, and the best order by taking out the maximum."""
    dcg = best = 0.0
    left = dict(scores)
    for rank in range(1, 11):
        if rank <= len(found):
            dcg += max(scores.get(found[rank - 1], 0), 0) * math.log(2) / math.log(rank + 1)
        if left:
            top = max(left, key=lambda id: left[id])
            best += max(left.pop(top), 0) * math.log(2) / math.log(rank + 1)
    assert ndcg(found, scores) == pytest.approx(dcg / best if best else 0.0)


@given(found=FOUND.filter(bool), scores=SCORES.filter(lambda scores: max(scores.values()) > 0))
def test_all_figures_are_those_of_trec_eval(found: list[str], scores: dict[str, int]):
    trec = pytest.importorskip("pytrec_eval")
    measures = {"ndcg_cut.10", "recall.10", "recip_rank"}
    run = {id: float(len(found) - rank) for rank, id in enumerate(found[:10])}
    told = trec.RelevanceEvaluator({"q": scores}, measures).evaluate({"q": run})["q"]
    assert ndcg(found, scores) == pytest.approx(told["ndcg_cut_10"])
    assert recall(found, scores) == pytest.approx(told["recall_10"])
    assert reciprocal_rank(found, scores) == pytest.approx(told["recip_rank"])


@given(ranks=st.permutations(range(8)), scores=st.lists(st.integers(0, 3), min_size=8, max_size=8))
def test_ndcg_is_that_of_scikit_learn(ranks: list[int], scores: list[int]):
    metrics = pytest.importorskip("sklearn.metrics")
    told = metrics.ndcg_score([scores], [[-ranks.index(i) for i in range(8)]], k=10)
    assert ndcg([str(i) for i in ranks], {str(i): s for i, s in enumerate(scores)}) == pytest.approx(told)


def test_a_relevant_document_behind_the_cut_is_not_found():
    found = [str(i) for i in range(12)]
    assert ndcg(found, {"10": 1}) == recall(found, {"10": 1}) == reciprocal_rank(found, {"10": 1}) == 0
    assert recall(found, {"10": 1}, 100) == 1
    assert reciprocal_rank(found, {"9": 1}) == 1 / 10


def test_each_way_is_judged_by_what_its_search_finds(index: Index):
    queries = {"a": "river bank", "b": "parcel"}
    judgements = {"a": {"0": 2.0, "2": 1.0, "3": 0.0}, "b": {"4": 1.0}}
    vectors = np.random.default_rng(5).standard_normal((2, DIMENSION)).astype(np.float32)
    task = task_of(index, queries, judgements)
    found = judge(index, task, vectors, Asked())
    assert [one.by for one in found] == ["hybrid", "vector", "text"]
    for one in found:
        hits = [[hit.id for hit in f.hits] for f in find(index, list(queries.values()), vectors, Asked(by=one.by))]
        pairs = list(zip(hits, judgements.values(), strict=True))
        assert one.ndcg == pytest.approx(np.mean([ndcg(*pair) for pair in pairs]))
        assert one.mrr == pytest.approx(np.mean([reciprocal_rank(*pair) for pair in pairs]))
        assert one.recall == pytest.approx(np.mean([recall(*pair) for pair in pairs]))
    assert found[2].ndcg > 0.9 and found[2].ndcg != found[1].ndcg
    assert judge(index, task, None, Asked(by="text")) == found[2:]


def test_an_index_without_words_is_judged_by_vectors(tmp_path: Path):
    made = Index.create(tmp_path / "i", reader(TEXTS), info(text_search=False))
    task = task_of(made, {"a": "river"}, {"a": dict.fromkeys("01234", 1.0)})
    assert judge(made, task, np.ones((1, DIMENSION), np.float32), Asked()) == [Judged("vector", 1, 1, 1)]


def test_chunks_are_judged_by_their_documents(tmp_path: Path):
    rows = reader([f"bank {i}" for i in range(40)]).read_all()
    docs = rows.set_column(1, rows.schema.field("doc"), [[f"d{i // 20}" for i in range(40)]])
    made = Index.create(tmp_path / "i", docs.to_reader(), info(language="none"))
    index_texts(made)
    task = task_of(made, {"a": "bank"}, {"a": {"d0": 1.0, "d1": 1.0}})
    assert judge(made, task, None, Asked(by="text")) == [Judged("text", 1, 1, 1)]


def test_queries_without_a_relevant_document_are_left_out_and_counted(index: Index):
    judgements = {"a": {"0": 1.0}, "b": {"1": 0.0, "9": -1.0}}
    task = task_of(index, {"c": "tree", "b": "bank", "a": "river"}, judgements)
    assert (task.queries, task.judgements) == ({"a": "river"}, {"a": {"0": 1.0}})
    assert (task.unjudged, task.barren, task.absent, task.documents) == (1, 1, [], 1)


def test_documents_that_cannot_be_found_are_listed_and_count(index: Index):
    task = task_of(index, {"a": "parcel"}, {"a": {"no": 1.0, "4": 1.0}})
    assert (task.absent, task.documents) == (["no"], 2)
    (judged,) = judge(index, task, None, Asked(by="text"))
    assert judged.recall == 0.5 and judged.mrr == 1


@pytest.mark.parametrize(
    ("judgements", "told"),
    [
        ({"a": {"0": 1.0}, "x": {"0": 1.0}, "y": {"0": 1.0}}, "'x'"),
        ({"a": {"0": 0.0}}, "no query has a relevant document"),
        ({"a": {"u": 1.0, "v": 1.0}}, "'u'"),
    ],
)
def test_what_does_not_go_together_is_named(index: Index, judgements: dict[str, dict[str, float]], told: str):
    with pytest.raises(DataError, match=told):
        task_of(index, {"a": "river"}, judgements)
