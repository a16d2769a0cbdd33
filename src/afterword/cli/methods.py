"""``afterword methods``: print what each method does, from the docstrings of the catalogue."""

from __future__ import annotations

import inspect
import json
import re
import textwrap
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from . import options as o

WIDTH = 110


@dataclass(frozen=True)
class Entry:
    """The description of a method, from its docstring and signature.

    Attributes:
        name: the name for ``--method``.
        summary: what it does, in a sentence.
        source: paper and section.
        notes: further paragraphs.
        options: for each option its name, its default as ``--method`` spells it, its choices and its meaning.
    """

    name: str
    summary: str
    source: str
    notes: list[str]
    options: list[dict[str, Any]]


def methods(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Names of methods. Default: all.")] = None,
    as_json: o.AsJson = False,
) -> int:
    """Print what each method does, its options with their defaults, and the paper it is from."""
    from ..errors import UnknownMethod
    from ..methods import CATALOGUE
    from ..methods.templates import TEMPLATES
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
    typer.echo("\n\n".join(printed(e) for e in entries))
    if not names or {"prompt", "bellm", "echo"} & set(names):
        typer.echo("\ntemplates\n" + "\n".join(f"    {name:<18} {text}" for name, text in TEMPLATES.items()))
    if not names:
        typer.echo('\nOn the command line: --method reba:copies=3,pool=mean; a value with a comma in "double quotes".')
    return 0


def entry(method: Callable[..., Any]) -> Entry:
    """The description of a method, from its docstring and signature.

    >>> from afterword.methods import reba
    >>> entry(reba).options[0]["name"], entry(reba).options[0]["default"]
    ('copies', '2')
    """
    head, _, rest = inspect.cleandoc(method.__doc__ or "").partition("\nArgs:\n")
    paragraphs = [" ".join(p.split()) for p in head.split("\n\n") if p.strip()]
    source = next((p.removeprefix("Source: ") for p in paragraphs if p.startswith("Source: ")), "")
    notes = [p for p in paragraphs[1:] if not p.startswith("Source: ")]
    meanings = _arguments(rest)
    options = [
        {
            "name": name,
            "default": spelled(parameter.default),
            "choices": _choices(str(parameter.annotation)),
            "what": meanings.get(name, ""),
        }
        for name, parameter in inspect.signature(method).parameters.items()
    ]
    return Entry(method.__name__, paragraphs[0], source, notes, options)


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


def printed(method: Entry) -> str:
    """The description as text."""
    lines = [method.name, *_wrapped(method.summary, "    "), *_wrapped(f"Source: {method.source}", "    ")]
    for note in method.notes:
        lines += _wrapped(note, "    ")
    lines.append("")
    for option in method.options:
        one_of = f" (one of {', '.join(option['choices'])})" if option["choices"] else ""
        head = f"{option['name']}={option['default']}"
        lines += _wrapped(f"{option['what']}{one_of}", " " * 34, f"    {head:<29} ")
    return "\n".join(lines)


def _wrapped(text: str, indent: str, first: str | None = None) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=first or indent, subsequent_indent=indent) or [first or indent]
