"""What is kept of an evaluation: a file per task in the form of mteb's TaskResult, and its items beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from io import BytesIO
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, MissingExtra
from ..files.atomic import atomic_file
from ..methods.code_hash import code_hash
from .task import Scores, Task

Items = Mapping[str, NDArray[Any]]

SPLIT = "test"  # how mteb's form calls what was scored


@dataclass(frozen=True)
class Result:
    """A finished task of one encoder.

    Attributes:
        task: what the file is called, as in "STS12".
        group: of the task.
        metric: the name of the main score.
        languages: as mteb writes them, "eng-Latn".
        key: a hash of everything the scores depend on but the seed.
        revision: a hash of the data.
        scores: by seed; under 0 where no seed matters.
        about: what else a reader wants to know: model, method, options, versions.
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
        """The main score, its mean over seeds."""
        return fmean(s.main for s in self.scores.values())

    def metric_named(self, name: str) -> float | None:
        """Another of its scores, its mean over seeds; None where there is none of this name."""
        found = [s.metrics.get(name) for s in self.scores.values()]
        numbers = [value for value in found if isinstance(value, int | float)]
        return fmean(numbers) if numbers else None

    @property
    def deviation(self) -> float | None:
        """Its standard deviation over seeds (n - 1); None for one seed."""
        return stdev(s.main for s in self.scores.values()) if len(self.scores) > 1 else None

    @property
    def items(self) -> Items:
        """Per pair or question, what bootstrap draws from: over several seeds, the mean."""
        every = [s.items for s in self.scores.values()]
        return {name: _mean_of([items[name] for items in every]) for name in every[0]}

    @property
    def notes(self) -> tuple[str, ...]:
        """What the task had to say, each once."""
        return tuple(dict.fromkeys(note for s in self.scores.values() for note in s.notes))

    def to_json(self) -> dict[str, Any]:
        """mteb's TaskResult; what is ours stands under "afterword", which mteb passes over."""
        found: dict[str, Any] = {"main_score": self.main, **_mean([s.metrics for s in self.scores.values()])}
        if self.deviation is not None:
            found["main_score_std"] = self.deviation
        several = len(self.scores) > 1  # one seed's scores stand above
        seeds = {str(seed): {"main_score": s.main, **s.metrics} if several else {} for seed, s in self.scores.items()}
        return {
            "task_name": self.task,
            "dataset_revision": self.revision,
            "mteb_version": self.about.get("versions", {}).get("mteb"),
            "evaluation_time": None,
            "scores": {SPLIT: [{**found, "hf_subset": "default", "languages": list(self.languages)}]},
            "afterword": {
                "key": self.key, "group": self.group, "metric": self.metric, **self.about,
                "notes": list(self.notes), "seeds": seeds,
            },
        }  # fmt: skip


def _mean(every: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Metrics over seeds, nested ones too."""
    made: dict[str, Any] = {}
    for name, value in every[0].items():
        values = [metrics[name] for metrics in every]
        made[name] = _mean(values) if isinstance(value, Mapping) else value if len(every) == 1 else fmean(values)
    return made


def _mean_of(columns: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return columns[0] if len(columns) == 1 else np.mean(columns, axis=0)


def key(task: Task, digests: Mapping[str, str], encoder: str, fit: str | None = None) -> str:
    """A hash of everything that a task's scores depend on, but the seed; of a user's own task, its code too.

    Args:
        task: with its options.
        digests: of its data, by name.
        encoder: its fingerprint, library versions included.
        fit: a hash of what the encoder is fitted on.

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
    """The fields of a task, as JSON has them."""
    found: dict[str, Any] = json.loads(json.dumps(asdict(task), default=str))
    return found


def revision(digests: Mapping[str, str]) -> str:
    """One hash for all files of a task."""
    return blake2b(json.dumps(dict(digests), sort_keys=True).encode(), digest_size=16).hexdigest()


def versions(task: Task) -> dict[str, str]:
    """The versions of the libraries that score a task.

    Raises:
        MissingExtra: one is not installed.
    """
    found = {}
    for name in ("numpy", *task.libraries):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            raise MissingExtra(name, "evaluate") from None
    return found


def write(path: Path, result: Result) -> None:
    """Write a result and, in front of it, its items: what is interrupted leaves no result that looks finished.

    Args:
        path: ends in .json; the items go beside it, under .npz, where there are any.
        result: any.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = {
        f"{name}.{seed}": column for seed, scores in result.scores.items() for name, column in scores.items.items()
    }
    written = result.to_json()
    if columns:
        packed = BytesIO()
        np.savez_compressed(packed, **columns)  # type: ignore[arg-type]
        written["afterword"]["items"] = _digest(packed.getvalue())
        with atomic_file(path.with_suffix(".npz")) as file:
            file.write(packed.getvalue())
    with atomic_file(path) as file:
        file.write((json.dumps(written, indent=2, ensure_ascii=False, default=float) + "\n").encode())


def read(path: Path) -> Result:
    """Read what `write` wrote.

    Raises:
        DataError: it is not there, or not whole.
    """
    try:
        found = json.loads(path.read_text("utf-8"))
        ours, (scores,) = found["afterword"], found["scores"][SPLIT]
        items = _items(path.with_suffix(".npz"), ours["items"]) if "items" in ours else {}
        seeds = {
            int(seed): _scores(one or scores, items.get(seed, {}), tuple(ours["notes"]))
            for seed, one in ours["seeds"].items()
        }
        own = ("key", "group", "metric", "notes", "seeds", "items")
        return Result(
            found["task_name"], ours["group"], ours["metric"], tuple(scores["languages"]), ours["key"],
            found["dataset_revision"], seeds, {k: v for k, v in ours.items() if k not in own},
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise DataError(f"{path} is no whole result of `afterword evaluate`: {type(e).__name__}: {e}") from None


def _scores(found: Mapping[str, Any], items: Items, notes: tuple[str, ...]) -> Scores:
    metrics = {k: v for k, v in found.items() if k not in ("main_score", "hf_subset", "languages")}
    return Scores(found["main_score"], metrics, items, notes)


def _items(path: Path, digest: str) -> dict[str, dict[str, NDArray[Any]]]:
    """The columns by seed."""
    raw = path.read_bytes()
    if _digest(raw) != digest:
        raise ValueError(f"{path.name} belongs to another result")
    found: dict[str, dict[str, NDArray[Any]]] = {}
    with np.load(BytesIO(raw)) as columns:
        for name in columns.files:
            column, _, seed = name.rpartition(".")
            found.setdefault(seed, {})[column] = columns[name]
    return found


def _digest(raw: bytes) -> str:
    return blake2b(raw, digest_size=16).hexdigest()
