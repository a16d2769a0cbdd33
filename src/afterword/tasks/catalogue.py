"""All tasks, and how their names, groups and options are read from the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..files.read import ENDINGS
from ..spelling import build, did_you_mean, read_spelling
from . import captions, pairs, transfer, wordsense
from .pairs import Pairs
from .rows import Folder, Source
from .task import Task, TaskRun

CMTEB = {
    "cmteb-classification": "TNews IFlyTek MultilingualSentiment JDReview OnlineShopping Waimai",
    "cmteb-clustering": "CLSClusteringS2S CLSClusteringP2P ThuNewsClusteringS2S ThuNewsClusteringP2P",
    "cmteb-pair": "Ocnli Cmnli",
    "cmteb-reranking": "T2Reranking MMarcoReranking CMedQAv1 CMedQAv2",
    "cmteb-retrieval": "T2Retrieval MMarcoRetrieval DuRetrieval CovidRetrieval CmedqaRetrieval EcomRetrieval "
    "MedicalRetrieval VideoRetrieval",
    "cmteb-sts": "ATEC BQ LCQMC PAWSX STSB-zh AFQMC QBQTC",
}
"""The 31 data sets of C-MTEB by category, under the names of ReBA's tables."""

OFFICIAL = ".mteb"
"""Ends the name of a task on mteb's own data; without it, the name is that of a local file."""

MTEB = {group: " ".join(name + OFFICIAL for name in names.split()) for group, names in CMTEB.items()}
"""Groups of `adapters.mteb_official` with their tasks: a name is known without importing mteb, which is slow."""

FAMILY = "cmteb"
"""Name of all groups in `MTEB` at once."""


@cache
def local_tasks() -> tuple[Task, ...]:
    """The tasks of this package; those of mteb are in `adapters`."""
    return (*pairs.TASKS, *transfer.TASKS, *wordsense.TASKS, *captions.TASKS)


def groups_of_tasks() -> dict[str, str]:
    """The group of every task by its name, those of mteb last."""
    theirs = {name: group for group, names in MTEB.items() for name in names.split()}
    return {task.name: task.group for task in local_tasks()} | theirs


def groups(tasks: Sequence[Task]) -> dict[str, list[Task]]:
    """Tasks by group, in order."""
    by_group: dict[str, list[Task]] = {}
    for task in tasks:
        by_group.setdefault(task.group, []).append(task)
    return by_group


def no_more(_: str) -> Sequence[Task]:
    """Without mteb: no further tasks."""
    return ()


def jobs(
    specs: Sequence[str], source: Source, tasks: Sequence[Task], more: Callable[[str], Sequence[Task]] = no_more
) -> list[TaskRun]:
    """The tasks that strings name, without duplicates. A file is named as it is without its ending.

    Args:
        specs: groups, "cmteb" for all of its groups, names, names with options ("MR:folds=5"), any
            task of mteb ("mteb:TNews"), or files of scored pairs; several in one string are separated by commas.
        source: holds the data of all tasks except those files.
        tasks: the known tasks.
        more: returns the tasks that mteb scores; called if a name is in `MTEB`, or begins with "mteb:".

    Raises:
        InputError: there is no such group, name, option or file; two files have one name.

    >>> [job.name for job in jobs(["STS12,STS13"], Folder(Path(".")), local_tasks())]
    ['STS12', 'STS13']
    """
    by_name: dict[str, TaskRun] = {}
    for job in (job for part in _parts(specs) for job in _jobs_of(part, source, tasks, more)):
        other = by_name.setdefault(job.name, job)
        if _file(other) != _file(job):
            raise InputError(
                f"{_file(other)} and {_file(job)} would both be {job.name!r} in results: rename one of them, or run "
                "them with different --out"
            )
    if not by_name:
        raise InputError(f"no tasks are asked for: {_known(tasks)}")
    return list(by_name.values())


def _parts(specs: Sequence[str]) -> list[str]:
    """Split at commas, except between options: "key=value" belongs to the task before it."""
    parts: list[str] = []
    for part in (part.strip() for spec in specs for part in spec.split(",")):
        if "=" in part and ":" not in part and parts and ":" in parts[-1]:
            parts[-1] += f",{part}"
        elif part:
            parts.append(part)
    return parts


def _jobs_of(
    spec: str, source: Source, tasks: Sequence[Task], more: Callable[[str], Sequence[Task]]
) -> Iterator[TaskRun]:
    if spec.endswith(ENDINGS):
        yield _own(Path(spec))
        return
    if spec.lower().startswith("mteb:"):
        yield from (TaskRun(task, source) for task in more(spec))
        return
    name, options = read_spelling(spec) if ":" in spec else (spec, {})
    theirs = [FAMILY, *MTEB, *" ".join(MTEB.values()).split()]
    members = _named(name, tasks) or _named(name, more(name) if name.lower() in map(str.lower, theirs) else ())
    if not members:
        known = [*groups(tasks), *(task.name for task in tasks), *theirs]
        raise InputError(
            f"no task or group {name!r}{did_you_mean(name, known)}: {_known(tasks)}; or give a {', '.join(ENDINGS)} "
            "file of scored pairs"
        )
    for task in members:
        label = task.name + (f":{spec.partition(':')[2]}" if options else "")
        yield TaskRun(_with(task, options), source, label)


def _named(name: str, tasks: Sequence[Task]) -> list[Task]:
    if name.lower() == FAMILY:
        return [task for task in tasks if task.group in MTEB]
    return [task for task in tasks if name.lower() in (task.group.lower(), task.name.lower())]


def _own(path: Path) -> TaskRun:
    """The job for a user's file of scored pairs; one that is named like a task keeps its ending in its name."""
    if not path.is_file():
        raise InputError(f"{path} does not exist: give a file of rows with sentence1, sentence2 and score")
    name = path.name.removesuffix(
        next(end for end in sorted(ENDINGS, key=len, reverse=True) if path.name.endswith(end))
    )
    official = name.casefold() in map(str.casefold, groups_of_tasks())
    return TaskRun(Pairs(path.name if official or not name else name, path.name), Folder(path.parent))


def _file(job: TaskRun) -> Path | None:
    """The user's own file that a job reads, without symbolic links; None for a task with a data set of its own."""
    if type(job.task) is Pairs and isinstance(job.source, Folder) and job.task.file.endswith(ENDINGS):
        return (job.source.root / job.task.file).resolve()
    return None


def _with(task: Task, options: dict[str, Any]) -> Task:
    """The task with changed options."""
    if not options:
        return task
    own = {f.name: getattr(task, f.name) for f in fields(task)}
    if unknown := set(options) - set(own) | ({"name"} & set(options)):
        known = [name for name in own if name != "name"]
        wrong = f"{min(unknown)!r}{did_you_mean(min(unknown), known)}"
        raise InputError(f"{task.name} has no option {wrong}: it has {', '.join(known) or 'none'}")
    build(type(task), {**own, **options})  # checks types, by the annotations
    return replace(task, **options)


def _known(tasks: Sequence[Task]) -> str:
    return f"the groups are {', '.join([*groups(tasks), FAMILY, *MTEB])}; afterword evaluate --list prints all tasks"
