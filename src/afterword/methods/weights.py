"""Token weights w_k: each method's half of ``embedding = weights @ states``.

A *target* row says which tokens a vector represents: all tokens of a copy, only its last, or a word's. A `Weighting`
turns target rows (G, R, n) into weight rows (G, R, n), using the attention that its tap has read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from ..errors import InputError, NoSuchHead, NotFitted
from ..spelling import check_fields, choose
from ..text.layout import Text
from ..text.segments import SPECIAL
from ..text.tokenizer import Tokenizer
from .custom import Named, is_custom

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ..backbone.attention_taps import Tap
    from ..shapes import Rows
    from ..text.batch import Group

Pool = Literal["mean", "last", "cls", "weighted"]
"""The poolings that every method accepts; `Weighting.sentence` computes them."""

AnyPool = Literal[Pool, "sum", "mask", "half"]
"""All poolings, including those that only some methods accept."""

Copy = Literal["first", "last", "tail", "all", "unprompted"]


@dataclass(frozen=True)
class Weighting(Named, ABC):
    """How tokens are weighted. A custom class sets `kind`, its name in saved files.

    Args:
        pool: which of the tokens chosen by `copy` a sentence vector represents: their "mean", their "sum", only the
            "last" or the first ("cls"), the "mask" token, the first "half" of the sequence; or their mean
            "weighted" by position, i / (1 + ... + n) for the i-th of n (SGPT, Muennighoff 2022, section 3.1).
        copy: the tokens of the "first" or the "last" copy of the text, the last copy and everything after it
            ("tail"), or "all", including the template; "unprompted" is all, or everything from the text on if a prompt
            precedes it, like sentence-transformers' include_prompt=False.
        pool_special_tokens: whether to include special tokens.
    """

    pool: AnyPool = "mean"
    copy: Copy = "all"
    pool_special_tokens: bool = True

    kinds: ClassVar[dict[str, Any]] = {}
    reads_attention: ClassVar[bool] = False
    """Whether it reads attention matrices."""

    def __post_init__(self) -> None:
        choose("pool", self.pool, get_args(AnyPool))
        choose("copy", self.copy, get_args(Copy))
        if not is_custom(type(self)):
            check_fields(self)

    @property
    def fitted(self) -> bool:
        """Whether the weighting is fitted, or needs no fitting."""
        return True

    def require_fitted(self) -> None:
        """Raise NotFitted if the weighting must be fitted first."""
        if not self.fitted:
            raise NotFitted("this method must be fitted to texts first: use encoder = encoder.fit(texts)")

    def fit(self, texts: Iterable[Text], tokenizer: Tokenizer, vocabulary: int) -> Weighting:
        """Fit the weighting to texts, if it needs fitting.

        Args:
            texts: strings, or lists of token ids.
            tokenizer: the model's.
            vocabulary: the size of the model's vocabulary.
        """
        return self

    def check(self, layers: int, heads: int, vocabulary: int) -> None:
        """Raise MethodError if a model of this many layers, heads and token ids does not support the weighting."""

    def tap(self, groups: Sequence[Group], targets: Sequence[Tensor], layers: int) -> Tap | None:
        """The tap that reads attention in a model with this number of layers; None if the weighting reads none."""
        return None

    @abstractmethod
    def __call__(self, group: Group, targets: Rows, reading: Tensor | None) -> Rows:
        """The weight rows (G, R, n) of one group."""

    def sentence(self, group: Group, dtype: torch.dtype | None = None, mask_id: int | None = None) -> Rows:
        """The target row of a sentence (G, 1, n), float32 by default.

        Raises:
            InputError: no token is left to pool.
        """
        import torch

        chosen = self._chosen(group, mask_id)
        if not group.pooled:
            return torch.zeros_like(chosen, dtype=dtype or torch.float32)[:, None]
        number = chosen.sum(1, keepdim=True)
        if not bool(number.all()):
            raise InputError("a text has no token left to pool: raise max_length=, or truncate='before' the repetition")
        if self.pool in ("last", "mask"):
            at = group.at.where(chosen, -1).amax(1)
            chosen = (group.at == at[:, None]) & group.final[:, None]
        elif self.pool == "cls":
            chosen = (group.at == chosen.int().argmax(1)[:, None]) & (group.first == 0)[:, None]
        rows = chosen.to(dtype or torch.float32)
        if self.pool == "mean":
            rows = rows * (group.part[:, None] / number).to(rows.dtype)
        elif self.pool == "weighted":
            rows = rows * by_position(group, chosen).to(rows.dtype)
        return rows[:, None]

    def _chosen(self, group: Group, mask_id: int | None) -> Tensor:
        """Which tokens the vector represents (G, n)."""
        if self.pool == "mask":
            return group.tokens.eq(-1 if mask_id is None else mask_id)
        if self.pool == "half":
            return (group.at < group.length // 2).expand(group.count, -1)
        if self.copy == "all":
            return group.scope if self.pool_special_tokens else group.scope & (group.copy != SPECIAL)
        if self.copy == "tail":
            chosen = (group.at >= group.spans[:, group.copies - 1, :1]) & (group.copy != SPECIAL) & group.scope
        elif self.copy == "unprompted":
            start, front = group.spans[:, 0, :1], group.special[:, :1]
            read = group.scope & (group.at >= start.where(start > front, 0))
            return read if self.pool_special_tokens else read & (group.copy != SPECIAL)
        else:
            chosen = group.copy == self.which(group)
        return chosen | (group.copy == SPECIAL) if self.pool_special_tokens else chosen

    def which(self, group: Group) -> int:
        """The number of the copy to pool, from 1."""
        return group.copies if self.copy in ("last", "tail") else 1

    def for_words(self) -> Weighting:
        """The weighting to use for word vectors; by default the same as for sentences."""
        return self


def by_position(group: Group, chosen: Tensor) -> Tensor:
    """Weight the chosen tokens (G, n) by their position in their text, from 1; the weights sum to 1 in each text.

    A chunk that starts at the text's token f has positions f + 1, f + 2, ..., and their share of 1 + ... + N.
    """
    number = (chosen.cumsum(1) + group.first[:, None]) * chosen
    length = (group.spans[:, 0, 1] - group.spans[:, 0, 0]).to(group.part.dtype)
    total = (length / group.part).round()  # N, the number of tokens in the text
    share = (length * (2 * group.first + length + 1) / (total * (total + 1))).where(group.part < 1, 1)
    return number * (share / number.sum(1).clamp(min=1))[:, None]


@dataclass(frozen=True)
class Plain(Weighting):
    """Unchanged targets: classical pooling, Echo, prompts, BeLLM.

    Args:
        skip_first: leave the first token that the model reads out of every mean of several tokens. In many decoders it
            is an attention sink, whose state in the middle layers is so long that a mean with it is that state.
    """

    skip_first: bool = False

    kind: ClassVar[str] = "plain"

    def __call__(self, group: Group, targets: Rows, reading: Tensor | None) -> Rows:
        """Compute the weights (G, R, n)."""
        return without_first(group, targets) if self.skip_first else targets


def without_first(group: Group, targets: Rows) -> Rows:
    """Target rows (G, R, n) without the first token of the sequence, with the same sums; alone in its row, it stays."""
    import torch

    kept = targets * (group.at > 0)
    total, left = targets.sum(-1, keepdim=True), kept.sum(-1, keepdim=True)
    return torch.where(left > 0, kept * (total / left.where(left > 0, 1)), targets)


@dataclass(frozen=True)
class Table1(Weighting):
    """Echo's mean as printed in Table 1 of the ReBA paper: the sum over j = n .. kn of v_j, divided by 2n."""

    kind: ClassVar[str] = "table1"

    def __call__(self, group: Group, targets: Rows, reading: Tensor | None) -> Rows:
        """1 / 2n from the last token of the first copy to the end of the last copy (G, 1, n)."""
        start, end = group.spans[:, 0, 1] - 1, group.spans[:, group.copies - 1, 1]
        n = (group.spans[:, 0, 1] - group.spans[:, 0, 0])[:, None]
        inside = (group.at >= start[:, None]) & (group.at < end[:, None]) & (group.text >= 0)[:, None]
        return (inside.to(targets.dtype) / (2 * n))[:, None]

    def for_words(self) -> Weighting:
        """The tokens of the last copy, as in the same table."""
        return Plain("mean", "last", self.pool_special_tokens)


