"""Draw the figure of a verb: ``--plot FILE``, and with ``--dark`` a second one for dark pages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import typer

if TYPE_CHECKING:
    from ..plots.colours import Page


class Draw(Protocol):
    """A function that draws a figure, such as ``functools.partial(draw_dependency, results)``."""

    def __call__(self, path: Path, *, page: Page) -> None:
        """Draw to this file, in these colours."""


def check_plot(plot: Path | None, dark: bool = False) -> None:
    """Refuse a figure that cannot be drawn, before a long computation.

    Raises:
        typer.BadParameter: --dark without --plot.
        InputError: the file's ending is none of a figure.
        DataError: the file cannot be written.
        MissingExtra: matplotlib is not installed.
    """
    if plot is not None:
        from ..plots.figure import check

        check(plot, dark)
    elif dark:
        raise typer.BadParameter("needs --plot FILE: it draws that figure again", param_hint="--dark")


def beside(plot: Path, name: str) -> Path:
    """The file of one of several figures, named after a model.

    >>> beside(Path("out/a.svg"), "runs/gpt2").as_posix()
    'out/a-runs-gpt2.svg'
    """
    return plot.with_stem(f"{plot.stem}-{name.replace('/', '-')}")


def draw_plot(plot: Path, dark: bool, draw: Draw) -> None:
    """Draw the figure, and with `dark` the one for dark pages beside it."""
    from ..plots.figure import pages

    for path, page in pages(plot, dark):
        draw(path, page=page)
