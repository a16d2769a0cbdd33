"""Check, after a change of a loaded model, that the texts of a batch do not affect each other's hidden states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UnsupportedModel
from ..text.batch import Batch, lay
from ..text.segments import Segment, TokenizedText

LENGTHS = (5, 5, 3, 8)  # tokens of the texts of the check, two of one length
CLOSE = {torch.float16: 3e-2, torch.bfloat16: 1e-1}  # of the largest value; another text's effect is far larger
EXACT = 1e-4

DYNAMIC = "torch.ao.nn.quantized.dynamic"

Structure = tuple[list[nn.Module], list[object], list[tuple[object, ...]]]


def structure(modules: list[nn.Module]) -> Structure:
    """The modules of a model, their classes and forwards, and their hooks: equal as long as none of them changes.

    Args:
        modules: all modules of the model, in order.
    """
    listening = [
        (i, *m._forward_hooks, "|", *m._forward_pre_hooks, m.__dict__.get("forward"))
        for i, m in enumerate(modules)
        if m._forward_hooks or m._forward_pre_hooks or "forward" in m.__dict__
    ]
    kinds: list[Any] = list(map(type, modules))
    return modules, [*kinds, *(kind.forward for kind in dict.fromkeys(kinds))], listening


class IndependenceCheck:
    """The state of a model at the last check that texts of a batch do not affect each other.

    Args:
        modules: all modules of a model that the self-check has checked; None = unknown, so the next forward checks.
    """

    def __init__(self, modules: list[nn.Module] | None = None) -> None:
        self._known = None if modules is None else structure(modules)
        self.changes = 0
        """How often the model has changed."""

    def check(
        self, modules: list[nn.Module], kind: str, vocabulary: int, device: torch.device, run: Callable[[Batch], Tensor]
    ) -> None:
        """Check a model if it has changed: see `require_independence`."""
        current = structure(modules)
        if current != self._known:
            self.changes += 1
            require_independence(run, kind, vocabulary, device)
            self._known = current


def require_independence(run: Callable[[Batch], Tensor], kind: str, vocabulary: int, device: torch.device) -> None:
    """Validate that texts in one forward have the hidden states that each has in a forward of its own.

    Args:
        run: returns the last hidden states (N, D) of a batch.
        kind: of the model, for the message.
        vocabulary: the number of the model's token ids.
        device: of the batch.

    Raises:
        UnsupportedModel: they have others.
    """
    ids = [[(11 * i + 7 * n + 3) % vocabulary for i in range(n)] for n in LENGTHS]
    tokenized = [TokenizedText((Segment(text, ((0, len(text)),)),)) for text in ids]
    together = _by_text(lay(tokenized, device), run)
    alone = [_by_text(lay([text], device), run)[0] for text in tokenized]
    size = max(float(states.abs().max()) for states in alone)
    apart = max(float((a - b).abs().max()) for a, b in zip(together, alone, strict=True))
    if not apart <= CLOSE.get(alone[0].dtype, EXACT) * size:
        raise UnsupportedModel(
            f"a hook or a layer that this {kind} got after it was loaded makes the texts of a batch affect each other "
            f"({apart / size:.0e} of a state): remove it, or have the changed model checked again, "
            "Encoder(afterword.backbone.self_check.check(model, tokenizer), method)"
        )


def refuse_dynamic_quantization(modules: list[nn.Module], kind: str) -> None:
    """Validate that no module is quantised dynamically: its input is rounded by the largest value of a whole batch.

    Raises:
        UnsupportedModel: one is.
    """
    if any(module.__module__.startswith(DYNAMIC) for module in set(map(type, modules))):
        raise UnsupportedModel(
            f"this {kind} is quantised dynamically, by the largest value of a whole batch: a text's "
            "vector would depend on the other texts. Quantise weights alone (bitsandbytes nf4), or use bfloat16"
        )


def _by_text(batch: Batch, run: Callable[[Batch], Tensor]) -> Sequence[Tensor]:
    states = run(batch)
    states_of: dict[int, Tensor] = {}
    for group in batch.groups:
        states_of.update(zip(group.text.tolist(), group.slice(states), strict=True))
    return [states_of[i] for i in range(batch.texts)]
