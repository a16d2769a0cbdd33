"""The command ``afterword``: it parses arguments and prints. Each verb imports heavy libraries when it runs."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import version as installed
from pathlib import Path
from typing import Annotated, Any

import typer

from .console import State, guarded
from .help import SETTINGS, Verb, Verbs, expanded

VERBS = {
    "embed": "embed", "job": "job", "words": "words", "similar": "similar", "duplicates": "groups",
    "cluster": "groups", "index": "index", "search": "search", "methods": "methods", "inspect": "methods",
    "analyse": "analyse", "train": "train", "evaluate": "evaluate", "tune": "tune", "compare": "compare",
}  # fmt: skip
"""The module of each verb."""


class Afterword(Verbs):
    """All verbs; the module of a verb is imported when the verb is needed."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.commands = {name: typer.core.TyperCommand(name) for name in VERBS}  # for suggestions

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of the verbs."""
        return list(VERBS)

    def get_command(self, ctx: Any, name: str) -> Any:
        """A verb."""
        return verb(name) if name in VERBS else None


@cache
def verb(name: str) -> Any:
    """A verb, built from its function or from its own `typer.Typer`."""
    defined = getattr(import_module(f".{VERBS[name]}", __name__), name)
    if not isinstance(defined, typer.Typer):
        alone = typer.Typer(**SETTINGS)
        alone.command(name, cls=Verb)(expanded(defined))
        defined = alone
    command = typer.main.get_command(defined)
    command.name = name
    return command


app = typer.Typer(
    help="""Sentence and word embeddings from any pretrained language model.

    Examples:
        afterword similar -m minilm "a cat sat down" "the feline took a seat" "interest rates rose"
        afterword embed -m minilm -i texts.txt -o vectors.parquet
        afterword embed --help
    """,
    cls=Afterword,
    **SETTINGS,
)


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
