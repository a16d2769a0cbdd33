"""``afterword embed --chunk``: how texts are split."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from ..jobs.recipe import Chunking


def read_chunking(
    spelled: str | None, late: bool, methods: int, conditioned: bool, overlap: int | None = None
) -> Chunking | None:
    """The options --chunk, --late and --overlap; None where they are not given.

    Raises:
        typer.BadParameter: the spelling is unknown, or --late or --overlap cannot be.

    >>> read_chunking("sentences:256", True, 1, False)
    Chunking(unit='sentences', tokens=256, late=True, overlap=0)
    """
    if spelled is None:
        if overlap is not None:
            raise typer.BadParameter("it needs chunks: give --chunk 128 too", param_hint="--overlap")
        if late:
            raise typer.BadParameter("it needs chunks: give --chunk 128 or --chunk sentences", param_hint="--late")
        return None
    unit, _, number = ("", "", spelled) if spelled[:1].isdigit() else spelled.partition(":")
    ends_well = number.isascii() and number.isdigit() and int(number) > 0 if number else not spelled.endswith(":")
    if unit not in ("", "sentences", "paragraphs") or not ends_well or not spelled:
        raise typer.BadParameter(
            f"{spelled!r}: write a number of tokens, sentences, paragraphs, or sentences:128 for as many as fit",
            param_hint="--chunk",
        )
    if conditioned:
        raise typer.BadParameter("chunks take no condition: leave one of the two out", param_hint="--chunk")
    if late and methods > 1:
        raise typer.BadParameter("it goes with one method: run the command once for each", param_hint="--late")
    if overlap is not None and (unit or late):
        other = "--late chunks" if late else unit
        raise typer.BadParameter(
            f"{other} share no tokens: give --chunk and a number of tokens, or no --overlap", param_hint="--overlap"
        )
    if overlap is not None and overlap >= int(number):
        raise typer.BadParameter(
            f"{overlap} is not less than --chunk {number}: give 0 to {int(number) - 1}", param_hint="--overlap"
        )
    from ..jobs.recipe import Chunking

    return Chunking(unit or None, int(number) if number else None, late, overlap or 0)
