"""The six categories of C-MTEB on rows of one's own: what is read, how it is checked, and how mteb is given it.

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
    """Semantic textual similarity: rank correlation of cosines with the scores of pairs.

    Rows: sentence1, sentence2, score.
    """

    kind, base, metric, paper_metric = "STS", "AbsTaskSTS", "cosine_spearman", "cosine_pearson"

    def read(self, source: Source, revision: str) -> MtebLoaded:
        """The pairs."""
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
    """Do two sentences mean the same: accuracy at the best threshold, of the best of five similarities.

    Rows: sentence1, sentence2, label (0 or 1).
    """

    kind, base, metric = "PairClassification", "AbsTaskPairClassification", "max_accuracy"
    paper_metric = "cosine_accuracy"

    def read(self, source: Source, revision: str) -> MtebLoaded:
        """The pairs."""
        rows = source.rows(self.file, {**PAIR, "label": binary})
        different([row["label"] for row in rows], "label", self.file)
        found = columns(rows)
        found["labels"] = found.pop("label")
        return MtebLoaded(self, revision, {self.split: found}, both(rows), len(rows))


@dataclass(frozen=True)
class Classification(MtebTask):
    """A logistic regression on 32 texts of each class, ten times (IFlyTek: five): accuracy.

    Rows of ``file + ".train"`` and ``file + ".test"``: text, label.
    """

    kind, base, metric, paper_metric = "Classification", "AbsTaskClassification", "accuracy", "accuracy"
    seeded = True

    def files(self) -> Sequence[str]:
        """What is learned from, and what is scored."""
        return (f"{self.file}.train", f"{self.file}.test")

    def settings(self) -> Mapping[str, Any]:
        """As C-MTEB's classifications."""
        return {"samples_per_label": 32}

    def read(self, source: Source, revision: str) -> MtebLoaded:
        """Both files, the labels numbered in the order of their names."""
        train, test = (source.rows(file, {"text": text, "label": label}) for file in self.files())
        different([row["label"] for row in train], "label", self.files()[0])
        different([row["label"] for row in test], "label", self.files()[1])
        number_of = {name: i for i, name in enumerate(sorted({row["label"] for row in (*train, *test)}))}
        splits = {"train": train, self.split: test}
        numbered = {s: [{**row, "label": number_of[row["label"]]} for row in rows] for s, rows in splits.items()}
        asked = [row["text"] for row in test]  # which of the others are learned from, mteb draws
        return LoadedClasses(self, revision, {s: columns(rows) for s, rows in numbered.items()}, asked, len(test))


class LoadedClasses(MtebLoaded):
    """Texts and their classes."""

    predicts = True

    def items(self, predicted: Any) -> Mapping[str, NDArray[Any]]:
        """How often each text was classified rightly."""
        gold = np.asarray(self.splits[self.task.split]["label"])
        return {"correct": (np.asarray(predicted) == gold).mean(0)}


class Clustering(MtebTask):
    """k-means in mini-batches, as many clusters as labels, over one set: V-measure.

    C-MTEB averages over ten sets. Rows: text, label.
    """

    kind, base, metric, paper_metric = "Clustering", "AbsTaskClusteringLegacy", "v_measure", "v_measure"
    seeded = True

    def read(self, source: Source, revision: str) -> MtebLoaded:
        """The texts as one set."""
        rows = source.rows(self.file, {"text": text, "label": label})
        different([row["label"] for row in rows], "label", self.file)
        found = columns(rows)
        one = {"sentences": [found["text"]], "labels": [found["label"]]}
        return MtebLoaded(self, revision, {self.split: one}, found["text"], len(rows))


class Searched(MtebLoaded):
    """A corpus, queries, and which documents answer which: retrieval, or reranking where candidates are given."""

    def dataset(self) -> Any:
        """By subset and split, as mteb's loader of retrieval tasks leaves it."""
        from datasets import Dataset

        found = dict(self.splits[self.task.split])
        corpus, queries = (Dataset.from_list(found[part]) for part in ("corpus", "queries"))
        candidates = {query: list(named) for query, named in found["candidates"]} or None
        relevant = {query: dict(graded) for query, graded in found["relevant"]}
        split = {"corpus": corpus, "queries": queries, "relevant_docs": relevant, "top_ranked": candidates}
        return {"default": {self.task.split: split}}


