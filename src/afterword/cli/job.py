"""``afterword job``: show a job's progress, check its vectors, or join its rows into one file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ..errors import plural
from . import SETTINGS, Verb, Verbs
from . import options as o
from .console import REJECTED, say

job = typer.Typer(
    help="Show the progress of a job started by `embed -o FOLDER/`, check its vectors, or join its rows into one file.",
    cls=Verbs,
    **SETTINGS,
)
Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The job folder.", show_default=False)]


@job.command("status", cls=Verb)
def status(folder: Folder, as_json: o.AsJson = False) -> int:
    """Print a job's progress.

    Examples:
        afterword job status vectors/
    """
    from ..jobs.job import Job

    opened = Job.open(folder)
    result, settings = opened.result(), opened.begun["settings"]
    values = {
        "rows": opened.rows, "done": result.rows, "rejected": result.rejected, "shards": len(opened.plan),
        "shards_done": result.shards, "complete": result.complete, "model": settings["model"],
        "methods": settings.get("method", []), "files": [file["file"] for file in opened.begun["inputs"]],
    }  # fmt: skip
    if as_json:
        print(json.dumps(values, ensure_ascii=False))
        return 0
    listing = folder / "rejects.jsonl"
    print(f"rows      {result.rows:,} of {opened.rows:,} done")
    print(f"shards    {result.shards:,} of {len(opened.plan):,} done")
    print(f"rejected  {result.rejected:,}" + (f", listed in {listing}" if result.rejected and listing.exists() else ""))
    print(f"model     {settings['model']}, {', '.join(values['methods']) or 'default method'}")
    print("complete" if result.complete else "not complete: run the same embed command again to continue")
    return 0


@job.command("verify", cls=Verb)
def verify(
    folder: Folder,
    shards: Annotated[
        int, typer.Option("--shards", min=0, metavar="K", help="Number of randomly chosen shards to embed again.")
    ] = 1,
    trust: o.Trust = False,
) -> int:
    """Embed a sample of shards again, and compare vectors within 1e-5; exit with 1 if a shard differs or is missing.

    Examples:
        afterword job verify vectors/ --shards 2
    """
    from ..jobs.job import Job

    opened = Job.open(folder)
    settings, missing = opened.begun["settings"], opened.missing()
    code = next((m for m in settings.get("method", []) if m.startswith("@")), settings.get("trust_remote_code"))
    if code and not trust:
        raise typer.BadParameter(f"The job's settings run code ({code}): pass --trust-remote-code to allow it")
    for number in missing:
        print(f"shard {number:06} is missing: run the same embed command again")
    from ..jobs.shard import VERIFIED, ShardWorker
    from ..jobs.shard import verify as embed_again

    numbers, differing = embed_again(opened, ShardWorker.of_job(opened), shards)
    for number in differing:
        print(f"shard {number:06} differs: delete its file, and run the same embed command again")
    print(f"{plural(len(numbers), 'shard')} embedded again: {len(numbers) - len(differing)} equal within {VERIFIED:g}")
    return REJECTED if differing or missing else 0


@job.command("join", cls=Verb)
def join(
    folder: Folder,
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="FILE", help="A .parquet, .jsonl or .npy file.", show_default=False),
    ],
    overwrite: o.Overwrite = False,
) -> int:
    """Write all rows of a job to one file, in input order.

    Examples:
        afterword job join vectors/ -o vectors.parquet
    """
    from ..jobs.job import Job
    from ..jobs.output import join as joined

    say(f"{plural(joined(Job.open(folder), output, overwrite=overwrite), 'row')} in {output}")
    return 0