@dataclass(frozen=True)
class SelfAttention(Weighting):
    """The attention of each token to itself in one head (Ditto, section 3).

    Args:
        layer, head: counted from 0.
        normalise: divide by the sum of the weights; the paper does not (footnote 2).
    """

    layer: int = 0
    head: int = 0
    normalise: bool = False

    kind: ClassVar[str] = "self_attention"
    reads_attention: ClassVar[bool] = True

    def check(self, layers: int, heads: int, vocabulary: int) -> None:
        """Raise NoSuchHead if the model lacks the head."""
        if not (0 <= self.layer < layers and 0 <= self.head < heads):
            raise NoSuchHead(
                f"head {self.layer + 1}-{self.head + 1} (layer {self.layer}, head {self.head} from 0) does not exist: "
                f"the model has {layers} layers of {heads} heads"
            )

    def tap(self, groups: Sequence[Group], targets: Sequence[Tensor], layers: int) -> Tap:
        """Read the diagonals of the layer's heads."""
        from ..backbone.attention_taps import Diagonals

        return Diagonals(self.layer)

    def __call__(self, group: Group, targets: Rows, reading: Tensor | None) -> Rows:
        """A_kk at the targets."""
        assert reading is not None
        rows = targets * reading[:, 0, self.head, None]
        return rows / rows.sum(-1, keepdim=True) if self.normalise else rows


