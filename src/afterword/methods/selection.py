"""A method that averages the tokens that a prompt behind the text attends to: `scsp`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..errors import MethodError
from ..text.layout import Layout
from .method import Method
from .states import States
from .weights import Weighting

if TYPE_CHECKING:
    from torch import Tensor

    from ..backbone.attention_taps import Tap
    from ..shapes import Rows
    from ..text.batch import Group


@dataclass(frozen=True)
class Selected(Weighting):
    """The mean of the tokens j with s_j > alpha / n; of all n, if there is none.

    s_j is the most that the last token of the prompt attends to j in any head of any layer, where each head's row
    sums to 1 over the text's tokens.

    Args:
        alpha: 0 keeps every token that is seen; the paper takes 1 to 2.5.
    """

    alpha: float = 1.5

    kind: ClassVar[str] = "selected"
    reads_attention: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse other pools, and a negative alpha."""
        super().__post_init__()
        if self.pool != "mean":
            raise MethodError(f"pool={self.pool!r}: the selected tokens are averaged, give 'mean'")
        if not self.alpha >= 0:
            raise MethodError(f"alpha={self.alpha}: give a number of at least 0, as in 1.5")

    def tap(self, groups: Sequence[Group], targets: Sequence[Tensor], layers: int) -> Tap:
        """The row of the last token that is not special, over the text's tokens."""
        from ..backbone.attention_taps import LargestOfRow

        rows = [g.length - 1 - g.special[:, 1] for g in groups]
        return LargestOfRow(rows, [t[:, 0] != 0 for t in targets])

    def __call__(self, group: Group, targets: Rows, reading: Tensor | None) -> Rows:
        """1 over their number for the selected tokens (G, 1, n)."""
        assert reading is not None
        text = targets != 0
        kept = text & (reading[:, None] * text.sum(-1, keepdim=True) > self.alpha)
        kept = kept | (text & ~kept.any(-1, keepdim=True))
        return kept.to(targets.dtype) / kept.sum(-1, keepdim=True).clamp(min=1)

    def for_words(self) -> Weighting:
        """Not defined.

        Raises:
            MethodError: always.
        """
        raise MethodError("scsp selects tokens of a whole text and gives no vectors of words: use classical or reba")


def scsp(
    alpha: float = 1.5,
    states: str = "layer:-3",
    *,
    template: str = "{text} Brief summary : “",
    add_special_tokens: bool = True,
) -> Method:
    """Average the tokens to which the end of a prompt behind the text attends most. For long texts and causal models.

    Source: Cheng et al. 2026 (SCSP), with one prompt at the end of the text; arXiv 2609.37782.

    Cost: 1 pass, with the template.

    Args:
        alpha: keep a token with more than alpha / n of the prompt's attention, in any head; if none has, keep all n.
        states: hidden states, as for `classical`; the third to last are the paper's for Mistral.
        template: a string with {text} and a prompt behind it.
        add_special_tokens: give the model the tokenizer's special tokens; they have no weight.

    >>> scsp(alpha=2).weigh.alpha
    2
    """
    layout = Layout(template, add_special_tokens=add_special_tokens)
    if layout.parts[-1] is None:
        raise MethodError(f"template {template!r} ends with the text: write the prompt that selects behind {{text}}")
    weigh = Selected("mean", "first", False, alpha=alpha)
    return Method(layout, States(states), weigh, name=f"scsp {alpha} {states}")
