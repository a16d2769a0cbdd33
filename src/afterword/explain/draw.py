"""Draw words and lines between them as SVG, and put pictures into HTML without scripts or outside requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Literal
from unicodedata import bidirectional, category, east_asian_width

import numpy as np
from numpy.typing import NDArray

from ..errors import one_line

WIDE, NARROW = 720, 340  # widths of the two versions of a picture in HTML, which shows the one that fits
MOST = 60  # maximum number of words of a text in a picture
LONGEST = 24  # maximum number of characters of a word in a picture

WEIGHTS = (
    "The darker a word, the larger its weight in the text's vector; each word's vector has read the text around it."
)

SIZE, ROW, SPACE, BETWEEN, TOP = 17, 31, 6, 104, 46  # font size, heights of a row, space, the lines and the head

LIGHT = {"ink": "#1f2328", "dim": "#6e7781", "line": "#0069a8", "page": "#ffffff", "edge": "#d8dee4"}
DARK = {"ink": "#e6edf3", "dim": "#9aa4af", "line": "#4f9df5", "page": "#0d1117", "edge": "#30363d"}

RULES = """
.aw{background:var(--page);color:var(--ink)}
.aw text{font:17px system-ui,-apple-system,"Segoe UI","Noto Sans","Noto Sans CJK SC",sans-serif;fill:var(--dim);
paint-order:stroke;stroke:var(--page);stroke-width:4px;stroke-linejoin:round}
.aw text.on{fill:var(--ink);font-weight:600}
.aw text.off{font-size:13px;font-style:italic}
.aw text.score{font-size:26px;font-weight:700;fill:var(--line)}
.aw text.what{font-size:14px}
.aw rect{fill:var(--line)}
.aw path{fill:none;stroke:var(--line);stroke-linecap:round}
"""

CARD = """
div.aw{box-sizing:border-box;container-type:inline-size;max-width:752px;padding:14px 16px;border-radius:8px;
border:1px solid var(--edge);font:14px/1.5 system-ui,-apple-system,"Segoe UI","Noto Sans",sans-serif;text-align:left}
div.aw svg{display:block;width:100%;height:auto}
div.aw svg.narrow{display:none;max-width:380px}
@container (max-width:539px){div.aw svg.wide{display:none}div.aw svg.narrow{display:block}}
div.aw p{margin:8px 0 0;color:var(--dim);font-size:13px}
div.aw .words{font-size:17px;line-height:2;overflow-wrap:anywhere;margin:0;color:var(--ink)}
div.aw .words span{border-radius:4px;padding:2px 3px}
div.aw .words span.off{color:var(--dim);font-size:13px;font-style:italic}
div.aw .scroll{overflow-x:auto}
div.aw table{border-collapse:collapse;color:var(--ink);margin:0}
div.aw th,div.aw td{padding:3px 9px 3px 0;text-align:left;font-weight:400;border:0;background:none;color:var(--ink)}
div.aw th{color:var(--dim)}
div.aw td.cell{text-align:right;padding:3px 9px;border-radius:4px;font-variant-numeric:tabular-nums}
"""


Kind = Literal["word", "mark", "special", "template", "constant"]
"""A word of the text, a punctuation mark of the text, a special token, a run of template tokens around the text, or the
constant of a post-processing step."""


@dataclass(frozen=True)
class Part:
    """A token or a word.

    Attributes:
        text: how it is shown.
        kind: what it is.
        joined: whether it follows the part before it without a space.
    """

    text: str
    kind: Kind = "word"
    joined: bool = False

    @property
    def of_text(self) -> bool:
        """Whether it belongs to the text itself."""
        return self.kind in ("word", "mark")

    @classmethod
    def word(cls, text: str, joined: bool = False) -> Part:
        """A word, or a mark if there is only punctuation."""
        return cls(text, "mark" if all(category(c)[0] == "P" for c in text) else "word", joined)


@dataclass(frozen=True)
class Line:
    """A line between word i of the first row and word j of the second, with a strength in (0, 1] and a tooltip."""

    i: int
    j: int
    strength: float
    note: str = ""

    def moved(self, first: Sequence[int], second: Sequence[int]) -> Line:
        """The same line, if only some words are drawn: those with these indices."""
        return replace(self, i=first.index(self.i), j=second.index(self.j))


def best(parts: Sequence[Part], strength: NDArray[np.float64]) -> list[int]:
    """The indices of at most `MOST` parts to draw: the strongest words, and what is not a word of the text."""
    strongest = sorted((k for k, part in enumerate(parts) if part.of_text), key=lambda k: -strength[k])[:MOST]
    return sorted([*strongest, *(k for k, part in enumerate(parts) if not part.of_text)])


def chosen(parts: Sequence[Part], kept: Sequence[int]) -> list[Part]:
    """The parts with these indices; a word after a gap begins with an ellipsis."""
    gaps = [k > 0 and before != k - 1 for before, k in zip([-1, *kept], kept, strict=False)]
    return [
        replace(parts[k], text=f"… {parts[k].text}", joined=False) if gap else parts[k]
        for k, gap in zip(kept, gaps, strict=True)
    ]


def left_out(counts: Sequence[int]) -> list[str]:
    """A note for each text of more than `MOST` words."""
    return [f"Shown are the {MOST} words of {count:,} that stand out most." for count in counts if count > MOST]


def shortened(text: str, most: int = LONGEST) -> str:
    """Put a word on one line of at most `most` characters, and escape its control characters."""
    line = one_line(text)
    return line if len(line) <= most else f"{line[: most - 1]}…"


def width_of(text: str, size: float = SIZE) -> float:
    """The approximate width of a text in a sans-serif font; the picture makes each word exactly this wide."""
    return size * sum(map(_em, text))


def _em(c: str) -> float:
    if category(c) in ("Mn", "Me", "Cf"):
        return 0.0
    if east_asian_width(c) in "WF":
        return 1.0
    for letters, em in (("ijl.,:;'|!‘’", 0.27), ('ftrI()[]{}/\\"“”- ', 0.38), ("mwMW@%—…", 0.86)):
        if c in letters:
            return em
    return 0.69 if c.isupper() else 0.58


@dataclass(frozen=True)
class _Placed:
    """A word at its place: its left end, its baseline and its width."""

    part: Part
    text: str
    x: float
    y: float
    width: float

    @property
    def middle(self) -> float:
        return self.x + self.width / 2


def _laid_out(parts: Sequence[Part], bold: set[int], width: float, top: float) -> list[_Placed]:
    """Lay out words in centred rows; those of a text from right to left run from right to left."""
    rows: list[list[_Placed]] = [[]]
    x = 0.0
    for k, part in enumerate(parts):
        text = shortened(part.text)
        size = (SIZE if part.of_text else 13) * (1.08 if k in bold else 1)
        wide = min(width_of(text, size), width)
        gap = (1 if part.joined else SPACE) if rows[-1] else 0
        if rows[-1] and x + gap + wide > width:
            rows.append([])
            x, gap = 0.0, 0
        rows[-1].append(_Placed(part, text, x + gap, top + ROW * (len(rows) - 1) + SIZE, wide))
        x += gap + wide
    letters = (bidirectional(c) for part in parts if part.of_text for c in part.text)
    reverse = next((kind for kind in letters if kind in ("L", "R", "AL")), "L") != "L"
    placed = []
    for row in rows:
        left, end = (width - row[-1].x - row[-1].width) / 2 if row else 0, width
        for word in row:
            x = word.x + left
            placed.append(replace(word, x=end - x - word.width if reverse else x))
    return placed


def pair_svg(
    score: str, what: str, a: Sequence[Part], b: Sequence[Part], lines: Sequence[Line], width: int = WIDE,
    dark: bool | None = None,
) -> str:  # fmt: skip
    """Draw two rows of words, lines between them, and a number above.

    Args:
        score, what: the number, and what is written beside it.
        a, b: the words of the two rows.
        lines: the lines, thicker with their strength.
        width: width of the picture; words wrap.
        dark: see `style`.
    """
    upper = _laid_out(a, {line.i for line in lines}, width - 8, TOP)
    bottom = max((word.y for word in upper), default=TOP)
    lower = _laid_out(b, {line.j for line in lines}, width - 8, bottom + BETWEEN)
    height = max((word.y for word in lower), default=bottom) + 14
    ends = [(upper[line.i], lower[line.j]) for line in lines]
    curves = [_curve(*pair, line) for pair, line in sorted(zip(ends, lines, strict=True), key=lambda x: x[1].strength)]
    linked = {id(word) for pair in ends for word in pair}
    texts = [_word(word, id(word) in linked) for word in (*upper, *lower)]
    wide = width_of(score, 31)
    head = f'<text class="score" x="0" y="25" textLength="{wide:.0f}">{escape(score)}</text>' if score else ""
    head += f'<text class="what" x="{wide + 10 if score else 0:.0f}" y="25">'
    what = shortened(what, int((width - wide) / 8))
    label = f"{score} {what}: " + "; ".join(line.note for line in lines)
    return (
        f'<svg class="aw {"wide" if width == WIDE else "narrow"}" xmlns="http://www.w3.org/2000/svg" role="img" '
        f'viewBox="-4 0 {width} {height:.0f}" width="{width}" height="{height:.0f}" aria-label="{escape(label)}">'
        f"<style>{style(dark)}</style>{head}{escape(what)}</text>" + "".join([*curves, *texts]) + "</svg>"
    )


def _curve(a: _Placed, b: _Placed, line: Line) -> str:
    top, end = a.y + 8, b.y - SIZE - 1
    bend = (end - top) * 0.55
    points = f"M{a.middle:.1f} {top:.1f}C{a.middle:.1f} {top + bend:.1f} {b.middle:.1f} {end - bend:.1f}"
    look = f'stroke-width="{1 + 5 * line.strength:.1f}" opacity="{0.35 + 0.6 * line.strength:.2f}"'
    return f'<path d="{points} {b.middle:.1f} {end:.1f}" {look}><title>{escape(line.note)}</title></path>'


def _word(word: _Placed, linked: bool) -> str:
    box, kind = "", "off" if not word.part.of_text else "on" if linked else "word"
    if linked:
        box = (
            f'<rect x="{word.x - 3:.1f}" y="{word.y - SIZE:.1f}" width="{word.width + 6:.1f}" height="24" rx="5" '
            'opacity="0.14"/>'
        )
    return (
        f'{box}<text class="{kind}" x="{word.x:.1f}" y="{word.y:.1f}" textLength="{word.width:.1f}" '
        f'lengthAdjust="spacingAndGlyphs">{escape(word.text)}</text>'
    )


def style(dark: bool | None = None) -> str:
    """The styles of a picture, for dark or light pages; None = as the reader's system prefers."""
    colours = [";".join(f"--{name}:{value}" for name, value in theme.items()) for theme in (LIGHT, DARK)]
    if dark is not None:
        return f".aw{{{colours[dark]}}}{RULES}"
    return f".aw{{{colours[0]}}}@media(prefers-color-scheme:dark){{.aw{{{colours[1]}}}}}{RULES}"


