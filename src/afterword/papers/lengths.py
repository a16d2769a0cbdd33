"""How long texts are for a model: numbers of tokens, by its tokenizer alone.

Source: ReBA, appendix A.1.1 (Figure 4: the lengths of the texts of C-MTEB, most of them under 512 tokens).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..text.inputs import check_texts
from ..text.layout import Layout, Text
from ..text.tokenizer import Tokenizer
from .figure import printable
from .measurement import Measurement

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WINDOW = 8192  # number of texts that are tokenized at a time


@dataclass(frozen=True)
class Lengths(Measurement):
    """The lengths of texts as a model reads them.

    Attributes:
        name: of the texts.
        limit: the most tokens that the model reads; None without a limit.
        tokens: for each text, its tokens as the model would read them without a limit: special tokens, template and
            copies included (n,).
    """

    name: str
    limit: int | None
    tokens: NDArray[np.int64]

    @property
    def over(self) -> int:
        """The number of texts over the limit, which would be cut."""
        return 0 if self.limit is None else int((self.tokens > self.limit).sum())

    def quantile(self, share: float) -> int:
        """The least length that this share of the texts does not exceed.

        >>> Lengths("", None, np.array([3, 1, 2, 9])).quantile(0.5)
        2
        """
        return int(np.quantile(self.tokens, share, method="inverted_cdf"))

    def to_json(self) -> dict[str, Any]:
        """The fields and what is computed from them, as plain data for JSON."""
        shown = {str(share): self.quantile(share) for share in (0.5, 0.9, 0.99, 1.0)}
        return {**super().to_json(), "texts": len(self.tokens), "over": self.over, "quantiles": shown}


def lengths(
    tokenizer: Tokenizer, texts: Sequence[Text], layout: Layout | None = None, *, limit: int | None = None,
    name: str = "",
) -> Lengths:  # fmt: skip
    """Count the tokens of texts.

    Args:
        tokenizer: the model's.
        texts: strings, or lists of token ids.
        layout: the input format, with its template and copies; None = the plain text. For a layout in chunks the
            longest part of a text counts.
        limit: the most tokens that the model reads.
        name: of the texts.

    Raises:
        InputError: there is no text, or one cannot be used.
    """
    checked, layout = check_texts(texts), layout or Layout()
    if not checked:
        raise InputError("there is no text: give at least one")
    found = [
        max((len(segment.ids) for segment in written.segments), default=0)
        for i in range(0, len(checked), WINDOW)
        for written in layout.write(checked[i : i + WINDOW], tokenizer)
    ]
    return Lengths(name, limit, np.array(found))


def plot(axes: Axes, results: Sequence[Lengths]) -> None:
    """Draw the share of texts up to each length, a line per result; a vertical line marks a limit.

    Args:
        axes: the axes to draw on.
        results: at least one.
    """
    from matplotlib import rcParams
    from matplotlib.ticker import LogLocator, NullFormatter, PercentFormatter, ScalarFormatter

    for r in results:
        axes.ecdf(r.tokens, label=printable(r.name), marker="")
    for limit in sorted({r.limit for r in results if r.limit is not None}):
        axes.axvline(limit, color=rcParams["axes.edgecolor"], linewidth=0.8)
        axes.annotate(f"limit {limit}", (limit, 0.02), (3, 0), textcoords="offset points")
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.set(xlabel="tokens of a text", ylabel="texts up to this length", ylim=(0, 1.01))
    axes.legend()
