"""Whether a model that somebody changed after it was loaded still keeps the texts of a forward apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UnsupportedModel
from ..text.batch import Batch, lay
from ..text.segments import Segment, TokenizedText

LENGTHS = (5, 5, 3, 8)  # tokens of the texts that are tried, two of one length
CLOSE = {torch.float16: 3e-2, torch.bfloat16: 1e-1}  # of the largest value; another text's share is far more
EXACT = 1e-4

DYNAMIC = "torch.ao.nn.quantized.dynamic"

Structure = tuple[list[nn.Module], list[object], list[tuple[object, ...]]]


def structure(modules: list[nn.Module]) -> Structure:
    """What a model is built of, what runs, and who listens at which module: two are equal where nothing changed.

    Args:
        modules: all of the model's, in order.
    """
    listening = [
        (i, *m._forward_hooks, "|", *m._forward_pre_hooks, m.__dict__.get("forward"))
        for i, m in enumerate(modules)
        if m._forward_hooks or m._forward_pre_hooks or "forward" in m.__dict__
    ]
    kinds: list[Any] = list(map(type, modules))
    return modules, [*kinds, *(kind.forward for kind in dict.fromkeys(kinds))], listening


class IndependenceCheck:
    """What a model was when its texts were last seen to stay apart.

    Args:
        modules: all of it, as the self-check knows it; None = nobody knows what was done to it.
    """

    def __init__(self, modules: list[nn.Module] | None = None) -> None:
        self._known = None if modules is None else structure(modules)
        self.changes = 0
        """How often a changed model was seen."""

    def check(
        self, modules: list[nn.Module], kind: str, vocabulary: int, device: torch.device, run: Callable[[Batch], Tensor]
    ) -> None:
        """Try a model that has changed: see `require_independence`."""
        now = structure(modules)
        if now != self._known:
            self.changes += 1
            require_independence(run, kind, vocabulary, device)
            self._known = now


def require_independence(run: Callable[[Batch], Tensor], kind: str, vocabulary: int, device: torch.device) -> None:
    """Whether texts have the states in one forward that each has in a forward of its own.

    Args:
        run: gives the last states (N, D) of a batch.
        kind: of the model, for the message.
        vocabulary: how many token ids it knows.
        device: where the batch goes.

    Raises:
        UnsupportedModel: they have not.
    """
    ids = [[(11 * i + 7 * n + 3) % vocabulary for i in range(n)] for n in LENGTHS]
    writings = [TokenizedText((Segment(text, ((0, len(text)),)),)) for text in ids]
    together = _by_text(lay(writings, device), run)
    alone = [_by_text(lay([writing], device), run)[0] for writing in writings]
    size = max(float(states.abs().max()) for states in alone)
    apart = max(float((a - b).abs().max()) for a, b in zip(together, alone, strict=True))
    if not apart <= CLOSE.get(alone[0].dtype, EXACT) * size:
        raise UnsupportedModel(
            f"a hook or a layer that this {kind} got after it was loaded looks from one text of a batch to another "
            f"({apart / size:.0e} of a state): remove it, or have the changed model checked anew, "
            "Encoder(afterword.backbone.self_check.check(model, tokenizer), method)"
        )


def refuse_dynamic_quantization(modules: list[nn.Module], kind: str) -> None:
    """Dynamic quantisation rounds a layer's input by the largest value of everything that is in the batch.

    Raises:
        UnsupportedModel: the model was quantised so.
    """
    if any(module.__module__.startswith(DYNAMIC) for module in set(map(type, modules))):
        raise UnsupportedModel(
            f"this {kind} is quantised dynamically, by the largest value of a whole batch: a text's "
            "vector would depend on its company. Quantise weights alone (bitsandbytes nf4), or use bfloat16"
        )


def _by_text(batch: Batch, run: Callable[[Batch], Tensor]) -> Sequence[Tensor]:
    states = run(batch)
    made: dict[int, Tensor] = {}
    for group in batch.groups:
        made.update(zip(group.text.tolist(), group.slice(states), strict=True))
    return [made[i] for i in range(batch.texts)]
