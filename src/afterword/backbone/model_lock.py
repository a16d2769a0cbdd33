"""Who may run a model at one time, and in which mode: encoding, training and checking exclude one another.

The modes of a model, eval and train, are attributes of its modules, and checking a model changes its attention and
its precision for a while: what one thread sets, every other one runs with.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal
from weakref import WeakKeyDictionary

from torch import nn

Use = Literal["eval", "train", "exclusive"]


class ModelLock:
    """Lets in as many threads as like, while all of them do the same; whoever is inside may go in again."""

    def __init__(self) -> None:
        self.rotary = threading.Lock()
        """Held by forwards of models that keep, in a buffer, rotary frequencies for the length at hand."""
        self._changed = threading.Condition()
        self._inside: dict[object, tuple[Use, int]] = {}
        self._waiting: list[Use] = []
        self._switched: list[nn.Module] = []

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Nobody else runs the model through an Encoder."""
        with self._entering("exclusive"):
            yield

    @contextmanager
    def running(self, model: nn.Module, keep_mode: bool = False) -> Iterator[list[nn.Module]]:
        """Run the model in eval mode, whoever trained it last; its modes are restored when the last one is out.

        Args:
            model: all its modules are looked at: adapters may be in train mode inside a model in eval mode.
            keep_mode: run it as it is, dropout included, where it is in train mode.

        Yields:
            Its modules.
        """
        modules = all_modules(model)
        kind: Use = "train" if keep_mode and (self._switched or any(m.training for m in modules)) else "eval"
        with self._entering(kind):
            try:
                if kind == "eval":
                    with self._changed:
                        self._to_eval(modules)
                yield modules
            finally:
                with self._changed:
                    if sum(inside == "eval" for inside, _ in self._inside.values()) <= 1:
                        self._back_to_train()

    def _to_eval(self, modules: list[nn.Module]) -> None:
        for module in modules:
            if module.training:
                self._switched.append(module)
                module.training = False

    def _back_to_train(self) -> None:
        for module in self._switched:
            module.training = True
        self._switched.clear()

    @contextmanager
    def _entering(self, kind: Use) -> Iterator[None]:
        token, me = object(), threading.get_ident()
        try:
            with self._changed:
                if not any(thread == me for _, thread in self._inside.values()):
                    self._waiting.append(kind)
                    try:
                        self._changed.wait_for(lambda: self._may_enter(kind))
                    finally:
                        self._waiting.remove(kind)
                self._inside[token] = kind, me
            yield
        finally:
            with self._changed:
                self._inside.pop(token, None)
                self._changed.notify_all()

    def _may_enter(self, kind: Use) -> bool:
        """Nobody is inside; or all inside do the same, and nobody waits to do something else."""
        if not self._inside:
            return True
        same = all(inside == kind for inside, _ in self._inside.values())
        return kind != "exclusive" and same and all(waiting == kind for waiting in self._waiting)


def all_modules(model: nn.Module) -> list[nn.Module]:
    """All its modules, quickly; one that stands in several places may be named as often."""
    found = [model]
    for module in found:
        found += [child for child in module._modules.values() if child is not None]
    return found


def first_weight(model: nn.Module) -> nn.Parameter | None:
    """The first of ``model.parameters()``, quickly; None where there is none."""
    for weight in model._parameters.values():
        if weight is not None:
            return weight
    for child in model._modules.values():
        if child is not None and (found := first_weight(child)) is not None:
            return found
    return None


def in_training(model: nn.Module) -> list[nn.Module]:
    """The modules that are in train mode."""
    return [module for module in all_modules(model) if module.training]


_LOCKS: WeakKeyDictionary[nn.Module, ModelLock] = WeakKeyDictionary()
_REGISTRY_LOCK = threading.Lock()


def lock_of(model: nn.Module) -> ModelLock:
    """The one gate of a model, however many backbones hold it."""
    with _REGISTRY_LOCK:
        if (found := _LOCKS.get(model)) is None:
            found = _LOCKS[model] = ModelLock()
        return found
