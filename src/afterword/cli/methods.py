"""``afterword methods``: print what each method does, from the docstrings of the catalogue."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Annotated, Any

import typer

from . import options as o
from .tables import GAP, page_width, wrapped

WIDTH = 110  # maximum width of the page
NARROW = 72  # width below which a table becomes a list
PAPER, COST = 16, 17  # maximum widths of these columns


@dataclass(frozen=True)
class Entry:
    """The description of a method, from its docstring and signature.

    Attributes:
        name: the name for ``--method``.
        summary: what it does, in a sentence.
        source: paper and section.
        cost: forward passes and tokens, as they are by default.
        notes: further paragraphs.
        options: for each option its name, its default as ``--method`` spells it, its choices and its meaning.
    """

    name: str
    summary: str
    source: str
    cost: str
    notes: list[str]
    options: list[dict[str, Any]]


def methods(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Methods to describe in full. Default: a table of all.")
    ] = None,
    as_json: o.AsJson = False,
) -> int:
    """Print a table of all methods, or all about some: what they do, their options, defaults and papers.

    Examples:
        afterword methods
        afterword methods reba
    """
    from ..errors import UnknownMethod
    from ..methods import CATALOGUE
    from ..methods.prompts import TEMPLATES
    from ..spelling import did_you_mean

    if unknown := [name for name in names or () if name not in CATALOGUE]:
        raise UnknownMethod(
            f"no method {unknown[0]!r}{did_you_mean(unknown[0], CATALOGUE)}: there are {', '.join(CATALOGUE)}"
        )
    entries = [entry(CATALOGUE[name]) for name in names or CATALOGUE]
    if as_json:
        catalogue = {"methods": [asdict(e) for e in entries], "templates": TEMPLATES}
        typer.echo(json.dumps(catalogue, indent=2, ensure_ascii=False))
        return 0
    width = page_width(most=WIDTH)
    lines = overview(entries, width) if not names else "\n\n".join(printed(e, width) for e in entries).splitlines()
    if not names or {"prompt", "bellm", "echo"} & set(names):
        lines += ["", "templates", *(line for t in TEMPLATES.items() for line in _labelled(*t, 18, width))]
    if not names:
        lines += ["", *wrapped("`afterword methods NAME` describes the options of a method.", width)]
        lines += wrapped('Write --method reba:copies=3,pool=mean; a value with a comma in "double quotes".', width)
    typer.echo("\n".join(lines))
    return 0


def entry(method: Callable[..., Any]) -> Entry:
    """The description of a method, from its docstring and signature.

    >>> from afterword.methods import reba
    >>> entry(reba).options[0]["name"], entry(reba).options[0]["default"]
    ('copies', '2')
    """
    head, _, rest = inspect.cleandoc(method.__doc__ or "").partition("\nArgs:\n")
    paragraphs = [" ".join(p.split()) for p in head.split("\n\n") if p.strip()]
    named = dict(p.split(": ", 1) for p in paragraphs if p.startswith(("Source: ", "Cost: ")))
    notes = [p for p in paragraphs[1:] if p.partition(": ")[0] not in named]
    meanings = _arguments(rest)
    options = [
        {
            "name": name,
            "default": spelled(parameter.default),
            "choices": _choices(str(parameter.annotation)),
            "what": meanings.get(name, ""),
        }
        for name, parameter in inspect.signature(method, eval_str=True).parameters.items()
    ]
    return Entry(method.__name__, paragraphs[0], named.get("Source", ""), named.get("Cost", ""), notes, options)


def _arguments(section: str) -> dict[str, str]:
    """The entries of a Google style Args section: a name and a colon, with further lines indented deeper."""
    section = re.split(r"\n\s*\n|\n(?=\S)", section)[0]
    entries = re.findall(r"^    (\w+): (.*(?:\n     .*)*)", section, flags=re.M)
    return {name: " ".join(text.split()) for name, text in entries}


def _choices(annotation: str) -> list[str]:
    """The values that a Literal annotation allows."""
    return re.findall(r"'([^']*)'", annotation.replace('"', "'")) if "Literal[" in annotation else []


def spelled(value: object) -> str:
    """A default value as ``--method`` spells it.

    >>> spelled(None), spelled(True), spelled("mean")
    ('none', 'true', 'mean')
    """
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return "none" if value == () else '""' if value == "" else str(value)


def overview(methods: Sequence[Entry], width: int) -> list[str]:
    """A table with a row per method; on a narrow page, a list."""
    rows = [
        (e.name, _sentence(e.summary), re.split(r"[;,](?![^()]*\))", e.source)[0], e.cost.rstrip(".")) for e in methods
    ]
    if width < NARROW:
        return [line for name, *rest in rows for line in (name, *(w for r in rest for w in wrapped(r, width, "    ")))]
    first = max(len(name) for name, *_ in rows)
    widths = [first, width - first - PAPER - COST - 3 * GAP, PAPER, COST]
    lines = []
    for row in [("method", "what it does", "paper", "cost"), *rows]:
        cells = [wrapped(cell, columns) for cell, columns in zip(row, widths, strict=True)]
        for parts in zip_longest(*cells, fillvalue=""):
            padded = [f"{part:<{columns}}" for part, columns in zip(parts, widths, strict=True)]
            lines += [(" " * GAP).join(padded).rstrip()]
    return lines


def _sentence(text: str) -> str:
    return text.partition(". ")[0].rstrip(".")


def printed(method: Entry, width: int = WIDTH) -> str:
    """The description as text."""
    lines = [method.name]
    for paragraph in (method.summary, *method.notes, f"Source: {method.source}", f"Cost: {method.cost}"):
        lines += wrapped(paragraph, width, "    ")
    lines.append("")
    for option in method.options:
        one_of = f" (one of {', '.join(option['choices'])})" if option["choices"] else ""
        lines += _labelled(f"{option['name']}={option['default']}", f"{option['what']}{one_of}", 29, width)
    return "\n".join(lines)


def _labelled(label: str, text: str, columns: int, width: int) -> list[str]:
    """A text beside its label; on a narrow page, or beside a long label, under it."""
    if width < NARROW or len(label) > columns:
        return [f"    {label}", *wrapped(text, width, " " * 8)]
    return wrapped(text, width, " " * (columns + 5), f"    {label:<{columns}} ")
