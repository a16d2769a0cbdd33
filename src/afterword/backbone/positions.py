"""The positions of a text's tokens: RoBERTa and models derived from it start at an offset, and skip padding tokens."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from ..errors import InputError, UnsupportedModel
from ..text.batch import Batch
from .facts import Facts

CLOSE = 1e-4  # of the largest value: float32 kernels differ by less than 1e-5


@torch.no_grad()
def skipped_token(model: Any, first: int, special: Iterable[int | None]) -> int | None:
    """The token that takes no position when a model computes the positions of a text by itself.

    It is found by running three tokens, the middle one special, in three ways: with the model's own positions, with
    the positions of an ordinary text, and with those of a text whose middle token takes none.

    Args:
        model: a base model, in eval mode.
        first: position of a text's first token.
        special: ids of tokens that may take no position, in any order.

    Returns:
        The token's id; None if every token takes a position, or the model takes no ``position_ids``.
    """
    if first == 0:  # no position is left for a token that takes none
        return None
    takes = inspect.signature(model.forward).parameters
    table = model.get_input_embeddings()
    known = len(table.weight) if "position_ids" in takes and hasattr(table, "weight") else 0
    tried = sorted({i for i in special if i is not None and 0 <= i < known})
    around = [i for i in range(known) if i not in tried][:2]
    if not tried or len(around) < 2:
        return None
    ids = torch.tensor([[around[0], i, around[1]] for i in tried], device=table.weight.device)
    quiet = {"attention_mask": torch.ones_like(ids), "use_cache": False}
    options: dict[str, Any] = {k: v for k, v in quiet.items() if k in takes}

    def run(*places: int) -> Any:
        at = torch.tensor([places], device=ids.device).expand_as(ids) if places else None
        return model(input_ids=ids, position_ids=at, **options).last_hidden_state.float()

    own, plain, skipping = run(), run(first, first + 1, first + 2), run(first, first - 1, first + 1)
    far, near = ((own - other).abs().amax((1, 2)) for other in (plain, skipping))
    limit = CLOSE * float(own.abs().max())
    skipped = [i for i, f, n in zip(tried, far.tolist(), near.tolist(), strict=True) if f > limit and n < f / 4]
    return skipped[0] if len(skipped) == 1 else None


def explain(error: Exception, batch: Batch, facts: Facts, modules: Iterable[nn.Module]) -> None:
    """Raise a better error for a failed forward, if its cause is known.

    Raises:
        InputError: a text has more tokens than the model has positions.
        UnsupportedModel: feed-forward layers with ``chunk_size_feed_forward`` need a multiple of that many tokens.
    """
    longest, limit = max((group.length for group in batch.groups), default=0), facts.max_length
    if limit is not None and longest > limit:
        raise InputError(
            f"a text of {longest} tokens is longer than this {facts.kind} can read: set max_length to {limit}"
        ) from error
    chunk = max((getattr(m, "chunk_size_feed_forward", 0) or 0 for m in modules), default=0)
    if chunk and isinstance(error, ValueError):
        raise UnsupportedModel(
            f"the layers of this {facts.kind} have chunk_size_feed_forward={chunk} and refuse tokens that fill no "
            "whole chunk: set it to 0 in each layer; chunks change no vector, they only save memory"
        ) from error