@dataclass(frozen=True)
class Backward(Weighting):
    """Backward attention: e_i = sum over k of A_new[i, k] v_k (ReBA, Equation 4).

    Args:
        columns: k runs over "all" tokens from i on, or skips special tokens ("content").
        normalise: None, as in the paper; "token" divides each e_i by the sum of its weights, and "total" divides the
            vector by the sum of all its weights.
        attention: A_new is the maximum over the heads of all layers ("max") or of the last layer ("last_layer").
        triangle: k >= i ("upper", Equation 4) or every k ("full").
        released: as in the authors' code (cqdyf099/ReBA@6448aa9), divide the sentence mean once more by half the
            sequence's length, and normalise the sum of a word's rows of the upper triangle.
    """

    columns: Literal["all", "content"] = "all"
    normalise: Literal["token", "total"] | None = None
    attention: Literal["max", "last_layer"] = "max"
    triangle: Literal["upper", "full"] = "upper"
    released: bool = False

    kind: ClassVar[str] = "backward"
    reads_attention: ClassVar[bool] = True

    def tap(self, groups: Sequence[Group], targets: Sequence[Tensor], layers: int) -> Tap:
        """Read the rows of Algorithm 1's matrix that are targets."""
        from ..backbone.attention_taps import MaxOverHeads

        columns = [pooled_rows(t)[0] for t in targets]
        return MaxOverHeads(columns, self.triangle, layer=layers - 1 if self.attention == "last_layer" else None)

    def __call__(self, group: Group, targets: Rows, reading: Tensor | None) -> Rows:
        """Sum over the targets i of A_new[i, k]."""
        import torch

        assert reading is not None
        seen = group.scope & (group.copy != SPECIAL) if self.columns == "content" else group.scope
        a = reading.to(targets.dtype) * seen[:, None]
        if self.normalise == "token":
            a = a / a.sum(-1, keepdim=True)
        columns, real = pooled_rows(targets)
        pooled = targets.gather(-1, columns[:, None].expand(-1, targets.shape[1], -1)) * real[:, None]
        rows = pooled @ a
        if self.normalise == "total":
            rows = rows / rows.sum(-1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny)
        return rows / max(group.length // 2, 1) if self.released and self.pool == "half" else rows

    def for_words(self) -> Weighting:
        """The weighting of words; in the released code, words are normalised means over the first copy."""
        return Backward("mean", "first", True, "all", "total", self.attention) if self.released else self


def pooled_rows(targets: Rows) -> tuple[Tensor, Tensor]:
    """Indices (G, C) of the tokens that have a target, padded with 0, and whether each is not padding (G, C)."""
    import torch

    pooled = (targets != 0).any(1)
    count = pooled.sum(1, keepdim=True)
    columns = max(int(count.max()), 1)
    real = torch.arange(columns, device=pooled.device) < count
    return torch.argsort(~pooled, dim=1, stable=True)[:, :columns] * real, real


def word_targets(group: Group, words: Sequence[Sequence[Sequence[int]]], copy: int, dtype: torch.dtype) -> Rows:
    """Build target rows of words (G, R, n), each the mean of the word's tokens in one copy of the text.

    Args:
        group: segments of equal length.
        words: for each word of each text, the positions of its tokens in the copy.
        copy: number of the copy, from 1.
        dtype: type of the rows.

    Returns:
        Target rows, where R is the largest number of words of any text in the batch; unused rows are 0. If a text is
        split into chunks, a word's tokens may lie in several segments, whose rows add up.
    """
    import torch

    rows = torch.zeros(group.count, max((len(w) for w in words), default=0), group.length, dtype=dtype)
    texts, spans, firsts = group.text.tolist(), group.spans[:, copy - 1].tolist(), group.first.tolist()
    for g, t in enumerate(texts):
        start, end = spans[g]
        for r, tokens in enumerate(words[t] if t >= 0 else ()):
            for i in tokens:
                at = start + i - firsts[g]
                if start <= at < end:
                    rows[g, r, at] = 1 / len(tokens)
    return rows.to(group.tokens.device)
