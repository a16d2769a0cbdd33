"""The texts of one side of a comparison: equal texts once, their vectors, and the rows that were rejected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ..errors import plural

if TYPE_CHECKING:
    from ..files.lines import Reader
    from ..jobs.recipe import MethodsEmbedder
    from ..jobs.rows import Array, Item

MOST = 10_000  # maximum number of rows that are embedded here
NAMED = 3  # number of rejected rows that are named


def read_items(reader: Reader, alone: bool = False, hint: str = "TEXT") -> list[Item]:
    """The rows of the input, which is closed; `alone` if they are compared with each other.

    Raises:
        typer.BadParameter: there are more than `MOST`, none that can be compared, or one alone.
    """
    from ..jobs.rows import items_of

    with closing(reader):
        items = list(islice(items_of(reader), MOST + 1))
    if len(items) > MOST:
        raise typer.BadParameter(
            f"more than {MOST:,} texts: write their vectors with `afterword embed -o FILE.parquet`, then compare "
            "them with -i FILE.parquet, or texts with --against FILE.parquet",
            param_hint="--input",
        )
    rejected = [(item.line, item.problem) for item in items if item.problem is not None]
    check_number(len(items) - len(rejected), rejected, alone, hint)
    return items


def check_number(texts: int, rejected: Sequence[tuple[int, str]], alone: bool, hint: str = "TEXT") -> None:
    """Raise typer.BadParameter if there are too few texts to compare."""
    if not texts:
        raise typer.BadParameter(f"no text can be compared: {reasons(rejected)}", param_hint=hint)
    if texts == 1 and alone:
        raise typer.BadParameter("one text alone: give another, or a file with --against", param_hint=hint)


@dataclass(frozen=True)
class Side:
    """The n different texts of one side of a comparison.

    Attributes:
        texts: the n texts.
        lines: for each text, the lines of the input that hold it.
        vectors: by method, (n, D).
        rejected: lines that have no vector, with the reason.
        numbered: the lines are those of a file, and worth printing.
        key: "lines", or "rows": these are numbers from 0 of stored texts, which have no lines.
    """

    texts: Sequence[str]
    lines: Sequence[Sequence[int]]
    vectors: dict[str, Array]
    rejected: Sequence[tuple[int, str]]
    numbered: bool
    key: str = "lines"

    @property
    def repeated(self) -> int:
        """The number of rows that repeat an earlier text."""
        return sum(map(len, self.lines)) - len(self.lines)

    def less(self, means: Mapping[str, Array]) -> Side:
        """The side with a vector (D,) subtracted from all, by method."""
        return replace(self, vectors={name: rows - means[name] for name, rows in self.vectors.items()})


def mean_of(blocks: Iterable[Array]) -> Array:
    """The mean (D,) of all vectors of some arrays (n, D), in the precision of their sum in float64.

    Raises:
        typer.BadParameter: there are fewer than three.
    """
    import numpy as np

    count, total = 0, np.zeros(1)
    for block in blocks:
        count, total = count + len(block), total + block.sum(0, dtype=np.float64)
    if count < 3:
        raise typer.BadParameter(
            f"{plural(count, 'text')}: without their mean, one vector is 0 and two are opposite; give more texts",
            param_hint="--centre",
        )
    return (total / count).astype(np.float32)


def embed_side(items: Sequence[Item], embedder: MethodsEmbedder, numbered: bool, alone: bool = False) -> Side:
    """Embed each different text once; `alone` if they are compared with each other.

    Raises:
        typer.BadParameter: no row can be embedded, or one alone.
    """
    from ..jobs.rows import Item, embed_window

    def encode(part: Sequence[Item]) -> dict[str, Array]:
        return embedder([item.text or "" for item in part])

    lines: dict[str, list[int]] = {}
    for item in items:
        if item.problem is None:
            lines.setdefault(item.text or "", []).append(item.line)
    distinct = [Item(first[0], text) for text, first in lines.items()]
    vectors = embed_window(distinct, encode, embedder.why_nan, encode([]))
    rejected = [(item.line, item.problem) for item in items if item.problem is not None]
    rejected += [(line, item.problem) for item in distinct if item.problem for line in lines[item.text or ""]]
    rejected.sort()
    fine = [i for i, item in enumerate(distinct) if item.problem is None]
    check_number(len(items) - len(rejected), rejected, alone)
    texts = [distinct[i].text or "" for i in fine]
    return Side(texts, [lines[t] for t in texts], {n: rows[fine] for n, rows in vectors.items()}, rejected, numbered)


def reasons(rejected: Sequence[tuple[int, str]]) -> str:
    """The first rejected rows with their reasons.

    >>> reasons([(2, "is blank"), (5, "is blank"), (7, "is blank"), (9, "is blank")])
    'line 2: is blank; line 5: is blank; line 7: is blank; and 1 more'
    """
    named = [f"line {line}: {reason}" for line, reason in rejected[:NAMED]]
    more = len(rejected) - NAMED
    return "; ".join([*named, f"and {more:,} more"] if more > 0 else named) or "there is none"


def summary(side: Side, path: Path | None) -> list[str]:
    """Lines on rows that were rejected, and on those that repeat others."""
    rows = len(side.rejected) + sum(map(len, side.lines))
    where = plural(rows, "row") + ("" if path is None else f" of {path}")
    lines = [f"equal texts: {side.repeated:,} of {where} repeat an earlier one"] if side.repeated else []
    return lines + ([f"rejected: {len(side.rejected):,} of {where}: {reasons(side.rejected)}"] if side.rejected else [])
