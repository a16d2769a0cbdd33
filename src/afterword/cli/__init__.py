"""The command ``afterword``: it parses arguments and prints. Each verb imports heavy libraries when it runs."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import version as installed
from pathlib import Path
from typing import Annotated

import typer

from .analyse import analyse
from .cluster import cluster
from .compare import compare
from .console import State, guarded
from .duplicates import duplicates
from .embed import embed
from .evaluate import evaluate
from .help import NAMES, Verb, Verbs
from .index import index
from .inspect import inspect
from .job import job
from .methods import methods
from .search import search
from .similar import similar
from .train import train
from .tune import tune
from .words import words

app = typer.Typer(
    help="Sentence and word embeddings from any pretrained language model.",
    cls=Verbs,
    context_settings=NAMES,
    rich_markup_mode=None,  # plain help is printed sooner
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command("embed", cls=Verb)(embed)
app.add_typer(job, name="job")
app.command("words", cls=Verb)(words)
app.command("similar", cls=Verb)(similar)
app.command("duplicates", cls=Verb)(duplicates)
app.command("cluster", cls=Verb)(cluster)
app.command("index", cls=Verb)(index)
app.command("search", cls=Verb)(search)
app.command("methods", cls=Verb)(methods)
app.command("inspect", cls=Verb)(inspect)
app.add_typer(analyse, name="analyse")
app.command("train", cls=Verb)(train)
app.command("evaluate", cls=Verb)(evaluate)
app.command("tune", cls=Verb)(tune)
app.command("compare", cls=Verb)(compare)


def _version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        typer.echo(f"afterword {__version__}")
        for package in ("torch", "transformers"):
            typer.echo(f"{package} {installed(package)}")
        typer.echo(f"python {platform.python_version()}\nprocessor {_processor()}")
        raise typer.Exit


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Show the versions of afterword, torch, transformers and Python, and the processor.",
            callback=_version,
            is_eager=True,
        ),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    context.ensure_object(State).debug = debug
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@cache
def _command() -> Callable[..., object]:
    """All verbs, built once in a process: their signatures take 0.06 s to read."""
    return typer.main.get_command(app)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line.

    Args:
        argv: the words after ``afterword``; None = those of this process.

    Returns:
        The exit code: 0 for success; 1 if rows were rejected or tasks failed; 2 for a user's error, with a message of
        one line; 70 for a bug; 130 if interrupted; 141 if the pipe that reads the output was closed.
    """
    state = State()
    words_given = None if argv is None else list(argv)
    return guarded(lambda: _command()(args=words_given, prog_name="afterword", standalone_mode=False, obj=state), state)
