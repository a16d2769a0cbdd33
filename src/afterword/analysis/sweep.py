"""Every text of a list through the model once, and what is read off its tokens' states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from ..encode.batches import each
from ..encode.limits import Cuts, Limits
from ..encoder import Encoder
from ..errors import InputError, MethodError
from ..text.batch import Batch
from ..text.inputs import check_texts, is_blank
from ..text.layout import Text

Read = TypeVar("Read")


def sweep(
    encoder: Encoder,
    texts: Sequence[Text],
    read: Callable[[Tensor], Sequence[Read]],
    limits: Limits | None = None,
) -> list[Read]:
    """Run the texts as the encoder's method writes them, its both-ways layers included, and read each one's tokens.

    Args:
        encoder: model and method.
        texts: not blank.
        read: of the states (G, n, D), in float32 or better, of G texts of one length, a finding for each.
        limits: how much at a time.

    Returns:
        One finding per text, in order.

    Raises:
        InputError: no text, or a blank one.
        MethodError: the method cuts texts into chunks.
    """
    method, backbone = encoder.method, encoder.backbone
    if method.layout.chunk is not None:
        raise MethodError(f"{method.name} cuts texts into chunks: there is no one last token to look at")
    checked = check_texts(texts)
    if blank := [i for i, text in enumerate(checked) if is_blank(text)]:
        raise InputError(f"text {blank[0]} is blank: leave it out")
    if not checked:
        raise InputError("there is no text: give at least one")
    limits = limits or Limits(encoder.max_length)
    writings = method.layout.write(checked, backbone.tokenizer, limits.max_length)
    cuts, found = Cuts(), dict[int, Read]()
    cuts.note(writings, limits)

    def run(batch: Batch, indices: list[int]) -> dict[int, Read]:
        states = method.states.mean(backbone.forward(batch, frozenset(method.states.layers), method.sight))
        made: dict[int, Read] = {}
        for group in batch.groups:
            of_group = group.slice(states.to(torch.promote_types(states.dtype, torch.float32)))
            made.update(zip(group.text.tolist(), read(of_group), strict=True))
        return {indices[t]: one for t, one in made.items()}

    for _, made in each(writings, run, limits.budget(backbone.device), backbone.device):
        found.update(made)
    cuts.warn(limits)
    return [found[i] for i in range(len(checked))]
