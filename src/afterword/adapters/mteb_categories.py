"""The six categories of C-MTEB on local files: fields, checks, and the form in which mteb gets them.

ReBA evaluates on them; Table 3's caption names the metric of each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..tasks.rows import Check, Row, Source, label, number, text, texts
from .mteb_local import MtebLoaded, MtebTask, different

PAIR = {"sentence1": text, "sentence2": text}


class Similarity(MtebTask):
    """Semantic textual similarity: the rank correlation between cosines and the scores of pairs.

    Rows: sentence1, sentence2, score.
    """

    kind, base, metric, paper_metric = "STS", "AbsTaskSTS", "cosine_spearman", "cosine_pearson"

    def read(self, source: Source, revision: str) -> MtebLoaded:
        """Read the pairs."""
        rows = source.rows(self.file, {**PAIR, "score": number})
        different([row["score"] for row in rows], "score", self.file)
        return LoadedPairs(self, revision, {self.split: columns(rows)}, both(rows), len(rows))


class LoadedPairs(MtebLoaded):
    """Pairs and their scores."""

    predicts = True

    def items(self, predicted: Any) -> Mapping[str, NDArray[Any]]:
        """Scores and cosines of the pairs."""
        gold = np.asarray(self.splits[self.task.split]["score"], np.float64)
        return {"gold": gold, "similarity": np.asarray(predicted["cosine_scores"], np.float64)}


class PairClassification(MtebTask):
    """Pair classification (same meaning or not): accuracy at the best threshold, for the best of five similarities.

    Rows: sentence1, sentence2, label (0 or 1).
    """

    kind, base, metric = "PairClassification", "AbsTaskPairClassification", "max_accuracy"
    paper_metric = "cosine_accuracy"

    def read(self, source: Source, revision: str) -> MtebLoaded:
        """Read the pairs."""
        rows = source.rows(self.file, {**PAIR, "label": binary})
        different([row["label"] for row in rows], "label", self.file)
        data = columns(rows)
        data["labels"] = data.pop("label")
        return MtebLoaded(self, revision, {self.split: data}, both(rows), len(rows))


@dataclass(frozen=True)
class Classification(MtebTask):
    """Classification: accuracy of a logistic regression on 32 texts of each class, over ten draws (IFlyTek: five).

    Rows of ``file + ".train"`` and ``file + ".test"``: text, label.
    """

    kind, base, metric, paper_metric = "Classification", "AbsTaskClassification", "accuracy", "accuracy"
    seeded = True

    def files(self) -> Sequence[str]:
        """The training rows and the test rows."""
        return (f"{self.file}.train", f"{self.file}.test")

    def settings(self) -> Mapping[str, Any]:
        """The number of training texts per class, as in C-MTEB."""
        return {"samples_per_label": 32}

    def read(self, source: Source, revision: str) -> MtebLoaded:
        """Read both files, with labels numbered in alphabetical order."""
        train, test = (source.rows(file, {"text": text, "label": label}) for file in self.files())
        different([row["label"] for row in train], "label", self.files()[0])
        different([row["label"] for row in test], "label", self.files()[1])
        number_of = {name: i for i, name in enumerate(sorted({row["label"] for row in (*train, *test)}))}
        splits = {"train": train, self.split: test}
        numbered = {s: [{**row, "label": number_of[row["label"]]} for row in rows] for s, rows in splits.items()}
        asked = [row["text"] for row in test]  # mteb draws the training texts later
        return LoadedClasses(self, revision, {s: columns(rows) for s, rows in numbered.items()}, asked, len(test))


class LoadedClasses(MtebLoaded):
    """Texts and their classes."""

    predicts = True

    def items(self, predicted: Any) -> Mapping[str, NDArray[Any]]:
        """The share of draws in which each text was classified correctly."""
        gold = np.asarray(self.splits[self.task.split]["label"])
        return {"correct": (np.asarray(predicted) == gold).mean(0)}


class Clustering(MtebTask):
    """Clustering: V-measure of mini-batch k-means on one set, with as many clusters as labels.

    C-MTEB averages over ten sets. Rows: text, label.
    """

    kind, base, metric, paper_metric = "Clustering", "AbsTaskClusteringLegacy", "v_measure", "v_measure"
    seeded = True

    def read(self, source: Source, revision: str) -> MtebLoaded:
        """Read the texts as one set."""
        rows = source.rows(self.file, {"text": text, "label": label})
        different([row["label"] for row in rows], "label", self.file)
        data = columns(rows)
        one_set = {"sentences": [data["text"]], "labels": [data["label"]]}
        return MtebLoaded(self, revision, {self.split: one_set}, data["text"], len(rows))


class LoadedSearch(MtebLoaded):
    """A corpus, queries and relevance judgements: retrieval, or reranking if candidates are given."""

    def dataset(self) -> Any:
        """The data by subset and split, as mteb's loader of retrieval tasks returns them."""
        from datasets import Dataset

        parts = dict(self.splits[self.task.split])
        corpus, queries = (Dataset.from_list(parts[part]) for part in ("corpus", "queries"))
        candidates = {query: list(named) for query, named in parts["candidates"]} or None
        relevant = {query: dict(graded) for query, graded in parts["relevant"]}
        split = {"corpus": corpus, "queries": queries, "relevant_docs": relevant, "top_ranked": candidates}
        return {"default": {self.task.split: split}}


