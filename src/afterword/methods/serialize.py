"""Read and write methods as JSON, and read them from text such as ``reba:copies=2,pool=mean``."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, get_type_hints

from ..backbone.bidirectional import Sight
from ..errors import MethodError, UnknownMethod
from ..spelling import build, check_options, did_you_mean, read_spelling
from ..text.layout import Layout
from .catalogue import CATALOGUE
from .code_hash import is_own
from .frequency import ByToken
from .method import Method
from .method_file import method_in_file
from .states import States
from .templates import TEMPLATES
from .weights import WEIGHTINGS, Weighting


def to_json(method: Method) -> dict[str, Any]:
    """A method as plain data, without fitted token weights.

    >>> from afterword.methods import reba
    >>> from_json(to_json(reba(copies=3))) == reba(copies=3)
    True
    """
    return {
        "name": method.name,
        "layout": asdict(method.layout),
        "states": method.states.kind,
        "weigh": _weighting(method.weigh),
        "sight": {**asdict(method.sight), "layers": list(method.sight.layers)},
    }


def _weighting(weigh: Weighting) -> dict[str, Any]:
    """A weighting as plain data: its kind and its fields; of a user's own class, where that is defined."""
    cls = type(weigh)
    if "kind" not in vars(cls):
        raise MethodError(f"{cls.__name__} has no kind, by which files name it: write kind = 'a_name' in the class")
    where = {"class": f"{cls.__module__}.{cls.__qualname__}"} if is_own(cls) else {}
    fitted = {"table"} if isinstance(weigh, ByToken) else set()
    values = {f.name: getattr(weigh, f.name) for f in fields(weigh) if f.name not in fitted}
    for name, value in values.items():
        if not _is_plain(value):
            raise MethodError(
                f"{cls.__name__}: {name} is a {type(value).__name__}, which no file can hold: give a number, a "
                "string, true or false, none, or a tuple of these"
            )
    return {"kind": cls.kind, **where, **values}


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | float | None) or (
        isinstance(value, tuple | list) and all(map(_is_plain, value))
    )


def from_json(data: Mapping[str, Any]) -> Method:
    """A method from plain data: what `to_json` gave, or ``{"method": "reba", "copies": 2}``.

    Raises:
        MethodError: it is neither, or an option is unknown.
    """
    if not isinstance(data, Mapping):
        raise MethodError(f"a method is an object, not {data!r:.60}")
    if "method" in data:
        return make(str(data["method"]), {k: v for k, v in data.items() if k != "method"})
    if unknown := set(data) - {"name", "layout", "states", "weigh", "sight"}:
        raise MethodError(f"a method has no {sorted(map(str, unknown))[0]!r}: it has layout, states, weigh and sight")
    weigh = dict(_object(data, "weigh"))
    kind = weigh.pop("kind", "plain")
    where = weigh.pop("class", None)
    if not isinstance(kind, str) or kind not in WEIGHTINGS:
        raise MethodError(f"weigh kind {kind!r}: " + _to_import(where))
    sight = dict(_object(data, "sight"))
    layers = sight.get("layers", [])
    sight["layers"] = tuple(layers) if isinstance(layers, list) else layers
    return Method(
        build(Layout, _object(data, "layout")),
        States(str(data.get("states", "last"))),
        build(WEIGHTINGS[kind], weigh),
        build(Sight, sight),
        name=str(data.get("name", "custom")),
    )


def _to_import(where: object) -> str:
    """What to do about a kind that is not known: a class of the user's is never imported from here."""
    if not isinstance(where, str):
        return f"choose one of {', '.join(WEIGHTINGS)}"
    module, _, name = where.partition(".") if where.startswith("__main__.") else where.rpartition(".")
    if module == "__main__":
        return f"it is the class {name} of a script or a notebook: define that class, or import it, and load again"
    file = module.replace(".", "/") + ".py"
    return (
        f"it is the class {name} of {module}, which is no part of Afterword: import it first (import {module}), or "
        f"name a method of its file (--method @{file}:NAME)"
    )


def _object(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = data.get(key, {})
    if not isinstance(value, Mapping):
        raise MethodError(f"{key} is an object, not {value!r:.60}")
    return value


def parse_method(text: str) -> Method:
    """Read a method from text.

    Args:
        text: ``name`` or ``name:option=value,option=value``; a value with a comma stands in double quotes, as in
            JSON; ``@file.json`` reads a file, and ``@file.py:name`` runs one.

    Raises:
        UnknownMethod: there is no such method; the message lists the names.
        MethodError: an option is unknown or has a wrong value.

    >>> parse_method("reba:copies=3,pool=mean").name
    'reba-3 mean'
    """
    text = text.strip()
    if not text.startswith("@"):
        return make(*read_spelling(text))
    return method_in_file(text) or from_json(_read(Path(text[1:])))


def _read(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise MethodError(f"{path} cannot be read: {e.strerror or e}") from None
    except ValueError as e:
        raise MethodError(f"{path} is not JSON: {e}") from None
    if not isinstance(found, Mapping):
        raise MethodError(f'{path} holds no object: write {{"method": "reba", "copies": 2}}')
    return found


def make(name: str, options: Mapping[str, Any]) -> Method:
    """A method by name and options.

    Raises:
        UnknownMethod: there is no such method; the message lists the names.
        MethodError: an option is unknown or has a wrong value.

    >>> make("echo", {"copies": 3}).layout.copies
    3
    """
    if name not in CATALOGUE:
        if name.partition(" ")[0] in CATALOGUE:
            raise UnknownMethod(f"no method {name!r}: write options after a colon, as in reba:copies=2,pool=mean")
        raise UnknownMethod(f"no method {name!r}{did_you_mean(name, CATALOGUE)}: there are {', '.join(CATALOGUE)}")
    given = dict(options)
    if isinstance(given.get("layers"), str | int):
        given["layers"] = _layers(str(given["layers"]))
    if isinstance(given.get("head"), list):
        given["head"] = tuple(given["head"])
    template = given.get("template")
    if isinstance(template, str) and "{" not in template and template not in TEMPLATES:
        raise MethodError(
            f"{name}: no template {template!r}{did_you_mean(template, TEMPLATES)}: there are {', '.join(TEMPLATES)}; "
            "or write one, with {text} where the text goes"
        )
    function = CATALOGUE[name]
    check_options(name, given, get_type_hints(function), inspect.signature(function).parameters)
    try:
        return CATALOGUE[name](**given)
    except (TypeError, AttributeError, ValueError) as e:
        if isinstance(e, MethodError):
            raise
        raise MethodError(f"{name}: {e}") from None


def _layers(text: str) -> list[int]:
    """Layers as ``3+5+7``."""
    try:
        return [int(part) for part in text.split("+")]
    except ValueError:
        raise MethodError(f"layers={text}: write layer numbers from 0, joined by +, as in 3+5") from None
