"""Read and write methods as JSON, and read them from text such as ``reba:copies=2,pool=mean``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_type_hints

from ..backbone.bidirectional import Sight
from ..errors import MethodError, UnknownMethod
from ..spelling import build, did_you_mean, number, read_spelling, written
from ..text.layout import Layout
from .catalogue import CATALOGUE
from .code_hash import is_own
from .ensembles import ENSEMBLES
from .frequency import ByToken
from .method import AnyMethod, Ensemble, Method
from .method_file import method_in_file
from .states import OWN_STATES, OwnStates, States
from .templates import TEMPLATES
from .weights import WEIGHTINGS, Weighting


def to_json(method: AnyMethod) -> dict[str, Any]:
    """A method or an ensemble as plain data, without fitted token weights.

    >>> from afterword.methods import reba
    >>> from_json(to_json(reba(copies=3))) == reba(copies=3)
    True
    """
    if isinstance(method, Ensemble):
        weights = None if method.weights is None else list(method.weights)
        settings = {"join": method.join, "weights": weights, "normalise": method.normalise}
        return {"name": method.name, **settings, "methods": [to_json(member) for member in method.methods]}
    return {
        "name": method.name,
        "layout": written(method.layout),
        "states": _of_class(method.states) if isinstance(method.states, OwnStates) else method.states.kind,
        "weigh": _of_class(method.weigh),
        "sight": {k: list(v) if isinstance(v, tuple) else v for k, v in written(method.sight).items()},
    }


def _of_class(part: Weighting | OwnStates) -> dict[str, Any]:
    """A weighting or states as plain data: kind and fields; of a user's own class, where that is defined."""
    cls = type(part)
    if "kind" not in vars(cls):
        raise MethodError(f"{cls.__name__} has no kind, by which files name it: write kind = 'a_name' in the class")
    where = {"class": f"{cls.__module__}.{cls.__qualname__}"} if is_own(cls) else {}
    fitted = {"table"} if isinstance(part, ByToken) else set()
    values = {name: value for name, value in written(part).items() if name not in fitted}
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


def from_json(data: Mapping[str, Any]) -> AnyMethod:
    """A method or an ensemble from plain data: what `to_json` gave, or ``{"method": "reba", "copies": 2}``.

    Raises:
        MethodError: it is neither, or an option is unknown.
    """
    if not isinstance(data, Mapping):
        raise MethodError(f"a method is an object, not {data!r:.60}")
    if "method" in data:
        return make(str(data["method"]), {k: v for k, v in data.items() if k != "method"})
    if "methods" in data:
        made: Ensemble = build(Ensemble, {**data, "methods": _members(data["methods"])}, "ensemble")
        return made
    if unknown := set(data) - {"name", "layout", "states", "weigh", "sight"}:
        raise MethodError(f"a method has no {sorted(map(str, unknown))[0]!r}: it has layout, states, weigh and sight")
    states = data.get("states", "last")
    sight = dict(_object(data, "sight"))
    layers = sight.get("layers", [])
    sight["layers"] = tuple(layers) if isinstance(layers, list) else layers
    return Method(
        build(Layout, _object(data, "layout")),
        _class("states", states, OWN_STATES) if isinstance(states, Mapping) else States(str(states)),
        _class("weigh", {"kind": "plain", **_object(data, "weigh")}, WEIGHTINGS),
        build(Sight, sight),
        name=str(data.get("name", "custom")),
    )


def _class(name: str, data: Mapping[str, Any], kinds: Mapping[str, Any]) -> Any:
    """A part of a method from plain data, by its kind."""
    options = dict(data)
    kind, where = options.pop("kind", None), options.pop("class", None)
    if not isinstance(kind, str) or kind not in kinds:
        raise MethodError(f"{name} kind {kind!r}: " + _to_import(where, kinds))
    return build(kinds[kind], options)


def _to_import(where: object, kinds: Mapping[str, Any]) -> str:
    """What to do about a kind that is not known: a class of the user's is never imported from here."""
    if not isinstance(where, str):
        return f"choose one of {', '.join(kinds)}"
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


