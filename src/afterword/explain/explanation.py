"""A cosine as the sum over pairs of words, and which pairs made it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import draw
from .draw import Part
from .parts import Array, TextParts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINES = 6  # maximum number of lines drawn
FAINTEST = 0.2  # a line is drawn if its pair stands out by at least this fraction of the most outstanding pair's

ROUNDING = 1e-9


class Pair(NamedTuple):
    """Two words and what they add to the cosine: the sum of the table's entries of their tokens."""

    a: str
    b: str
    value: float


@dataclass(frozen=True, eq=False)
class Explanation:
    """The cosine of two texts, divided exactly over pairs of tokens: T[i, j] = w_i u_j (s_i . t_j) / (|a| |b|).

    The vectors are a = sum of w_i s_i and b = sum of u_j t_j, so the table's entries add up to the cosine. They divide
    the score; they do not prove a cause, because each state s_i has read its context.

    Attributes:
        a, b: the parts of the two vectors.
        method: name of the method.
    """

    a: TextParts
    b: TextParts
    method: str

    @cached_property
    def _units(self) -> tuple[Array, Array]:
        return _unit(self.a.rows), _unit(self.b.rows)

    @property
    def cosine(self) -> float:
        """The cosine of the two vectors."""
        a, b = self._units
        return float(a.sum(0) @ b.sum(0))

    @property
    def tokens(self) -> tuple[list[str], list[str]]:
        """The n and m tokens that the model reads, including template, copies and special tokens."""
        return _texts(self.a.tokens), _texts(self.b.tokens)

    @property
    def table(self) -> Array:
        """T (n, m): what each pair of tokens adds to the cosine."""
        a, b = self._units
        return a @ b.T

    def words(self) -> tuple[list[str], list[str], Array]:
        """The p and q words of the texts, and the table's sums over their tokens (p, q)."""
        return _texts(self.a.words), _texts(self.b.words), self._by_word

    @cached_property
    def _by_word(self) -> Array:
        a, b = self._units
        return self.a.by_word(a) @ self.b.by_word(b).T

    @cached_property
    def _outstanding(self) -> Array:
        """The double-centred table of words (p, q); all other parts have -inf."""
        words = np.ix_(*([k for k, part in enumerate(side.words) if part.kind == "word"] for side in (self.a, self.b)))
        table, outstanding = self._by_word[words], np.full(self._by_word.shape, -np.inf)
        if min(table.shape) > 1:
            outstanding[words] = table - table.mean(1, keepdims=True) - table.mean(0) + table.mean()
        elif table.size:  # one word's row or column would be zero after centring both ways
            outstanding[words] = table - table.mean() if table.size > 1 else table
        return outstanding

    def _best(self, k: int) -> list[tuple[int, int]]:
        """The indices of the k most outstanding pairs of words, best first."""
        flat = self._outstanding.ravel()
        k = min(k, int(np.isfinite(flat).sum()))
        found = np.argpartition(-flat, k - 1)[:k].tolist() if k else []
        return [divmod(at, self._outstanding.shape[1]) for at in sorted(found, key=lambda at: (-flat[at], at))]

    def top(self, k: int = 5) -> list[Pair]:
        """The k pairs of words that made the score, best first.

        They are chosen by what a pair adds beyond what its two words add with all others (the double-centred table),
        because every entry also contains what the texts have in common; the values are the entries themselves.
        """
        return [Pair(*self._named(i, j), float(self._by_word[i, j])) for i, j in self._best(k)]

    def _named(self, i: int, j: int) -> tuple[str, str]:
        return self.a.words[i].text, self.b.words[j].text

    @property
    def outside(self) -> float:
        """The part of the cosine that special tokens, the template and constants have, with any word or each other."""
        words = [np.array([part.of_text for part in side.words]) for side in (self.a, self.b)]
        return self.cosine - float(self._by_word[np.ix_(*words)].sum())

    def to_frame(self) -> Any:
        """The words' table as a pandas DataFrame."""
        import pandas as pd

        a, b, table = self.words()
        return pd.DataFrame(table, a, b)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the words' table on matplotlib axes, by default new ones."""
        from matplotlib import pyplot as plt

        ax = plt.figure().subplots() if ax is None else ax
        a, b, table = self.words()
        most = float(np.abs(table).max())
        image = ax.imshow(table, cmap="RdBu", vmin=-most, vmax=most)
        ax.set_xticks(range(len(b)), [draw.shortened(word, 16) for word in b], rotation=90)
        ax.set_yticks(range(len(a)), [draw.shortened(word, 16) for word in a])
        ax.set_title(f"{self.method}: cosine {self.cosine:.3f}")
        ax.figure.colorbar(image, ax=ax, label="part of the cosine")
        return ax

    def lines(self, k: int = LINES) -> list[draw.Line]:
        """The lines to draw: between the k most outstanding pairs, as far as they do not fall far behind the first."""
        best = [(i, j, float(self._outstanding[i, j])) for i, j in self._best(k)]
        most = max((value for *_, value in best), default=0.0)
        return [
            draw.Line(
                i, j, value / most, f"{' · '.join(map(draw.shortened, self._named(i, j)))}: {self._by_word[i, j]:.4f}"
            )
            for i, j, value in best
            if value > max(most * FAINTEST, ROUNDING)
        ]

    def notes(self) -> list[str]:
        """What the picture shows, and its limits, with this score's own figures."""
        lines = self.lines()
        if not lines:
            return ["No pair of words stands out: " + _reason(self)]
        drawn = sum(float(self._by_word[line.i, line.j]) for line in lines)
        kinds = {part.kind for side in (self.a, self.b) for part in side.words}
        names = {"special": "special tokens", "template": "the template", "constant": "the constant"}
        others = " and ".join(name for kind, name in names.items() if kind in kinds)
        return [
            "Each line joins two words that add more to the score than they add with other words; the thicker, the "
            "more.",
            f"Of {self.cosine:.2f}, the pairs shown add {drawn:.2f}"
            + (f", those with {others} {self.outside:.2f}" if others else "")
            + ", all others the rest. This divides the score exactly, but proves no cause: each word's vector has "
            "read the text around it.",
        ]

    def svg(self, width: int = draw.WIDE, title: str = "", dark: bool | None = None) -> str:
        """Draw the picture as a self-contained SVG, `width` units wide.

        Args:
            width: the width of the picture; words wrap.
            title: what to write beside the number; default: the similarity and the method.
            dark: colours for dark or light pages; None = as the reader's system prefers.
        """
        title = title or f"cosine · {self.method}"
        return draw.pair_svg(f"{self.cosine:.2f}", title, *self._shown, width=width, dark=dark)

    @cached_property
    def _shown(self) -> tuple[list[Part], list[Part], list[draw.Line]]:
        """The words to draw, at most `draw.MOST` of each text, and the lines between them."""
        strength = self._outstanding
        kept = [draw.best(side.words, strength.max(axis, initial=-np.inf)) for side, axis in ((self.a, 1), (self.b, 0))]
        lines = [line.moved(*kept) for line in self.lines()]
        return draw.chosen(self.a.words, kept[0]), draw.chosen(self.b.words, kept[1]), lines

    def _repr_html_(self) -> str:
        counts = [sum(part.of_text for part in side.words) for side in (self.a, self.b)]
        pictures = [self.svg(draw.WIDE), self.svg(draw.NARROW)]
        return draw.card(pictures, [*self.notes(), *draw.left_out(counts)])

    def __repr__(self) -> str:
        pairs = [f"{pair.value:8.4f}  {draw.shortened(pair.a)} · {draw.shortened(pair.b)}" for pair in self.top(5)]
        return "\n".join([f"cosine {self.cosine:.4f} ({self.method}); what the five best pairs of words add:", *pairs])


def _reason(explanation: Explanation) -> str:
    for side in (explanation.a, explanation.b):
        weighed = np.flatnonzero(side.weights)
        if len(weighed) == 1:
            token = side.tokens[int(weighed[0])].text
            return f"all weight is on one token, {draw.shortened(token)!r}; a method that pools the mean shows words."
    return "a text has no word."


def _unit(rows: Array) -> Array:
    return rows / max(float(np.linalg.norm(rows.sum(0))), np.finfo(np.float64).tiny)


def _texts(parts: Sequence[Part]) -> list[str]:
    return [part.text for part in parts]
