"""Tasks of mteb on mteb's own data sets, from the Hugging Face hub or a copy of it: C-MTEB is 31 of them.

ReBA's Tables 2 to 5 report C-MTEB.
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b, file_digest
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

import numpy as np
import torch

from ..errors import InputError, MissingDataset
from ..tasks.catalogue import CMTEB, OFFICIAL
from ..tasks.rows import Folder, Hub, Source
from ..tasks.task import Array, Embedder, Loaded, Scores, Task
from .mteb import MtebModel, require_mteb

SEED = 42
"""mteb's default seed; ours is added to it, so that our seed 0 gives mteb's scores."""

CONSTANT = "all vectors are equal, so no score is defined"

TEXTS = ("sentence1", "sentence2", "text", "sentences")
"""mteb's names of columns that hold texts; other texts are embedded when mteb asks for them."""


@dataclass(frozen=True)
class MtebOfficial(Task):
    """A task of mteb, with its own data, settings and metrics.

    Args:
        name: name in results.
        official: mteb's name of the task.
        split: the split to evaluate; None = those that mteb evaluates, averaged.
    """

    official: str
    split: str | None = None

    group: ClassVar[str] = "mteb"
    metric: ClassVar[str] = "main_score"
    languages: ClassVar[tuple[str, ...]] = ("und",)
    libraries: ClassVar[tuple[str, ...]] = ("mteb", "datasets", "scikit-learn", "scipy")
    seeded: ClassVar[bool] = True

    def files(self) -> Sequence[str]:
        """The repository on the hub."""
        return (self.mteb_task().metadata.dataset["path"],)

    def digests(self, source: Source) -> Mapping[str, str]:
        """The commit that mteb asks the hub for; of a copy, a hash of its files.

        Raises:
            MissingDataset: the copy does not exist.
        """
        data = self.mteb_task().metadata.dataset
        copy = self._copy(source)
        return {data["path"]: data.get("revision", "main") if copy is None else _digest(copy)}

    def load(self, source: Source) -> LoadedOfficial:
        """Load the data by mteb's own loader.

        Args:
            source: the `Hub`; or a folder with copies of repositories under their names, as "C-MTEB/ATEC".

        Raises:
            MissingExtra: mteb is not installed.
            MissingDataset: the data cannot be loaded; the message says how to get them.
        """
        task, copy = self.mteb_task(), self._copy(source)
        if copy is not None:
            data = {**task.metadata.dataset, "path": str(copy)}
            task.metadata = task.metadata.model_copy(update={"dataset": data})
        try:
            with quiet(), untouched_seeds():
                task.load_data()
        except Exception as e:  # of datasets, the hub, the network, or mteb's own reading: all mean that there is none
            raise MissingDataset(f"{self.official} cannot be loaded: {_first_line(e)}; {self._advice()}") from None
        return LoadedOfficial(self, task)

    def mteb_task(self, seed: int = 0) -> Any:
        """The task as an object of mteb, without data.

        Args:
            seed: added to mteb's own.

        Raises:
            MissingExtra: mteb is not installed.
            InputError: mteb has no such task, or it is not about texts.
        """
        require_mteb()
        import mteb

        with untouched_seeds():
            try:
                kind = type(mteb.get_task(self.official))
            except KeyError as e:
                close = str(e).rpartition("Did you mean: ")[2].split("'")[1::2] if "Did you mean" in str(e) else []
                hint = f" (did you mean {close[0]!r}?)" if close else ""
                listed = "python -m mteb available-tasks prints all"
                raise InputError(f"mteb has no task {self.official!r}{hint}: {listed}") from None
            if set(kind.metadata.modalities) != {"text"}:
                raise InputError(
                    f"mteb's {self.official} is about {', '.join(kind.metadata.modalities)}, not text alone"
                )
            task = kind(seed=SEED + seed)
        return task.filter_eval_splits([self.split]) if self.split else task

    def _copy(self, source: Source) -> Path | None:
        """The folder of the copy; None for the hub itself."""
        if isinstance(source, Hub) and source.mirror is None:
            return None
        root = source.root if isinstance(source, Folder) else getattr(source, "mirror", Path())
        folder: Path = root / self.files()[0]
        if not folder.is_dir():
            raise MissingDataset(f"{folder} does not exist: {self._advice()}")
        return folder

    def _advice(self) -> str:
        data = self.mteb_task().metadata.dataset
        revision = f" --revision {data['revision']}" if data.get("revision") else ""
        path = data["path"]
        return (
            f"--data hub downloads it, and `hf download {path} --repo-type dataset{revision} --local-dir DIR/{path}` "
            "makes a copy for --data DIR"
        )


