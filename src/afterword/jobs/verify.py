"""Prove that a job is whole: its files are those of its markers, and its shards can be made again bit for bit."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from .job import Job
from .shard import FOLDERS, MADE_BY, PLAN, ShardWorker, listing, part


def problems(job: Job) -> list[str]:
    """What is wrong with the files of a job, a line each; none if all shards are done and whole."""
    found, damaged, done = list[str](), set(job.damaged()), job.done()
    for shard in job.plan:
        number = shard.number
        if number in damaged:
            wrong = [path for path in (part(job.folder, number), listing(job.folder, number)) if path.exists()]
            named = " or ".join(str(path) for path in wrong) or f"{part(job.folder, number)} (it is gone)"
            found.append(f"shard {number:06} is damaged: {named}; the job's command embeds it again")
        elif number not in done:
            found.append(f"shard {number:06} is not done: the job's command embeds it")
    ours = {path.resolve() for s in job.plan for path in (part(job.folder, s.number), listing(job.folder, s.number))}
    for name in FOLDERS[:2]:
        strange = [path for path in sorted((job.folder / name).glob("*")) if path.resolve() not in ours]
        found += [f"{path} is of no shard of this job: move it away" for path in strange]
    return found


def recompute(job: Job, worker: ShardWorker, count: int, seed: int = 0) -> tuple[list[int], list[int]]:
    """Embed some finished shards again, in a folder of their own, and compare them bit for bit.

    Args:
        job: the job; its own files are not touched.
        worker: what its shards were embedded by.
        count: how many shards, drawn at random.
        seed: of the draw.

    Returns:
        The numbers of the shards that were embedded again, and of those among them that differ.

    Raises:
        JobError: the encoder or the input is another one.
    """
    done = sorted(job.done())
    numbers = sorted(Random(seed).sample(done, min(count, len(done))))
    with TemporaryDirectory() as made:
        folder = Path(made)
        for name in FOLDERS:
            (folder / name).mkdir()
        for name in (PLAN, MADE_BY):
            shutil.copyfile(job.folder / name, folder / name)
        embed = replace(worker, folder=folder).start()
        for number in numbers:
            embed(number)
        return numbers, [number for number in numbers if not _alike(job.folder, folder, number)]


def _alike(one: Path, other: Path, number: int) -> bool:
    return all(_bytes(path(one, number)) == _bytes(path(other, number)) for path in (part, listing))


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None
