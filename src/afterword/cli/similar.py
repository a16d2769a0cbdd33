"""``afterword similar``: print how similar texts are."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from . import options as o
from .console import REJECTED, say, shown
from .inputs import items_of, open_reader
from .model import MethodsEmbedder, ModelChoice, read_methods

if TYPE_CHECKING:
    from ..encoder import Encoder
    from ..files.lines import Reader
    from ..files.write_vectors import Array
    from ..jobs.items import Item

MATRIX = 12  # maximum number of columns of a printed matrix
MOST = 10_000  # maximum number of texts of a side: all similarities are in memory at once
WIDE = 160  # width of the output in characters, if it is not a terminal
By = Literal["cosine", "dot", "euclidean", "manhattan"]


def similar(
    model: o.Model,
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="Texts to compare. Default: those of --input or stdin.")
    ] = None,
    input: o.Input = None,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against", metavar="FILE", help="Compare with the texts of this file instead of with each other."
        ),
    ] = None,
    format: o.Format = None,
    field: o.Field = None,
    method: o.Methods = None,
    by: Annotated[
        By | None,
        typer.Option(
            "--by",
            metavar="BY",
            help="Similarity function: cosine, dot, euclidean or manhattan (distances are negated). Default: the "
            "model's own, or cosine.",
        ),
    ] = None,
    top: Annotated[int, typer.Option("--top", min=0, metavar="N", help="Print the N most similar pairs.")] = 10,
    prompt: o.Prompt = None,
    prompt_name: o.PromptName = None,
    truncate_dim: o.TruncateDim = None,
    max_length: o.MaxLength = None,
    on_long: o.OnLong = "warn",
    batch_tokens: o.BatchTokens = None,
    device: o.Device = None,
    dtype: o.Dtype = None,
    products: o.Products = None,
    revision: o.Revision = None,
    trust_remote_code: o.Trust = False,
    as_json: o.AsJson = False,
) -> int:
    """Print how similar texts are, as a matrix and as a list of the most similar pairs."""
    methods = read_methods(method)
    readers = [open_reader(texts, input, format, field)]
    readers += [open_reader(None, against, None, field)] if against is not None else []
    settings = {
        "prompt": prompt, "prompt_name": prompt_name, "truncate_dim": truncate_dim,
        "batch_tokens": batch_tokens, "on_long": on_long,
    }  # fmt: skip
    items = [_read(reader) for reader in readers]
    choice = ModelChoice(model, device, dtype, max_length, revision, trust_remote_code, products)
    embedder = MethodsEmbedder.open(choice, methods, settings)
    sides = [_side(part, embedder) for part in items]
    tables = _tables(embedder.encoder, sides[0].vectors, sides[-1].vectors, by)
    right = sides[1].texts if against is not None else None
    if as_json:
        typer.echo(_json(sides[0].texts, right, tables))
    else:
        _print(sides[0].texts, right, tables, top)
    return REJECTED if any(side.rejected for side in sides) else 0


@dataclass(frozen=True)
class Side:
    """The n texts of one side of a comparison, their vectors (n, D) by method, and the number of rejected texts."""

    texts: list[str]
    vectors: dict[str, Array]
    rejected: int


def _read(reader: Reader) -> list[Item]:
    items = list(islice(items_of(reader), MOST + 1))
    if len(items) > MOST:
        raise typer.BadParameter(
            f"there are more than {MOST} texts, too many to read: `afterword embed` them", param_hint="--input"
        )
    return items


def _side(items: list[Item], embedder: MethodsEmbedder) -> Side:
    """Embed texts, and report those that are rejected."""
    from ..jobs.rejects import Rejects
    from ..jobs.windows import embed_window

    def encode(part: Sequence[Item]) -> dict[str, Array]:
        return embedder([item.text or "" for item in part])

    vectors = embed_window(items, encode, embedder.why_nan, encode([]))
    with Rejects(None, say) as rejects:
        for row, item in enumerate(items):
            if item.problem is not None:
                rejects.add(row, item.line, item.problem)
    fine = [i for i, item in enumerate(items) if item.problem is None]
    if not fine:
        raise typer.BadParameter("there is no text to compare", param_hint="TEXTS")
    texts = [items[i].text or "" for i in fine]
    return Side(texts, {name: rows[fine] for name, rows in vectors.items()}, rejects.count)


def _tables(encoder: Encoder, left: dict[str, Array], right: dict[str, Array], by: str | None) -> dict[str, Array]:
    """Similarities (n, m) by method."""
    from ..encode.similarity import similarity

    return {name: similarity(left[name], right[name], by or encoder.similarity_fn_name) for name in left}


def ranked(table: Array, itself: bool, top: int) -> list[tuple[int, int]]:
    """The most similar pairs (row, column), the best first; for texts compared with each other, each pair once.

    >>> import numpy as np
    >>> ranked(np.array([[1.0, 0.2], [0.2, 1.0]]), True, 3)
    [(0, 1)]
    """
    import numpy as np

    rows, columns = np.triu_indices(len(table), 1) if itself else np.indices(table.shape).reshape(2, -1)
    values = table[rows, columns]
    if top < len(values):  # sorting all of fifty million pairs to get the first ten would be slow
        best = np.argpartition(-values, top)[:top]
        rows, columns, values = rows[best], columns[best], values[best]
    order = np.lexsort((columns, rows, -values))
    return list(zip(rows[order].tolist(), columns[order].tolist(), strict=True))


def _json(left: list[str], right: list[str] | None, tables: dict[str, Array]) -> str:
    scores = {name: [[float(f"{x:.9g}") for x in row] for row in table.tolist()] for name, table in tables.items()}
    return json.dumps({"texts": left, "against": right, "similarity": scores}, ensure_ascii=False)


def _print(left: list[str], right: list[str] | None, tables: dict[str, Array], top: int) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else WIDE)
    others = left if right is None else right
    for name, table in tables.items():
        if len(tables) > 1:
            console.print(name, style="bold")
        if len(others) <= MATRIX and len(left) <= 4 * MATRIX:
            console.print(_matrix(left, right, table))
        else:
            console.print(f"{len(left)} x {len(others)} similarities; --json prints them all")
        console.print(_pairs(left, others, table, ranked(table, right is None, top)))


def _matrix(left: list[str], right: list[str] | None, table: Array) -> Any:
    """A table with a row per text; its columns are numbers, or letters that are explained below it."""
    from rich.table import Table

    grid = Table(box=None, pad_edge=False, caption_justify="left")
    names = [str(n) for n in range(1, len(left) + 1)]
    heads = names if right is None else [_letters(n) for n in range(len(right))]
    grid.add_column("", justify="right", no_wrap=True)
    for head in heads:
        grid.add_column(head, justify="right", no_wrap=True)
    grid.add_column("", overflow="ellipsis", no_wrap=True)
    for name, text, row in zip(names, left, table.tolist(), strict=True):
        grid.add_row(name, *(f"{x:.3f}" for x in row), shown(text))
    for head, text in zip(heads, right or [], strict=False):
        grid.add_row(head, *[""] * len(heads), shown(text))
    return grid


def _letters(number: int) -> str:
    return chr(ord("a") + number)


def _pairs(left: list[str], right: list[str], table: Array, pairs: list[tuple[int, int]]) -> Any:
    from rich.table import Table

    grid = Table(box=None, pad_edge=False)
    grid.add_column("", justify="right", no_wrap=True)
    for _ in range(2):
        grid.add_column("", overflow="ellipsis", no_wrap=True, ratio=1)
    for i, j in pairs:
        grid.add_row(f"{table[i, j]:.3f}", shown(left[i]), shown(right[j]))
    return grid
