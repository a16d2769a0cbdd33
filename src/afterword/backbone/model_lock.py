"""The lock of a model: threads may encode together, or train together, or one may check it, but not at the same time.

Eval and train mode are attributes of a model's modules, and the self-check changes a model's attention implementation
and precision for a while. Both affect every thread that runs the model.
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
    """A shared lock: any number of threads may hold it for the same use. A thread that holds it may take it again."""

    def __init__(self) -> None:
        self.rotary = threading.Lock()
        """For models that keep rotary frequencies for the current length in a buffer: one forward at a time."""
        self._changed = threading.Condition()
        self._inside: dict[object, tuple[Use, int]] = {}
        self._waiting: list[Use] = []
        self._switched: list[nn.Module] = []

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the lock alone: no other thread runs the model through an Encoder."""
        with self._entering("exclusive"):
            yield

    @contextmanager
    def running(self, model: nn.Module, keep_mode: bool = False) -> Iterator[list[nn.Module]]:
        """Run the model in eval mode; modules go back to train mode when the last thread is done.

        Args:
            model: the modes of all its modules are set, since adapters may be in train mode in a model in eval mode.
            keep_mode: keep its own mode, dropout included, if it is in train mode.

        Yields:
            All modules of the model.
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
        """Whether no thread holds the lock; or all hold it for this shared use, and none waits for another use."""
        if not self._inside:
            return True
        same = all(inside == kind for inside, _ in self._inside.values())
        return kind != "exclusive" and same and all(waiting == kind for waiting in self._waiting)


def all_modules(model: nn.Module) -> list[nn.Module]:
    """All modules of a model, faster than ``model.modules()``; one that is used in several places is repeated."""
    modules = [model]
    for module in modules:
        modules += [child for child in module._modules.values() if child is not None]
    return modules


def first_weight(model: nn.Module) -> nn.Parameter | None:
    """The first of ``model.parameters()``, but faster; None if there is none."""
    for weight in model._parameters.values():
        if weight is not None:
            return weight
    for child in model._modules.values():
        if child is not None and (weight := first_weight(child)) is not None:
            return weight
    return None


_LOCKS: WeakKeyDictionary[nn.Module, ModelLock] = WeakKeyDictionary()
_REGISTRY_LOCK = threading.Lock()


def lock_of(model: nn.Module) -> ModelLock:
    """The lock of a model, one for all backbones that hold the model."""
    with _REGISTRY_LOCK:
        if (lock := _LOCKS.get(model)) is None:
            lock = _LOCKS[model] = ModelLock()
        return lock