class Reranking(MtebTask):
    """Sort each query's own candidates: mean average precision.

    Rows: query, positive and negative (lists of texts). Candidates are named as mteb names them, for names break ties.
    """

    kind, base, metric, paper_metric = "Reranking", "AbsTaskRetrieval", "map_at_1000", "map_at_1000"

    def read(self, source: Source, revision: str) -> MtebLoaded:
        """The queries, each with its candidates."""
        rows = source.rows(self.file, {"query": text, "positive": texts, "negative": texts})
        corpus, queries, relevant, candidates = [], [], [], []
        for i, row in enumerate(rows):
            query = f"{self.split}_query{i}"
            graded = {}
            for grade, part, prefix in ((1, "positive", "apositive"), (0, "negative", "negative")):
                for j, found in enumerate(row[part]):
                    graded[f"{prefix}_{query}_{j:05}"] = grade
                    corpus.append({"id": f"{prefix}_{query}_{j:05}", "title": "", "text": found})
            queries.append({"id": query, "text": row["query"]})
            relevant.append((query, graded))
            candidates.append((query, list(graded)))
        found = {"corpus": corpus, "queries": queries, "relevant": relevant, "candidates": candidates}
        return Searched(self, revision, {self.split: found}, read_as(queries, corpus), len(queries) + len(corpus))


@dataclass(frozen=True)
class Retrieval(MtebTask):
    """Find the documents that answer a query: nDCG at 10.

    Three data sets in a folder: corpus (an identifier, text, perhaps title), queries (an identifier, text) and qrels
    (query, a document, score); rows with a "split" other than the task's are left out.

    Args:
        identifier: the field that names a document or a query.
        document: the field of qrels that names a document.
    """

    identifier: str = "_id"
    document: str = "corpus"

    kind, base, metric, paper_metric = "Retrieval", "AbsTaskRetrieval", "ndcg_at_10", "recall_at_1000"

    def files(self) -> Sequence[str]:
        """Corpus, queries, qrels."""
        return tuple(f"{self.file}/{part}" for part in ("corpus", "queries", "qrels"))

    def read(self, source: Source, revision: str) -> MtebLoaded:
        """The three data sets, and whether they fit together."""
        corpus_file, queries_file, qrels_file = self.files()
        documents = source.rows(corpus_file, {self.identifier: once(), "text": text}, {"title": text})
        corpus = [{"id": r[self.identifier], "title": r["title"] or "", "text": r["text"]} for r in documents]
        asked = self._own(source.rows(queries_file, {self.identifier: once(), "text": text}, {"split": text}))
        queries = [{"id": r[self.identifier], "text": r["text"]} for r in asked]
        known = one_of({d["id"] for d in corpus}, "document of the corpus")
        fields = {"query": label, self.document: known, "score": grade}
        judged = self._own(source.rows(qrels_file, fields, {"split": text}))
        relevant = self._relevant(judged, [q["id"] for q in queries], qrels_file, queries_file)
        found: dict[str, list[Any]] = {"corpus": corpus, "queries": queries, "candidates": []}
        found["relevant"] = list(relevant.items())
        few = f"the corpus has {len(corpus)} documents: recall_at_1000 is 1, whatever the vectors"
        return Searched(
            self, revision, {self.split: found}, read_as(queries, corpus), len(queries) + len(corpus),
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
    """Rows of equal fields, by field."""
    return {name: [row[name] for row in rows] for name in rows[0]}


def both(rows: Sequence[Row]) -> list[str]:
    """The sentences of pairs."""
    return [row[side] for row in rows for side in PAIR]


def read_as(queries: Sequence[Row], corpus: Sequence[Row]) -> list[str]:
    """Queries and documents as mteb reads them: the title in front, stripped."""
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
    """An identifier that no row before has."""
    seen: set[str] = set()

    def check(value: Any) -> str:
        if (name := label(value)) in seen:
            raise ValueError(f"is {name!r:.40}, which a row before has too")
        seen.add(name)
        return name

    return check


def one_of(names: set[str], what: str) -> Callable[[Any], str]:
    """One of the identifiers that are there."""

    def check(value: Any) -> str:
        if (name := label(value)) not in names:
            raise ValueError(f"is {name!r:.40}, which is no {what}")
        return name

    return check
