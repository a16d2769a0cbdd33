"""A copy of a model without transformers' hooks, which would prevent pickling it and sending it to another process.

The first forward with hidden states or attentions installs recorders in the layers permanently. They are closures,
which pickle refuses. They do nothing between forwards, and transformers installs them again when it needs them.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from typing import Any

from torch import nn

INSTALLED = "_output_capturing_hooks_installed"
RECORDER = "install_output_capuring_hook.<locals>.output_capturing_hook"  # transformers' own spelling


def is_recorder(hook: object) -> bool:
    """Whether a hook is one of transformers' recorders."""
    return getattr(hook, "__qualname__", "") == RECORDER


def without_recorders(model: nn.Module, copies: dict[int, nn.Module] | None = None) -> nn.Module:
    """The model itself; if recorders are installed, a copy of its modules that shares every tensor with them.

    Args:
        model: not changed; other threads may run it meanwhile.
        copies: filled with the copy of each module, by the module's id.
    """
    copies = {} if copies is None else copies
    if not any(is_recorder(hook) for module in model.modules() for hook in module._forward_hooks.values()):
        copies.update((id(module), module) for module in model.modules())
        return model
    for module in model.modules():
        if id(module) not in copies:
            copies[id(module)] = copy.copy(module)
    for module in model.modules():
        own = copies[id(module)].__dict__
        own.pop(INSTALLED, None)
        own["_forward_hooks"] = OrderedDict((k, h) for k, h in module._forward_hooks.items() if not is_recorder(h))
        for name, value in vars(module).items():
            if name == "_modules":
                own[name] = {k: _replaced(v, copies) for k, v in value.items()}
            elif isinstance(value, nn.Module | list | tuple):
                own[name] = _replaced(value, copies)
    return copies[id(model)]


def _replaced(value: Any, copies: dict[int, nn.Module]) -> Any:
    """A value with every module in it replaced by its copy."""
    if type(value) in (list, tuple) and any(isinstance(v, nn.Module) for v in value):
        return type(value)(_replaced(v, copies) for v in value)
    return copies.get(id(value), value) if isinstance(value, nn.Module) else value
