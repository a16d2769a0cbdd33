"""What makes `make test` quick without losing a law: nothing that was checked a moment ago is checked again.

The shapes of each checked function are checked in its first call of every test file, and in every hundredth one after
that. The self-check runs once for a model: for the same class, configuration, weights and tokenizer, a later load in
this process takes over what it found; the tests of the self-check itself always run it. A training draws its losses in
the tests that are marked `draws_losses`. AFTERWORD_CHECK_ALL=1 does everything each time, and `make soak` sets it.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jaxtyping

LATER = 100
"""The first call of a function in a test file has its shapes checked, and each of so many later ones."""

ALL = os.environ.get("AFTERWORD_CHECK_ALL", "0") != "0"

_begun: list[str] = [""]


def begin_test(name: str, draws_losses: bool) -> None:
    """Called before each test: in a new file, first calls are checked; a training draws its losses, or does not."""
    _begun[0] = name.split("::", maxsplit=1)[0]
    if (run := sys.modules.get("afterword.train.run")) is not None:
        from afterword.papers.figure import draw_losses

        run.draw_losses = draw_losses if draws_losses or ALL else lambda *_: None  # type: ignore[attr-defined]


@contextmanager
def sampled() -> Iterator[None]:
    """Modules that are imported in here check shapes as a sample, not at each call."""
    every = jaxtyping.jaxtyped
    if not ALL:
        jaxtyping.jaxtyped = _sampled(every)  # type: ignore[assignment]
    try:
        yield
    finally:
        jaxtyping.jaxtyped = every


def _sampled(every: Callable[..., Any]) -> Callable[..., Any]:
    def jaxtyped(*, typechecker: Any) -> Callable[[Any], Any]:
        def decorate(function: Any) -> Any:
            if isinstance(function, type):
                plain = function.__init__  # type: ignore[misc]
                whole = every(typechecker=typechecker)(function)
                if whole.__init__ is not plain:
                    whole.__init__ = sometimes(whole.__init__, plain)
                return whole
            checked = every(typechecker=typechecker)(function)
            if not callable(function) or isinstance(function, staticmethod | classmethod | property):
                return checked
            return sometimes(checked, function)

        return decorate

    def sometimes(checked: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
        calls, last = 0, ""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls, last
            calls, last = (calls + 1 if last == _begun[0] else 1), _begun[0]
            return (checked if calls % LATER == 1 else function)(*args, **kwargs)

        return call

    return jaxtyped


def remember_self_checks() -> None:
    """A model that is loaded a second time takes over what its first self-check found out."""
    if ALL:
        return
    from afterword.backbone import loading
    from afterword.backbone.backbone import Backbone
    from afterword.backbone.introspection import quantised
    from afterword.files.fingerprint import weights_digest

    found: dict[str, tuple[Any, list[int], str]] = {}
    check = loading.check

    def remembered(model: Any, tokenizer: Any) -> Backbone:
        if quantised(model) or "test_self_check" in _begun[0]:
            return check(model, tokenizer)
        config = {k: v for k, v in model.config.to_dict().items() if k not in ("_name_or_path", "_commit_hash")}
        named = [type(model).__qualname__, config, weights_digest(model).hex()]
        named += [tokenizer.description, tokenizer.max_length, tokenizer.hf.special_tokens_map]
        key = json.dumps([*named, model.config._attn_implementation], sort_keys=True, default=str)
        if key in found:
            facts, places, attention = found[key]
            if model.config._attn_implementation != attention:
                model.set_attn_implementation(attention)
            modules = list(model.modules())
            return Backbone(model, tokenizer, facts, [modules[i] for i in places])
        backbone = check(model, tokenizer)
        places = {id(module): i for i, module in enumerate(model.modules())}
        order = [places[id(module)] for module in backbone.modules]
        found[key] = backbone.facts, order, model.config._attn_implementation
        return backbone

    loading.check = remembered