@dataclass(frozen=True)
class LoadedOfficial(Loaded):
    """A task of mteb with its data in memory.

    Attributes:
        task: the task.
        loaded: mteb's object, with its data.
    """

    task: MtebOfficial
    loaded: Any

    def texts(self) -> Sequence[str]:
        """The texts of the evaluated splits, without duplicates; training texts are drawn later."""
        parts = [part for split in self.loaded.eval_splits for part in self.parts(split)]
        return list(dict.fromkeys(text for part in parts for text in _texts(part)))

    def parts(self, split: str) -> list[Any]:
        """The data of a split, by subset."""
        data = self.loaded.dataset
        of_subsets = [data.get(subset, data) for subset in self.loaded.hf_subsets]
        return [part[split] for part in of_subsets if split in part]

    def score(self, embedder: Embedder, seed: int) -> Scores:
        """``mteb.evaluate`` on an encoder, in this process; splits and subsets are averaged, as mteb does."""
        import mteb

        task = self.task.mteb_task(seed)
        task.metadata, task.dataset, task.data_loaded = self.loaded.metadata, self.loaded.dataset, True
        checked = ConstantCheck(embedder)
        with quiet(), untouched_seeds():
            (result,) = mteb.evaluate(
                model_of(checked, embedder), [task], co2_tracker=False, cache=None, show_progress_bar=False,
                encode_kwargs={"show_progress_bar": False},
            ).task_results  # fmt: skip
        found = [scores for parts in result.scores.values() for scores in parts]
        metrics = averaged(found)
        metrics["main_score"] = fmean(float(scores["main_score"]) for scores in found)
        if checked.constant:
            metrics = dict.fromkeys(metrics, math.nan)
        return Scores(metrics[self.task.metric], metrics, notes=(CONSTANT,) if checked.constant else ())


class ConstantCheck:
    """An embedder that records whether all its vectors so far were equal."""

    def __init__(self, embedder: Embedder) -> None:
        self.embedder, self.constant = embedder, True
        self.first: Array | None = None

    def encode(self, texts: Sequence[str], /, **options: Any) -> Array:
        """Sentence vectors (n, D)."""
        vectors = self.embedder.encode(texts, **options)
        self.first = vectors[0] if self.first is None else self.first
        self.constant = self.constant and bool((vectors == self.first).all())
        return vectors

    def encode_words(self, texts: Sequence[str], words: Sequence[Any], /) -> Any:
        """Word vectors."""
        return self.embedder.encode_words(texts, words)


def model_of(checked: ConstantCheck, embedder: Embedder) -> MtebModel:
    """The model that mteb scores: vectors of `checked`, prompts and similarity of the embedder that it wraps."""
    from mteb.models.model_meta import ModelMeta

    prompts = getattr(embedder, "prompts", None) or {}
    return MtebModel(checked, ModelMeta.create_empty(), prompts, getattr(embedder, "similarity_fn_name", "cosine"))


@contextmanager
def untouched_seeds() -> Iterator[None]:
    """A context that restores the random states of `random`, numpy and torch, which mteb seeds with every task."""
    kept = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])  # noqa: NPY002
        torch.set_rng_state(kept[2])


@contextmanager
def quiet() -> Iterator[None]:
    """A context without progress bars of datasets and warnings of undefined correlations, which a note reports."""
    import datasets

    shown = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"scipy|sklearn|mteb")
            warnings.filterwarnings("ignore", message=".*(constant|precision loss|ill-defined).*")
            yield
    finally:
        if not shown:
            datasets.enable_progress_bars()


def is_reported(metric: str) -> bool:
    """Whether a score of mteb is reported: not the duplicate of the main score, nor retrieval's confidence curves."""
    return metric not in ("main_score", "hf_subset") and not metric.startswith("nauc")


