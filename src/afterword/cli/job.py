"""``afterword job``: what is done of a job, whether it is whole, and its rows as one file."""

from __future__ import annotations

import json
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import JobError, plural
from . import options as o
from .console import REJECTED, say
from .embed_folder import compare_again
from .help import SETTINGS, Verb, Verbs

if TYPE_CHECKING:
    from ..jobs.job import Job

job = typer.Typer(
    help="Look at a job of `embed -o FOLDER/`: what is done, and whether its vectors are right.",
    cls=Verbs,
    **SETTINGS,
)
Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of the job.", show_default=False)]
PATHS = ("fit", "save", "rejects")


@job.callback(invoke_without_command=True)
def _root(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@job.command("status", cls=Verb)
def status(folder: Folder, as_json: o.AsJson = False) -> int:
    """Print how much of a job is done.

    Examples:
        afterword job status vectors/
    """
    from ..jobs.job import Job

    found = Job.open(folder)
    said = told(found)
    if as_json:
        print(json.dumps(said, ensure_ascii=False))
        return 0
    print(f"rows      {said['done']:,} of {said['rows']:,} done")
    print(f"shards    {said['shards_done']:,} of {said['shards']:,} done")
    listing = folder / "rejects.jsonl"
    print(
        f"rejected  {said['rejected']:,}" + (f", listed in {listing}" if said["rejected"] and listing.exists() else "")
    )
    print(f"model     {said['model']}, {', '.join(said['methods']) or 'its own method'}")
    print("complete" if said["complete"] else "not complete: the command that began it goes on")
    return 0


def told(found: Job) -> dict[str, Any]:
    """What `job status` tells, as plain data."""
    result, settings = found.result(), found.begun["settings"]
    return {
        "rows": found.rows, "done": result.rows, "rejected": result.rejected, "shards": len(found.plan),
        "shards_done": result.shards, "complete": result.complete,
        "model": settings.get("--model"), "methods": settings.get("--method") or [],
        "files": [file["file"] for file in found.begun["inputs"]],
    }  # fmt: skip


@job.command("verify", cls=Verb)
def verify(
    context: typer.Context,
    folder: Folder,
    shards: Annotated[
        int, typer.Option("--shards", min=0, metavar="K", help="Number of shards, drawn at random, to embed again.")
    ] = 1,
    trust: Annotated[
        bool, typer.Option("--trust-job", help="Run the Python code that the job's command names.")
    ] = False,
) -> int:
    """Compare a sample of shards with fresh vectors, within 1e-5; the exit code is 1 if one differs or is missing.

    Examples:
        afterword job verify vectors/ --shards 2
    """
    from ..jobs.job import Job

    found = Job.open(folder)
    missing = found.missing()
    for shard in missing:
        print(f"shard {shard.number:06} is not done: the job's command embeds it")
    return max(again(context, found, shards, trust) if shards else 0, REJECTED if missing else 0)


def again(context: typer.Context, found: Job, count: int, trust: bool) -> int:
    """Embed shards again, by the command that began the job.

    Raises:
        typer.BadParameter: it runs Python code, and that was not allowed.
    """
    from ..jobs.run import VERB, worker_of

    settings, command = found.begun["settings"], dict(found.begun["command"])
    ours = settings.get("verb") == VERB
    methods = (settings["--method"] if ours else command.get("method")) or []
    options = settings["load"] if ours else command
    files = [m for m in methods if str(m).startswith("@")]
    if (files or options.get("trust_remote_code")) and not trust:
        named = files[0] if files else "--trust-remote-code"
        raise typer.BadParameter(f"the job's command runs code ({named}): allow it by --trust-job")
    if ours:
        return compare_again(worker_of(found), count)
    verbs: Any = context.find_root().command
    embed = verbs.get_command(context, "embed").callback
    if not command.keys() == signature(embed).parameters.keys():
        raise JobError(f"{found.folder} was not begun by a command of this version: verify it by what has begun it")
    command["input"] = [Path(path) for path in command["input"]]
    command.update({name: command[name] and Path(command[name]) for name in PATHS})
    command.update(output=f"{found.folder}/", overwrite=False, sample=count)
    code: int = embed(**command)
    return code


@job.command("join", cls=Verb)
def join(
    folder: Folder,
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="FILE", help="A .parquet, .jsonl or .npy file.", show_default=False),
    ],
    overwrite: o.Overwrite = False,
) -> int:
    """Write all rows of a job to one file, in the order of the input.

    Examples:
        afterword job join vectors/ -o vectors.parquet
    """
    from ..jobs.job import Job
    from ..jobs.output import join as joined

    say(f"{plural(joined(Job.open(folder), output, overwrite=overwrite), 'row')} in {output}")
    return 0
