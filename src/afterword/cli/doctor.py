"""``afterword doctor``: check whether a server or stored vectors give a model's own vectors."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Argument, Option

from . import options as o
from .console import REJECTED
from .option_groups import Model, OptionalModel, read_methods
from .tables import page_width, wrapped

if TYPE_CHECKING:
    from ..doctor.checks import Check
    from ..encode.similarity import Array

COLOURS = {"PASS": "green", "FAIL": "red", "NOTE": "yellow"}

# fmt: off
Target = Annotated[str | None, Argument(metavar="URL", show_default=False,
    help="The server's address, such as http://localhost:8080/v1. Its protocol is found by trying OpenAI's "
    "/v1/embeddings, Ollama's /api/embed and TEI's /embed. If it needs a key, set AFTERWORD_API_KEY.")]
Against = Annotated[Literal["sentence-transformers"] | None, Option("--against", metavar="LIBRARY",
    help="Check this library's vectors of the model instead of a server's: sentence-transformers.")]
Served = Annotated[str | None, Option("--name", metavar="NAME",
    help="The model's name on the server. Default: the first that it lists.")]
Tolerance = Annotated[float, Option("--tolerance", min=0, metavar="X",
    help="The distance of vectors of length 1 that passes. Raise it for a server with quantised weights.")]
ReferenceFile = Annotated[Path | None, Option("--reference", metavar="FILE",
    help="Compare with the vectors in this file, so that no model is needed.")]
SaveReference = Annotated[Path | None, Option("--save-reference", metavar="FILE",
    help="Write a reference: the model's vectors, or without -m those of the server as it is now.")]
# fmt: on


def doctor(
    model: OptionalModel, url: Target = None, method: o.Method = None, prompt: o.Prompt = None,
    prompt_name: o.PromptName = None, against: Against = None, name: Served = None, tolerance: Tolerance = 5e-3,
    reference: ReferenceFile = None, save_reference: SaveReference = None, as_json: o.AsJson = False,
) -> int:  # fmt: skip
    """Check whether an embedding server gives a model's own vectors, and name the cause if it does not.

    Print PASS, FAIL or NOTE for each check, with the number that was measured. FAIL means that a client gets wrong
    vectors without an error, and makes the exit code 1.

    Examples:
        afterword doctor -m minilm --against sentence-transformers
        afterword doctor -m minilm --save-reference minilm.json
    """
    from ..doctor.endpoint import Endpoint
    from ..files.atomic import check_target

    if save_reference is not None:
        check_target(save_reference)
    if url is None and against is None and not (model.model and save_reference):
        raise typer.BadParameter("pass a server's address, or --against sentence-transformers", param_hint="URL")
    endpoint = None if url is None else Endpoint.find(url, name)
    from ..doctor.checks import Examination  # imports torch
    from ..doctor.reference import Reference

    expected = None if reference is None else Reference.read(reference)
    if model.model:
        encoder = model.load(None if method is None else next(iter(read_methods([method]).values())))
        expected = Reference.of(encoder, model.model, prompt, prompt_name)
    source = endpoint or (None if against is None else in_library(model))
    checks = []
    if source is not None:
        examination = Examination(source, expected, tolerance)
        for check in examination.run():
            checks.append(check)
            if not as_json:
                typer.echo("\n".join(row(check)))
        if save_reference is not None and expected is None:
            expected = Reference(url or "", examination.vectors, examination.words)
    if as_json:
        typer.echo(json.dumps({"url": endpoint and endpoint.url, "checks": [vars(check) for check in checks]}))
    if save_reference is not None and expected is not None:
        expected.save(save_reference)
    return REJECTED if any(check.verdict == "FAIL" for check in checks) else 0


def in_library(model: Model) -> Callable[..., Array]:
    """Load a model into sentence-transformers, and return its `encode` with the argument ``dimensions``."""
    from ..adapters.sentence_transformers_model import SentenceTransformerModel

    library = SentenceTransformerModel(model.located().folder()[0], model.device)

    def embed(texts: Sequence[str], dimensions: int | None = None) -> Array:
        shorter = {} if dimensions is None else {"truncate_dim": dimensions, "normalize_embeddings": True}
        vectors: Array = library.model.encode(list(texts), show_progress_bar=False, **shorter)
        return vectors

    return embed


def row(check: Check) -> list[str]:
    """Format a check as lines that fit the page.

    >>> from afterword.doctor.checks import Check
    >>> row(Check("order", "PASS", 8, "vectors are in the order of the texts"))
    ['PASS  order                   8  vectors are in the order of the texts']
    """
    value = check.value
    number = "-" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.5f}"
    if isinstance(value, float) and value < 1e-3:
        number = f"{value:.0e}"
    head = f"{check.verdict}  {check.check:<16}  {number:>8}  "
    first, *rest = wrapped(check.note, page_width(), " " * len(head), head)
    return [first.replace(check.verdict, typer.style(check.verdict, fg=COLOURS[check.verdict]), 1), *rest]