def averaged(found: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The metrics that all subsets have, averaged over them.

    >>> averaged([{"a": 1, "hf_subset": "x"}, {"a": 2.0, "b": 3}])
    {'a': 1.5}
    """
    names = [n for n, v in found[0].items() if isinstance(v, int | float) and is_reported(n)]
    return {n: fmean(float(scores[n]) for scores in found) for n in names if all(n in scores for scores in found)}


def _texts(part: Any) -> Iterator[str]:
    if "corpus" in part:
        yield from part["queries"]["text"]
        for document in part["corpus"]:  # as mteb embeds it
            yield f"{document.get('title') or ''} {document['text']}".strip()
        return
    for column in TEXTS:
        if column in part.column_names:
            for value in part[column]:
                yield from [value] if isinstance(value, str) else [v for v in value if isinstance(v, str)]


def _digest(folder: Path) -> str:
    """A hash of the names and contents of the files in a folder, without hidden ones."""
    whole = blake2b(digest_size=16)
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = path.relative_to(folder)
        if not any(part.startswith(".") for part in name.parts):
            with path.open("rb") as file:
                whole.update(f"{name.as_posix()}\0{file_digest(file, 'sha256').hexdigest()}\n".encode())
    return whole.hexdigest()


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


class OfficialClassification(MtebOfficial):
    """Classification of C-MTEB."""

    group, metric, languages = "cmteb-classification", "accuracy", ("cmn-Hans",)


class OfficialClustering(MtebOfficial):
    """Clustering of C-MTEB."""

    group, metric, languages = "cmteb-clustering", "v_measure", ("cmn-Hans",)


class OfficialPairs(MtebOfficial):
    """Pair classification of C-MTEB."""

    group, metric, languages, seeded = "cmteb-pair", "max_accuracy", ("cmn-Hans",), False


class OfficialReranking(MtebOfficial):
    """Reranking of C-MTEB."""

    group, metric, languages, seeded = "cmteb-reranking", "map_at_1000", ("cmn-Hans",), False


class OfficialRetrieval(MtebOfficial):
    """Retrieval of C-MTEB."""

    group, metric, languages, seeded = "cmteb-retrieval", "ndcg_at_10", ("cmn-Hans",), False


class OfficialSimilarity(MtebOfficial):
    """STS of C-MTEB."""

    group, metric, languages, seeded = "cmteb-sts", "cosine_spearman", ("cmn-Hans",), False


KINDS = (
    OfficialClassification, OfficialClustering, OfficialPairs, OfficialReranking, OfficialRetrieval, OfficialSimilarity,
)  # fmt: skip

THEIRS = {"CMedQAv1": "CMedQAv1-reranking", "CMedQAv2": "CMedQAv2-reranking", "STSB-zh": "STSB"}
"""mteb's names where they differ from those of the tables."""

ON_TEST = ("ATEC", "BQ", "STSB-zh")
"""Data sets of whose two splits C-MTEB evaluates only "test" (mteb's benchmark "MTEB(cmn, v1)"). Of
MultilingualSentiment it averages both."""

TASKS: tuple[MtebOfficial, ...] = tuple(
    kind(name + OFFICIAL, THEIRS.get(name, name), "test" if name in ON_TEST else None)
    for kind in KINDS
    for name in CMTEB[kind.group].split()
)
"""C-MTEB. The ending of the names tells results from those of local files, which have the same names."""


def official(name: str) -> MtebOfficial:
    """A task of mteb by mteb's own name; those of C-MTEB are the ones in `TASKS`.

    Raises:
        MissingExtra: mteb is not installed.
        InputError: mteb has no such task, or it is not about texts.

    >>> official("STSB").name
    'STSB-zh.mteb'
    """
    known = next((task for task in TASKS if task.official == name), None)
    task = known or MtebOfficial(name + OFFICIAL, name)
    task.mteb_task()
    return task


def known_by(name: str) -> tuple[Task, ...]:
    """The tasks that a name on the command line may mean: the one of mteb for "mteb:NAME", else all that are listed.

    Raises:
        MissingExtra: mteb is not installed.
        InputError: mteb has no such task, or it is not about texts.
    """
    if name.lower().startswith("mteb:"):
        return (official(name[5:]),)
    return TASKS
