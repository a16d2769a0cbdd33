"""Faults planted into a loaded model's run, small ones, that a judge must find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from afterword.backbone.attention import NAME, attend, rule
from afterword.backbone.backbone import Backbone


@contextmanager
def mask(_: Backbone) -> Iterator[None]:
    """The first token is seen by itself alone."""

    def hidden(mask_function: Callable[..., Tensor], **options: Any) -> object:
        return rule(lambda b, h, q, k: mask_function(b, h, q, k) & ((k > 0) | (q == 0)), **options)

    AttentionMaskInterface.register(NAME, hidden)
    try:
        yield
    finally:
        AttentionMaskInterface.register(NAME, rule)


@contextmanager
def position(backbone: Backbone) -> Iterator[None]:
    """From the fourth token on each stands one place too far."""

    def shift(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        at = kwargs["position_ids"]
        return args, {**kwargs, "position_ids": at + (at > 2 + backbone.facts.offset)}

    hook = backbone.model.register_forward_pre_hook(shift, with_kwargs=True)
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def scale(_: Backbone) -> Iterator[None]:
    """Scores are 2 % too large."""

    def larger(module: nn.Module, query: Tensor, *rest: Any, **options: Any) -> Any:
        return attend(module, query * 1.02, *rest, **options)

    AttentionInterface.register(NAME, larger)
    try:
        yield
    finally:
        AttentionInterface.register(NAME, attend)


FAULTS = {"mask": mask, "position": position, "scale": scale}