def parse_method(text: str) -> AnyMethod:
    """Read a method or an ensemble from text.

    Args:
        text: ``name`` or ``name:option=value,option=value``; a value with a comma stands in double quotes, as in
            JSON; ``@file.json`` reads a file, and ``@file.py:name`` runs one. ``ensemble:ck`` and
            ``ensemble:methods="echo;reba:pool=mean"`` are ensembles.

    Raises:
        UnknownMethod: there is no such method; the message lists the names.
        MethodError: an option is unknown or has a wrong value.

    >>> parse_method("reba:copies=3,pool=mean").name
    'reba-3 mean'
    """
    text = text.strip()
    if text.startswith("@"):
        return method_in_file(text) or from_json(_read(Path(text[1:])))
    name, options = read_spelling(re.sub(r"^ensemble\s*:\s*(\w+)\s*(?=,|$)", r"ensemble:methods=\1", text))
    if name == "ensemble" and "methods" in options:
        options["methods"] = _members(options["methods"], parse_method)
    return make(name, options)


def _members(value: Any, read: Callable[[str], AnyMethod] = lambda text: make(*read_spelling(text))) -> Any:
    """The methods of an ensemble, from names or plain data, or its own name. Only what a user types may name files."""
    if isinstance(value, str) and re.fullmatch(r"\w+", value) and value not in CATALOGUE:
        return value
    if not isinstance(value, str | list | tuple):
        raise MethodError(f"ensemble: methods={value!r:.60}: give a list of methods, or one of {', '.join(ENSEMBLES)}")
    parts = re.findall(r'(?:"(?:[^"\\]|\\.)*"|[^;])+', value) if isinstance(value, str) else value
    methods = [read(part) if isinstance(part, str) else part for part in parts]
    made: Any = tuple(from_json(method) if isinstance(method, Mapping) else method for method in methods)
    return Ensemble(made).methods


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


def make(name: str, options: Mapping[str, Any]) -> AnyMethod:
    """A method or an ensemble by name and options.

    Raises:
        UnknownMethod: there is no such method; the message lists the names.
        MethodError: an option is unknown or has a wrong value.

    >>> make("echo", {"copies": 3}).layout.copies
    3
    """
    if name not in CATALOGUE:
        if name.partition(" ")[0] in CATALOGUE:
            raise UnknownMethod(f"no method {name!r}: write options after a colon, as in reba:copies=2,pool=mean")
        spelled = {**{t: f"prompt:template={t}" for t in TEMPLATES}, **{e: f"ensemble:{e}" for e in ENSEMBLES}}
        hint = f" (did you mean {spelled[name]!r}?)" if name in spelled else did_you_mean(name, CATALOGUE)
        raise UnknownMethod(f"no method {name!r}{hint}: there are {', '.join(CATALOGUE)}")
    given = dict(options)
    if isinstance(given.get("layers"), str | int):
        given["layers"] = _numbers("layers", str(given["layers"]), int, "layer numbers from 0, joined by +, as in 3+5")
    if isinstance(given.get("head"), list):
        given["head"] = tuple(given["head"])
    if name == "ensemble" and "methods" in given:
        given["methods"] = _members(given["methods"])
    if isinstance(given.get("weights"), str | int):
        given["weights"] = _numbers("weights", str(given["weights"]), float, "numbers joined by +, as in 1+0.5")
    template = given.get("template")
    if isinstance(template, str) and "{" not in template and template not in TEMPLATES:
        raise MethodError(
            f"{name}: no template {template!r}{did_you_mean(template, TEMPLATES)}: there are {', '.join(TEMPLATES)}; "
            "or write one, with {text} where the text goes"
        )
    function = CATALOGUE[name]
    hints = get_type_hints(function)
    given = {key: number(value) if hints.get(key) is float else value for key, value in given.items()}
    return build(function, given, name)  # type: ignore[no-any-return]


def _numbers(option: str, text: str, number: Callable[[str], float], what: str) -> list[float]:
    """Numbers as ``3+5+7``."""
    try:
        return [number(part) for part in text.split("+")]
    except ValueError:
        raise MethodError(f"{option}={text}: write {what}") from None