def card(body: Sequence[str], notes: Sequence[str] = ()) -> str:
    """Put HTML into a box for a notebook or a page, above notes."""
    paragraphs = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return f'<div class="aw"><style>{style()}{CARD}</style>{"".join(body)}{paragraphs}</div>'


def shaded(parts: Sequence[Part], values: NDArray[np.float64]) -> str:
    """Write words one after the other, each shaded by its value as a fraction of the largest."""
    most = max(float(np.abs(values).max(initial=0)), np.finfo(np.float64).tiny)
    spans = [
        f'<span{"" if part.of_text else " class=off"} style="background:{_shade(value / most)}" '
        f'title="{value:.4f}">{escape(shortened(part.text))}</span>'
        for part, value in zip(parts, values, strict=True)
    ]
    between = ["" if part.joined or k == 0 else " " for k, part in enumerate(parts)]
    return f'<p class="words">{"".join(x for pair in zip(between, spans, strict=True) for x in pair)}</p>'


def grid(heads: Sequence[str], values: NDArray[np.floating]) -> str:
    """A table of numbers (n, n), shaded, with a line of HTML before each row."""
    rows = [
        f"<tr><th>{i}</th><td>{head}</td>"
        + "".join(f'<td class="cell" style="background:{_shade(v)}">{v:.2f}</td>' for v in row)
        + "</tr>"
        for i, (head, row) in enumerate(zip(heads, values, strict=True), 1)
    ]
    top = "<tr><th></th><th></th>" + "".join(f"<th>{i}</th>" for i in range(1, len(heads) + 1)) + "</tr>"
    return f'<div class="scroll"><table>{top}{"".join(rows)}</table></div>'


def _shade(share: float) -> str:
    """A background that reads with dark and with light text."""
    return f"rgba({'31,136,208' if share >= 0 else '214,93,14'},{0.55 * min(abs(share), 1):.2f})"


def page(title: str, cards: Sequence[str]) -> str:
    """A page of pictures beside each other, as far as there is room."""
    shown = escape(shortened(title, 200))
    look = (
        "body{margin:0;padding:16px;background:#fff}@media(prefers-color-scheme:dark){body{background:#0d1117}}"
        "main{display:flex;flex-wrap:wrap;gap:16px;justify-content:center}main>div{flex:1 1 340px;min-width:0}"
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><meta name="color-scheme" '
        f'content="light dark"><title>{shown}</title><style>{look}</style></head><body><main>'
        f"{''.join(cards)}</main></body></html>\n"
    )
