"""Several encoders on several tasks. What is finished is kept and not run again, whatever ends the run."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..errors import DataError, NotFitted
from . import results
from .candidates import Candidate, Fitting, file_name
from .results import Result
from .rows import Source
from .task import Loaded, Scores, Task, as_read
from .vectors import Lookup


@dataclass(frozen=True)
class Job:
    """A task that is to be run.

    Args:
        task: with its options.
        source: where its data lie.
        label: what its results are called; None = by its name.
    """

    task: Task
    source: Source
    label: str | None = None

    @property
    def name(self) -> str:
        """What its results are called."""
        return self.label or self.task.name

    def seeds(self, asked: Sequence[int]) -> tuple[int, ...]:
        """The seeds that it is run with: 0 where none matters."""
        return tuple(asked) if self.task.seeded else (0,)


@dataclass(frozen=True)
class Failure:
    """A task that could not be run.

    Attributes:
        task: what its results would be called.
        error: why.
        candidate: by which encoder; None where none could.
    """

    task: str
    error: Exception
    candidate: str | None = None


class ProgressListener:
    """Hears how far a run is; this one does not listen."""

    def task(self, name: str, number: int, total: int) -> None:
        """A task begins, one of those that are not finished yet."""

    def texts(self, count: int) -> None:
        """So many vectors are to be made for it."""

    def done(self, count: int) -> None:
        """So many more are."""

    def scored(self, result: Result, candidate: str) -> None:
        """A task is finished."""

    def failed(self, failure: Failure) -> None:
        """A task is not."""


@dataclass(frozen=True)
class _Plan:
    """What is left of a task: the encoders, and the scores that are there already, by encoder."""

    job: Job
    revision: str
    keys: Mapping[str, str]
    kept: Mapping[str, Mapping[int, Scores]]
    left: Sequence[Candidate]


@dataclass
class Evaluation:
    """A run, and what came of it.

    Args:
        candidates: the encoders.
        folder: of this model's results; a folder per encoder is made in it.
        told: hears how far it is.
        about: what every result says of the model.
        seeds: of tasks with folds, classifiers or clusterings.
        fitting: what steps that must be fitted are fitted on.

    Attributes:
        results: what is finished, now or before, by encoder and task, in the order asked for.
        failures: what is not.
    """

    candidates: Sequence[Candidate]
    folder: Path
    told: ProgressListener = field(default_factory=ProgressListener)
    about: Mapping[str, Any] = field(default_factory=dict)
    seeds: Sequence[int] = (0,)
    fitting: Fitting | None = None
    results: dict[tuple[str, str], Result] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    _fitted: dict[str, Candidate] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what can never run."""
        for c in self.candidates:
            if c.unfitted and self.fitting is None:
                raise NotFitted(f"{c.name} must be fitted: give texts with --fit FILE, or --fit target")

    def run(self, jobs: Sequence[Job]) -> None:
        """Run what is not finished yet. One task's error does not end the others."""
        self.folder.mkdir(parents=True, exist_ok=True)
        plans = [plan for job in jobs if (plan := self._plan(job)) is not None and plan.left]
        for number, plan in enumerate(plans, 1):
            self.told.task(plan.job.name, number, len(plans))
            self._run(plan)
        for c in self.candidates:
            c.forward.close()
        ordered = [(c.name, job.name) for c in self.candidates for job in jobs]
        self.results = {at: self.results[at] for at in ordered if at in self.results}

    def path(self, candidate: str, job: Job) -> Path:
        """Where a result lies."""
        return self.folder / file_name(candidate) / f"{file_name(job.name)}.json"

    def _plan(self, job: Job) -> _Plan | None:
        """What is left of a task; None where its data are not there."""
        try:
            digests = {name: job.source.digest(name) for name in job.task.files()}
            keys = {c.name: results.key(job.task, digests, c.digest, self._fit(c)) for c in self.candidates}
        except Exception as e:
            self._fail(job, e)
            return None
        kept, left = {}, []
        for c in self.candidates:
            found = self._finished(c.name, job, keys[c.name])
            kept[c.name] = {} if found is None else found.scores
            if found is not None and set(job.seeds(self.seeds)) <= set(found.scores):
                self._found(job, c.name, found)
            else:
                left.append(c)
        return _Plan(job, results.revision(digests), keys, kept, left)

    def _fit(self, candidate: Candidate) -> str | None:
        return self.fitting.digest if candidate.unfitted and self.fitting else None

    def _finished(self, candidate: str, job: Job, key: str) -> Result | None:
        try:
            found = results.read(self.path(candidate, job))
        except DataError:
            return None
        return found if found.key == key else None

    def _found(self, job: Job, candidate: str, result: Result) -> None:
        asked = {seed: result.scores[seed] for seed in job.seeds(self.seeds)}
        self.results[candidate, job.name] = replace(result, scores=asked)

    def _run(self, plan: _Plan) -> None:
        try:
            loaded = plan.job.task.load(plan.job.source)
            texts = list(dict.fromkeys(as_read(t) for t in loaded.texts()))
        except Exception as e:
            self._fail(plan.job, e)
            return
        forwards = {id(c.forward): c.forward for c in plan.left}.values()
        self.told.texts(sum(len(f.missing(texts)) * len(f.names) for f in forwards))
        for forward in forwards:
            members = [c for c in plan.left if c.forward is forward]
            try:
                with self._timed(plan.job, embedding=list(forward.names)):
                    forward.add(texts, self.told.done)
            except Exception as e:
                self._fail(plan.job, e, *members)
                continue
            for c in members:
                try:
                    self._score(plan, c, loaded, texts)
                except Exception as e:
                    self._fail(plan.job, e, c)

    def _score(self, plan: _Plan, candidate: Candidate, loaded: Loaded, texts: Sequence[str]) -> None:
        ready = self._ready(candidate, texts)
        lookup = Lookup(ready.embedder, ready.forward, ready.raw, ready.post)
        scores = dict(plan.kept[candidate.name])
        for seed in plan.job.seeds(self.seeds):
            if seed not in scores:
                with self._timed(plan.job, scoring=candidate.name, seed=seed):
                    scores[seed] = loaded.score(lookup, seed)
                result = self._result(plan, candidate, dict(sorted(scores.items())))
                results.write(self.path(candidate.name, plan.job), result)
        if ready.forward is not candidate.forward and self.fitting is not None and self.fitting.texts is None:
            ready.forward.close()
        self._found(plan.job, candidate.name, result)
        self.told.scored(self.results[candidate.name, plan.job.name], candidate.name)

    def _ready(self, candidate: Candidate, texts: Sequence[str]) -> Candidate:
        """The encoder with its steps fitted: once on given texts, or anew on each task's own."""
        if not candidate.unfitted or self.fitting is None:
            return candidate
        if self.fitting.texts is None:
            return candidate.fit(texts)
        if candidate.name not in self._fitted:
            self._fitted[candidate.name] = candidate.fit(self.fitting.texts)
        return self._fitted[candidate.name]

    def _result(self, plan: _Plan, candidate: Candidate, scores: Mapping[int, Scores]) -> Result:
        task = plan.job.task
        about = {
            **self.about,
            **candidate.about,
            "name": candidate.name,
            "encoder": candidate.digest,
            "fit": self._fit(candidate),
            "options": results.options(task),
            "versions": results.versions(task),
        }
        return Result(
            plan.job.name, task.group, task.metric, task.languages, plan.keys[candidate.name], plan.revision,
            scores, about,
        )  # fmt: skip

    def _fail(self, job: Job, error: Exception, *members: Candidate) -> None:
        for failure in [Failure(job.name, error, c.name) for c in members] or [Failure(job.name, error)]:
            self.failures.append(failure)
            self.told.failed(failure)

    @contextmanager
    def _timed(self, job: Job, **what: Any) -> Iterator[None]:
        """Seconds go to a file of their own: results are the same whenever they are made."""
        start = time.perf_counter()
        yield
        line = {"task": job.name, **what, "seconds": round(time.perf_counter() - start, 3)}
        with (self.folder / "times.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
