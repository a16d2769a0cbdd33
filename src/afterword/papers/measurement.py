"""What every measurement shares: results that convert to JSON, and one run of a model over texts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np
import torch

from ..backbone.attention_taps import Tap
from ..encode.limits import Limits, Losses, each
from ..encoder import Encoder
from ..errors import InputError, MethodError
from ..methods import one_method
from ..text.batch import Batch
from ..text.inputs import check_texts, is_blank
from ..text.layout import Text

Read = TypeVar("Read")


@dataclass(frozen=True)
class Measurement:
    """The result of an analysis: a frozen dataclass."""

    def to_json(self) -> dict[str, Any]:
        """The fields as plain data for JSON: arrays as lists, NaN and infinity as null."""
        return {f.name: plain(getattr(self, f.name)) for f in fields(self)}


def plain(value: Any) -> Any:
    """A value as plain data for JSON.

    >>> plain((1.0, float("nan"), np.float32(0.5)))
    [1.0, None, 0.5]
    """
    if isinstance(value, Measurement):
        return value.to_json()
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def sweep(
    encoder: Encoder,
    texts: Sequence[Text],
    read: Callable[..., Sequence[Read]],
    limits: Limits | None = None,
    tap: Callable[[], Tap] | None = None,
) -> list[Read]:
    """Run texts with the encoder's input format and bidirectional layers, and apply `read` to their hidden states.

    Args:
        encoder: model and method.
        texts: texts that are not blank.
        read: from the states of G texts of one length (G, n, D), in float32 or float64, and with a tap from its result
            too, to one value for each.
        limits: batch size and maximum length.
        tap: makes what reads the attention of a batch.

    Returns:
        One value per text, in order.

    Raises:
        InputError: there is no text, or a text is blank.
        MethodError: the method cuts texts into chunks.
    """
    method, backbone = one_method(encoder.method, "a token's state"), encoder.backbone
    if method.layout.chunk is not None:
        raise MethodError(f"{method.name} cuts texts into chunks, each with a last token of its own: leave chunk out")
    checked = check_texts(texts)
    if blank := [i for i, text in enumerate(checked) if is_blank(text)]:
        raise InputError(f"text {blank[0]} is blank: leave it out")
    if not checked:
        raise InputError("there is no text: give at least one")
    limits = limits or Limits(encoder.max_length)
    writings = method.layout.write(checked, backbone.tokenizer, limits.max_length)
    cuts, found = Losses(), dict[int, Read]()
    cuts.note(writings, limits)

    def run(batch: Batch, indices: list[int]) -> dict[int, Read]:
        taps = [] if tap is None else [tap()]
        states = method.states.mean(backbone.forward(batch, frozenset(method.states.layers), method.sight, taps))
        of_batch: dict[int, Read] = {}
        for g, group in enumerate(batch.groups):
            of_group = group.slice(states.to(torch.promote_types(states.dtype, torch.float32)))
            values = read(of_group, *(one.result(g) for one in taps))
            of_batch.update(zip(group.text.tolist(), values, strict=True))
        return {indices[t]: value for t, value in of_batch.items()}

    for _, of_batch in each(writings, run, limits.budget(backbone.device), backbone.device):
        found.update(of_batch)
    cuts.warn(limits)
    return [found[i] for i in range(len(checked))]
