"""Check ``--plot FILE`` and ``--dark`` before a long computation."""

from __future__ import annotations

from pathlib import Path

import typer


def check_plot(plot: Path | None, dark: bool = False) -> None:
    """Refuse a figure that cannot be drawn.

    Raises:
        typer.BadParameter: --dark without --plot.
        InputError: the file's ending is not that of a figure.
        DataError: the file cannot be written.
        MissingExtra: matplotlib is not installed.
    """
    if plot is not None:
        from ..papers.figure import check

        check(plot, dark)
    elif dark:
        raise typer.BadParameter("needs --plot FILE: it draws that figure again", param_hint="--dark")