class Reranking(MtebTask):
    """Reranking of each query's own candidates: mean average precision.

    Rows: query, positive and negative (lists of texts). Candidates get mteb's identifiers, since these break ties.
    """

    kind, base, metric, paper_metric = "Reranking", "AbsTaskRetrieval", "map_at_1000", "map_at_1000"

    def read(self, source: Source, revision: str) -> MtebLoaded:
        """Read the queries with their candidates."""
        rows = source.rows(self.file, {"query": text, "positive": texts, "negative": texts})
        corpus, queries, relevant, candidates = [], [], [], []
        for i, row in enumerate(rows):
            query = f"{self.split}_query{i}"
            graded = {}
            for grade, part, prefix in ((1, "positive", "apositive"), (0, "negative", "negative")):
                for j, document in enumerate(row[part]):
                    graded[f"{prefix}_{query}_{j:05}"] = grade
                    corpus.append({"id": f"{prefix}_{query}_{j:05}", "title": "", "text": document})
            queries.append({"id": query, "text": row["query"]})
            relevant.append((query, graded))
            candidates.append((query, list(graded)))
        parts: dict[str, list[Any]] = {
            "corpus": corpus, "queries": queries, "relevant": relevant, "candidates": candidates,
        }  # fmt: skip
        return LoadedSearch(self, revision, {self.split: parts}, read_as(queries, corpus), len(queries) + len(corpus))


@dataclass(frozen=True)
class Retrieval(MtebTask):
    """Retrieval of the documents that answer a query: nDCG@10.

    Three data sets in a folder: corpus (an identifier, text, optionally title), queries (an identifier, text) and qrels
    (query, a document, score). Rows with a "split" other than the task's are ignored.

    Args:
        identifier: the field with the identifier of a document or a query.
        document: the field of qrels with the identifier of a document.
    """

    identifier: str = "_id"
    document: str = "corpus"

    kind, base, metric, paper_metric = "Retrieval", "AbsTaskRetrieval", "ndcg_at_10", "recall_at_1000"

    def files(self) -> Sequence[str]:
        """Corpus, queries, qrels."""
        return tuple(f"{self.file}/{part}" for part in ("corpus", "queries", "qrels"))

    def read(self, source: Source, revision: str) -> MtebLoaded:
        """Read the three data sets, and check that they fit together."""
        corpus_file, queries_file, qrels_file = self.files()
        documents = source.rows(corpus_file, {self.identifier: once(), "text": text}, {"title": text})
        corpus = [{"id": r[self.identifier], "title": r["title"] or "", "text": r["text"]} for r in documents]
        asked = self._own(source.rows(queries_file, {self.identifier: once(), "text": text}, {"split": text}))
        queries = [{"id": r[self.identifier], "text": r["text"]} for r in asked]
        known = one_of({d["id"] for d in corpus}, "document of the corpus")
        fields = {"query": label, self.document: known, "score": grade}
        judged = self._own(source.rows(qrels_file, fields, {"split": text}))
        relevant = self._relevant(judged, [q["id"] for q in queries], qrels_file, queries_file)
        parts: dict[str, list[Any]] = {"corpus": corpus, "queries": queries, "candidates": []}
        parts["relevant"] = list(relevant.items())
        few = f"the corpus has {len(corpus)} documents: recall_at_1000 is 1, whatever the vectors"
        return LoadedSearch(
            self, revision, {self.split: parts}, read_as(queries, corpus), len(queries) + len(corpus),
            (few,) if len(corpus) <= 1000 else (),
        )  # fmt: skip

    def _own(self, rows: Sequence[Row]) -> list[Row]:
        return [row for row in rows if row["split"] in (None, self.split)]

    def _relevant(
        self, judged: Sequence[Row], queries: Sequence[str], qrels: str, where: str
    ) -> dict[str, dict[str, int]]:
        relevant: dict[str, dict[str, int]] = {query: {} for query in queries}
        for row in judged:
            if row["query"] not in relevant:
                raise DataError(f"{qrels}: the query {row['query']!r:.40} is not in {where}")
            relevant[row["query"]][row[self.document]] = row["score"]
        without = [query for query, graded in relevant.items() if not any(graded.values())]
        if without or not relevant:
            raise DataError(
                f"{qrels}: {len(without)} of {len(relevant)} queries of {where} have no relevant document"
                + (f", {without[0]!r:.40} for one" if without else f": none is of the split {self.split!r}")
            )
        return relevant


def columns(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """Rows with equal fields as columns, by field."""
    return {name: [row[name] for row in rows] for name in rows[0]}


def both(rows: Sequence[Row]) -> list[str]:
    """The sentences of all pairs."""
    return [row[side] for row in rows for side in PAIR]


def read_as(queries: Sequence[Row], corpus: Sequence[Row]) -> list[str]:
    """Queries and documents as mteb embeds them: a document's title comes before its text, stripped."""
    return [q["text"] for q in queries] + [f"{d['title']} {d['text']}".strip() for d in corpus]


def binary(value: Any) -> int:
    """0 or 1."""
    if label(value) not in ("0", "1"):
        raise ValueError(f"is {value!r:.40}, not 0 or 1")
    return int(value)


def grade(value: Any) -> int:
    """A whole number from 0."""
    if number(value) < 0 or number(value) != int(number(value)):
        raise ValueError(f"is {value!r:.40}, not a whole number from 0")
    return int(number(value))


def once() -> Check:
    """A check that an identifier is in no earlier row."""
    seen: set[str] = set()

    def check(value: Any) -> str:
        if (name := label(value)) in seen:
            raise ValueError(f"is {name!r:.40}, which a row before has too")
        seen.add(name)
        return name

    return check


def one_of(names: set[str], what: str) -> Callable[[Any], str]:
    """A check that an identifier is one of `names`."""

    def check(value: Any) -> str:
        if (name := label(value)) not in names:
            raise ValueError(f"is {name!r:.40}, which is no {what}")
        return name

    return check
