"""Run encoders on tasks. Finished results are saved at once; a later run skips them, however the first one ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..errors import DataError, NotFitted
from . import results
from .candidates import Candidate, Fitting, file_name
from .results import Result
from .task import Loaded, Scores, TaskRun, as_read
from .vectors import CachedEmbedder


@dataclass(frozen=True)
class Failure:
    """A task that failed.

    Attributes:
        task: name of the job.
        error: the exception.
        candidate: name of the encoder; None if the task failed for all.
    """

    task: str
    error: Exception
    candidate: str | None = None


class ProgressListener:
    """Progress listener of an evaluation; the default does nothing."""

    def task(self, name: str, number: int, total: int) -> None:
        """Called when a task starts, with its number among the unfinished ones."""

    def texts(self, count: int) -> None:
        """Called with the number of vectors that the task still needs."""

    def done(self, count: int) -> None:
        """Called with the number of vectors that were just computed."""

    def scored(self, result: Result, candidate: str) -> None:
        """Called when an encoder has finished a task."""

    def failed(self, failure: Failure) -> None:
        """Called when a task has failed."""

    def replaced(self, name: str) -> None:
        """Called when a task will run again because its data have changed since its saved result."""


@dataclass(frozen=True)
class _Plan:
    """The unfinished part of a job.

    Attributes:
        job: the job.
        revision: a hash of its data.
        keys: result keys by encoder.
        kept: saved scores by encoder and seed.
        left: the encoders that are not finished.
    """

    job: TaskRun
    revision: str
    keys: Mapping[str, str]
    kept: Mapping[str, Mapping[int, Scores]]
    left: Sequence[Candidate]


@dataclass
class Evaluation:
    """An evaluation of encoders on tasks, with its results.

    Args:
        candidates: the encoders.
        folder: folder of the model's results; it gets a folder per encoder.
        listener: is called on progress.
        about: information about the model that is saved with every result.
        seeds: random seeds for tasks with folds, classifiers or clusterings.
        fitting: the texts that unfitted methods and steps are fitted on.

    Attributes:
        results: results of this run and of earlier ones, by encoder and task, in the order of the jobs.
        failures: the tasks that failed.
    """

    candidates: Sequence[Candidate]
    folder: Path
    listener: ProgressListener = field(default_factory=ProgressListener)
    about: Mapping[str, Any] = field(default_factory=dict)
    seeds: Sequence[int] = (0,)
    fitting: Fitting | None = None
    results: dict[tuple[str, str], Result] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    _fitted: dict[str, Candidate] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Validate that unfitted candidates have texts to be fitted on."""
        for c in self.candidates:
            if c.unfitted and self.fitting is None:
                raise NotFitted(f"{c.name} must be fitted: give texts with --fit FILE, or --fit target")

    def check_earlier(self, jobs: Sequence[TaskRun]) -> None:
        """Refuse folders that hold results of another encoder, or of other settings.

        A custom method keeps its name when its code is edited: that is allowed if all its results are run again.

        Args:
            jobs: the tasks that will run.

        Raises:
            DataError: a result is of another encoder.
        """
        for c in self.candidates:
            again = {self.path(c.name, job) for job in jobs}
            about = self._about(c)
            for path in sorted((self.folder / file_name(c.name)).glob("*.json")):
                try:
                    theirs = results.read(path).about
                except DataError:
                    continue  # cut off, and run again
                differ = results.differences(theirs, about)
                if _encoder(theirs) != _encoder(about) and not (path in again and differ.keys() == {"method"}):
                    which = ", ".join(f"{name} {a} there, {b} here" for name, (a, b) in differ.items())
                    raise DataError(
                        f"{path} is of another encoder ({which or 'unknown'}): give another --name or --out"
                    )

    def run(self, jobs: Sequence[TaskRun]) -> None:
        """Run the unfinished jobs. An error in one task does not stop the others."""
        self.folder.mkdir(parents=True, exist_ok=True)
        plans = [plan for job in jobs if (plan := self._plan(job)) is not None and plan.left]
        for number, plan in enumerate(plans, 1):
            self.listener.task(plan.job.name, number, len(plans))
            self._run(plan)
        ordered = [(c.name, job.name) for c in self.candidates for job in jobs]
        self.results = {at: self.results[at] for at in ordered if at in self.results}

    def path(self, candidate: str, job: TaskRun) -> Path:
        """The file of a result."""
        return self.folder / file_name(candidate) / f"{file_name(job.name)}.json"

    def _plan(self, job: TaskRun) -> _Plan | None:
        """The unfinished part of a job; None if its data cannot be read."""
        try:
            digests = job.task.digests(job.source)
            keys = {c.name: results.key(job.task, digests, c.digest, self._fit(c)) for c in self.candidates}
        except Exception as e:
            self._fail(job, e)
            return None
        revision = results.revision(digests)
        kept, left = {}, []
        for c in self.candidates:
            result = self._finished(c.name, job, keys[c.name])
            kept[c.name] = {} if result is None else result.scores
            if result is not None and set(job.seeds(self.seeds)) <= set(result.scores):
                self._collect(job, c.name, result)
            else:
                left.append(c)
        if any(_revision(self.path(c.name, job)) not in (None, revision) for c in left):
            self.listener.replaced(job.name)
        return _Plan(job, revision, keys, kept, left)

    def _fit(self, candidate: Candidate) -> str | None:
        return self.fitting.digest if candidate.unfitted and self.fitting else None

    def _finished(self, candidate: str, job: TaskRun, key: str) -> Result | None:
        try:
            result = results.read(self.path(candidate, job))
        except DataError:
            return None
        return result if result.key == key else None

    def _collect(self, job: TaskRun, candidate: str, result: Result) -> None:
        asked = {seed: result.scores[seed] for seed in job.seeds(self.seeds)}
        self.results[candidate, job.name] = replace(result, scores=asked)

    def _run(self, plan: _Plan) -> None:
        try:
            loaded = plan.job.task.load(plan.job.source)
            texts = list(dict.fromkeys(as_read(t) for t in loaded.texts()))
        except Exception as e:
            self._fail(plan.job, e)
            return
        caches = {id(c.cache): c.cache for c in plan.left}.values()
        self.listener.texts(sum(len(cache.missing(texts)) * len(cache.names) for cache in caches))
        for cache in caches:
            members = [c for c in plan.left if c.cache is cache]
            cache.keep(texts)
            try:
                cache.add(texts, self.listener.done)
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
        lookup = CachedEmbedder(ready.embedder, ready.cache, ready.raw, ready.post)
        scores = dict(plan.kept[candidate.name])
        for seed in plan.job.seeds(self.seeds):
            if seed not in scores:
                scores[seed] = loaded.score(lookup, seed)
                result = self._result(plan, candidate, dict(sorted(scores.items())))
                results.write(self.path(candidate.name, plan.job), result)
        self._collect(plan.job, candidate.name, result)
        self.listener.scored(self.results[candidate.name, plan.job.name], candidate.name)

    def _ready(self, candidate: Candidate, texts: Sequence[str]) -> Candidate:
        """The candidate with its steps fitted: once if texts were given, else again on each task's own."""
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
            **self._about(candidate),
            "options": results.options(task),
            "versions": results.versions(task),
        }
        return Result(
            plan.job.name, task.group, task.metric, task.languages, plan.keys[candidate.name], plan.revision,
            scores, about,
        )  # fmt: skip

    def _about(self, candidate: Candidate) -> dict[str, Any]:
        """What is saved about an encoder with its results."""
        named = {"name": candidate.name, "encoder": candidate.digest, "fit": self._fit(candidate)}
        return {**candidate.about, **named}

    def _fail(self, job: TaskRun, error: Exception, *members: Candidate) -> None:
        for failure in [Failure(job.name, error, c.name) for c in members] or [Failure(job.name, error)]:
            self.failures.append(failure)
            self.listener.failed(failure)


def _encoder(about: Mapping[str, Any]) -> tuple[Any, Any]:
    """The identity of an encoder, which does not depend on library versions, and the texts that it was fitted on."""
    return about.get("identity", about.get("encoder")), about.get("fit")


def _revision(path: Path) -> str | None:
    """The hash of the data of a saved result; None if there is no complete one."""
    try:
        return results.read(path).revision
    except DataError:
        return None
