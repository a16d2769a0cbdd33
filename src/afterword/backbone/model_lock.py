"""Eval mode while a model encodes: one lock per model, since its mode is an attribute that all threads see."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from torch import nn


class ModelLock:
    """A lock around switching between eval and train mode; threads may encode together."""

    def __init__(self) -> None:
        self.rotary = threading.Lock()
        """For models that keep rotary frequencies for the current length in a buffer: one forward at a time."""
        self._switching = threading.Lock()
        self._running = 0
        self._switched: list[nn.Module] = []

    @contextmanager
    def running(self, model: nn.Module, keep_mode: bool = False) -> Iterator[None]:
        """Run the model in eval mode; modules go back to train mode when the last thread is done.

        Args:
            model: the modes of all its modules are set, since adapters may be in train mode in a model in eval mode.
            keep_mode: leave the modes as they are, dropout included.
        """
        if keep_mode:
            yield
            return
        with self._switching:
            self._running += 1
            for module in all_modules(model):
                if module.training:
                    self._switched.append(module)
                    module.training = False
        try:
            yield
        finally:
            with self._switching:
                self._running -= 1
                if not self._running:
                    for module in self._switched:
                        module.training = True
                    self._switched.clear()


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
