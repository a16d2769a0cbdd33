"""Where a text's tokens stand: RoBERTa and its kin count them from a place of their own, without its padding's."""

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
    """The token that a model does not count when it numbers the tokens of a text by itself.

    It is found by running three tokens, the middle one special: by themselves, with the positions of an ordinary
    text, and with those of a text that skips the middle one.

    Args:
        model: a base model, in eval mode; one that takes no ``position_ids`` numbers tokens itself in any case.
        first: position of a text's first token.
        special: ids that may be skipped, in any order.

    Returns:
        The token's id; None where every token takes a position.
    """
    if first == 0:  # nothing stands in front of position 0
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
    found = [i for i, f, n in zip(tried, far.tolist(), near.tolist(), strict=True) if f > limit and n < f / 4]
    return found[0] if len(found) == 1 else None


def require_same_start(modules: Iterable[nn.Module], facts: Facts) -> None:
    """Whether the model still counts positions from where the self-check saw it count: a stream is numbered by that.

    Args:
        modules: all of the model's; the one that counts is among the first.
        facts: what the self-check saw.

    Raises:
        UnsupportedModel: its ``padding_idx`` is another one now.
    """
    if not facts.offset or facts.way != "flat":
        return
    counting = next((m for m in modules if "position_embeddings" in m._modules), None)
    padding = getattr(counting, "padding_idx", None)
    if isinstance(padding, int) and padding + 1 != facts.offset:
        raise UnsupportedModel(
            f"this {facts.kind} counts positions from padding_idx={padding} since it was loaded, and from "
            f"{facts.offset - 1} before: set {type(counting).__name__}.padding_idx back, or have the model checked "
            "anew, Encoder(afterword.backbone.self_check.check(model, tokenizer), method)"
        )


def explain(error: Exception, batch: Batch, facts: Facts, modules: Iterable[nn.Module]) -> None:
    """Say what is wrong where a forward failed: a text is too long, or layers take whole chunks of tokens only.

    Raises:
        InputError: a text has more tokens than the model has positions.
        UnsupportedModel: the feed-forward layers were told to run chunks of tokens, which no text has to fill.
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
