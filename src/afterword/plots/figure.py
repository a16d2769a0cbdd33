"""The style of figures, and how one is written. Only this room uses matplotlib, imported only to draw."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError, MissingExtra
from ..files.atomic import check_target

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KINDS = (".png", ".svg", ".pdf")

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#444444")
"""The palette of Okabe and Ito, which colour-blind readers can distinguish."""

STYLE: dict[str, Any] = {
    "figure.dpi": 150,
    "figure.constrained_layout.use": True,
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.prop_cycle": f"cycler('color', {list(COLOURS)})",
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 4,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "afterword",
}


@contextmanager
def figure(path: Path, width: float = 6.0, height: float = 3.6) -> Iterator[Axes]:
    """A context that gives the axes of a new figure and saves it at the end, unless there was an error.

    No window is opened, and no global state of matplotlib is changed.

    Args:
        path: a .png, .svg or .pdf file.
        width: in inches.
        height: in inches.

    Yields:
        The axes to draw on.

    Raises:
        InputError: the file has another ending.
        MissingExtra: matplotlib is not installed.
    """
    check(path)
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        drawn = Figure(figsize=(width, height))
        yield drawn.add_subplot()
        drawn.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def check(path: Path) -> None:
    """Check, before a long computation, that a figure can be written to this file.

    Raises:
        InputError: the file has another ending than `KINDS`.
        DataError: it is a folder, or would lie in none.
        MissingExtra: matplotlib is not installed.
    """
    if path.suffix not in KINDS:
        raise InputError(f"{path} is no figure: give a file that ends in {', '.join(KINDS)}")
    check_target(path)
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        raise MissingExtra("matplotlib", "plots") from None
