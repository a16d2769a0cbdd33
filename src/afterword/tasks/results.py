"""Results of an evaluation on disk: a JSON file per task in the form of mteb's TaskResult."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, MissingExtra
from ..files.atomic import atomic_file
from ..methods.custom import code_hash
from .task import Scores, Task

Items = Mapping[str, NDArray[Any]]

SPLIT = "test"  # the name of the split in mteb's format


@dataclass(frozen=True)
class Result:
    """The result of one encoder on one task.

    Attributes:
        task: name of the task and of the file, as in "STS12".
        group: group of the task.
        metric: name of the main score.
        languages: in mteb's form, "eng-Latn".
        key: a hash of everything that the scores depend on, except the seed.
        revision: a hash of the data.
        scores: scores by seed; under 0 if the task uses no seed.
        about: further information: model, method, options, versions.
    """

    task: str
    group: str
    metric: str
    languages: tuple[str, ...]
    key: str
    revision: str
    scores: Mapping[int, Scores]
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def main(self) -> float:
        """The main score, averaged over seeds."""
        return fmean(s.main for s in self.scores.values())

    def metric_named(self, name: str) -> float | None:
        """A metric averaged over seeds; None if there is none of this name."""
        values = [s.metrics.get(name) for s in self.scores.values()]
        numbers = [value for value in values if isinstance(value, int | float)]
        return fmean(numbers) if numbers else None

    @property
    def deviation(self) -> float | None:
        """The main score's sample standard deviation over seeds (n - 1); None for one seed."""
        return stdev(s.main for s in self.scores.values()) if len(self.scores) > 1 else None

    @property
    def items(self) -> Items:
        """The values per pair or question that the bootstrap draws from, averaged over seeds."""
        every = [s.items for s in self.scores.values()]
        return {name: _mean_of([items[name] for items in every]) for name in every[0]}

    @property
    def mean(self) -> Scores:
        """All seeds as one: the means of their scores and items."""
        return Scores(self.main, _mean([s.metrics for s in self.scores.values()]), self.items, self.notes)

    @property
    def notes(self) -> tuple[str, ...]:
        """The task's notes of all seeds, without duplicates."""
        return tuple(dict.fromkeys(note for s in self.scores.values() for note in s.notes))

    def to_json(self) -> dict[str, Any]:
        """A TaskResult of mteb; our own fields are under "afterword", which mteb ignores."""
        means: dict[str, Any] = {"main_score": self.main, **_mean([s.metrics for s in self.scores.values()])}
        if self.deviation is not None:
            means["main_score_std"] = self.deviation
        several = len(self.scores) > 1  # the scores of a single seed equal the means
        seeds = {str(seed): {"main_score": s.main, **s.metrics} if several else {} for seed, s in self.scores.items()}
        return {
            "task_name": self.task,
            "dataset_revision": self.revision,
            "mteb_version": self.about.get("versions", {}).get("mteb"),
            "evaluation_time": None,
            "scores": {SPLIT: [{**means, "hf_subset": "default", "languages": list(self.languages)}]},
            "afterword": {
                "key": self.key, "group": self.group, "metric": self.metric, **self.about,
                "notes": list(self.notes), "seeds": seeds,
                "items": {str(seed): dict(s.items) for seed, s in self.scores.items() if s.items},
            },
        }  # fmt: skip


def _mean(every: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Metrics averaged over seeds, also nested ones."""
    means: dict[str, Any] = {}
    for name, value in every[0].items():
        values = [metrics[name] for metrics in every]
        means[name] = _mean(values) if isinstance(value, Mapping) else value if len(every) == 1 else fmean(values)
    return means


def _mean_of(columns: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return columns[0] if len(columns) == 1 else np.mean(columns, axis=0)


def key(task: Task, digests: Mapping[str, str], encoder: str, fit: str | None = None) -> str:
    """A hash of everything that a task's scores depend on, except the seed; of a user's own task, its code too.

    Args:
        task: the task with its options.
        digests: hashes of its data, by name.
        encoder: the encoder's fingerprint, library versions included.
        fit: a hash of the texts that the encoder is fitted on.

    Raises:
        MissingExtra: a library of the task is not installed.
    """
    described = {
        "task": f"{type(task).__module__}.{type(task).__qualname__}", "options": asdict(task), "files": dict(digests),
        "encoder": encoder, "fit": fit, "versions": versions(task),
    }  # fmt: skip
    if code := code_hash(type(task)):
        described["code"] = code
    return blake2b(json.dumps(described, sort_keys=True, default=str).encode(), digest_size=16).hexdigest()


def options(task: Task) -> dict[str, Any]:
    """The fields of a task, as plain data for JSON."""
    plain: dict[str, Any] = json.loads(json.dumps(asdict(task), default=str))
    return plain


def revision(digests: Mapping[str, str]) -> str:
    """One hash for all files of a task."""
    return blake2b(json.dumps(dict(digests), sort_keys=True).encode(), digest_size=16).hexdigest()


def versions(task: Task) -> dict[str, str]:
    """The versions of the libraries that score a task.

    Raises:
        MissingExtra: a library is not installed.
    """
    by_name = {}
    for name in ("numpy", *task.libraries):
        try:
            by_name[name] = version(name)
        except PackageNotFoundError:
            raise MissingExtra(name, "evaluate") from None
    return by_name


def write(path: Path, result: Result) -> None:
    """Write a result atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        file.write((json.dumps(result.to_json(), ensure_ascii=False, default=_plain) + "\n").encode())


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else float(value)


def read(path: Path) -> Result:
    """Read a result that `write` wrote.

    Raises:
        DataError: it is missing or incomplete.
    """
    try:
        record = json.loads(path.read_text("utf-8"))
        ours, (scores,) = record["afterword"], record["scores"][SPLIT]
        items, notes = ours.get("items", {}), tuple(ours["notes"])
        seeds = {int(seed): _scores(m or scores, items.get(seed, {}), notes) for seed, m in ours["seeds"].items()}
        named = (record["task_name"], ours["group"], ours["metric"], *notes)
        if not seeds or not all(isinstance(text, str) for text in named):
            raise ValueError("a name or a note is not a text" if seeds else "it has no scores")
        own = ("key", "group", "metric", "notes", "seeds", "items")
        return Result(
            record["task_name"], ours["group"], ours["metric"], tuple(scores["languages"]), ours["key"],
            record["dataset_revision"], seeds, {k: v for k, v in ours.items() if k not in own},
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise DataError(f"{path} is not a complete result of `afterword evaluate`: {type(e).__name__}: {e}") from None


def _scores(record: Mapping[str, Any], items: Mapping[str, Any], notes: tuple[str, ...]) -> Scores:
    metrics = {k: v for k, v in record.items() if k not in ("main_score", "hf_subset", "languages")}
    return Scores(float(record["main_score"]), metrics, {k: np.array(v) for k, v in items.items()}, notes)


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """The settings that the encoders of two results differ in, by name.

    Args:
        a: `Result.about` of the one.
        b: `Result.about` of the other.

    >>> differences({"settings": {"max_length": 6, "dtype": "x"}}, {"settings": {"max_length": 9, "dtype": "x"}})
    {'max_length': ('6', '9')}
    """
    one, other = ({**about.get("settings", {}), "fit": about.get("fit")} for about in (a, b))
    return {k: (str(one.get(k))[:60], str(other.get(k))[:60]) for k in {**one, **other} if one.get(k) != other.get(k)}
