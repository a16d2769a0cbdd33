"""Which weights w_k: each method's half of ``embedding = weights @ states``.

A *target* row says which tokens a vector stands for: all tokens of a copy, its last one, those of a word. A
`Weighting` turns target rows (G, R, n) into weight rows (G, R, n), with what its tap read of the attention.

torch is imported when weights are computed, so that a method can be read and checked without it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

from ..errors import InputError, MethodError, NoSuchHead, NotFitted
from ..spelling import check_fields
from ..text.layout import Text
from ..text.segments import SPECIAL
from ..text.tokenizer import Tokenizer
from .code_hash import enter, is_own
from .options import choose

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ..backbone.attention_taps import Tap
    from ..shapes import Rows
    from ..text.batch import Group

Pool = Literal["mean", "last", "cls", "weighted", "sum", "mask", "half"]
Copy = Literal["first", "last", "tail", "all", "unprompted"]
Normalise = Literal["token", "total"]

POOLS = ("mean", "last", "cls", "weighted", "sum", "mask", "half")


WEIGHTINGS: dict[str, type[Weighting]] = {}
"""Every kind of weighting that files can name, by its `kind`."""


@dataclass(frozen=True)
class Weighting(ABC):
    """How tokens are weighted. A class of one's own says by its `kind` what saved folders call it.

    Args:
        pool: which tokens a sentence vector stands for, among those of `copy`: their "mean", their "sum", the
            "last" or the first ("cls") of them, the "mask" token, the first "half" of the sequence; or their mean
            "weighted" by position, i / (1 + ... + n) for the i-th of n (SGPT, Muennighoff 2022, section 3.1).
        copy: the tokens of the "first" or the "last" copy of the text, of the last and all behind it ("tail"), or
            "all", a template's own included; "unprompted" is all, but in a text behind a prompt those from the text on,
            as sentence-transformers' include_prompt=False.
        pool_special_tokens: whether special tokens count among them.
    """

    pool: Pool = "mean"
    copy: Copy = "all"
    pool_special_tokens: bool = True

    def __post_init__(self) -> None:
        """Refuse an unknown pool."""
        if self.pool not in POOLS:
            raise MethodError(f"pool={self.pool!r}: choose one of {', '.join(POOLS[:4])}")
        choose("copy", self.copy, get_args(Copy))
        if not is_own(type(self)):
            check_fields(self)

    kind: ClassVar[str]
    """What files call it; a class without one of its own cannot be saved."""
    reads_attention: ClassVar[bool] = False
    """Whether there must be attention to read."""
    code: ClassVar[str | None] = None
    """A hash of the file of a class of one's own, as it was when the class was made."""

    def __init_subclass__(cls, **options: object) -> None:
        """Enter the class under its kind.

        Raises:
            MethodError: the kind is no name, or is that of another class.
        """
        super().__init_subclass__(**options)
        enter(cls, WEIGHTINGS)

    @property
    def fitted(self) -> bool:
        """Whether it has seen the texts that it must see first, if any."""
        return True

    def require_fitted(self) -> None:
        """Refuse to weigh before that.

        Raises:
            NotFitted: it has not.
        """
        if not self.fitted:
            raise NotFitted("this method takes its weights from texts: encoder = encoder.fit(texts), and use that")

    def fit(self, texts: Iterable[Text], tokenizer: Tokenizer, vocabulary: int) -> Weighting:
        """The weighting, fitted to texts where it must be.

        Args:
            texts: strings, or lists of token ids.
            tokenizer: the model's.
            vocabulary: how many token ids the model knows.
        """
        return self

    def check(self, layers: int, heads: int, vocabulary: int) -> None:
        """Whether a model of so many layers, heads and token ids will do; raises MethodError."""

    def tap(self, groups: Sequence[Group], targets: Sequence[Tensor], layers: int) -> Tap | None:
        """What must be read of the attention of a model of so many layers; None where nothing."""
        return None

    @abstractmethod
    def __call__(self, group: Group, targets: Rows, reading: Tensor | None) -> Rows:
        """Weight rows (G, R, n) of one group."""

    def sentence(self, group: Group, dtype: torch.dtype | None = None, mask_id: int | None = None) -> Rows:
        """The target row of a sentence (G, 1, n), of a type of floats; None = float32.

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
        """Which tokens have weight (G, n)."""
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
        """The number of the copy whose tokens count, from 1."""
        return group.copies if self.copy in ("last", "tail") else 1

    def for_words(self) -> Weighting:
        """The weighting of words, where it is not that of sentences."""
        return self


def by_position(group: Group, chosen: Tensor) -> Tensor:
    """Weights of chosen tokens (G, n) by their number among those of their text, from 1; they sum to 1 in each text.

    A chunk that begins at the text's token f holds the numbers from f + 1 on, and their share of 1 + ... + N.
    """
    number = (chosen.cumsum(1) + group.first[:, None]) * chosen
    length = (group.spans[:, 0, 1] - group.spans[:, 0, 0]).to(group.part.dtype)
    whole = (length / group.part).round()
    share = (length * (2 * group.first + length + 1) / (whole * (whole + 1))).where(group.part < 1, 1)
    return number * (share / number.sum(1).clamp(min=1))[:, None]


@dataclass(frozen=True)
class Plain(Weighting):
    """Each token its own state: classical pooling, Echo, prompts, BeLLM."""

    kind: ClassVar[str] = "plain"

    def __call__(self, group: Group, targets: Rows, reading: Tensor | None) -> Rows:
        """The targets themselves."""
        return targets


@dataclass(frozen=True)
class Table1(Weighting):
    """Echo's mean as Table 1 of the ReBA paper prints it: the sum over j = n .. kn of v_j, divided by 2n."""

    kind: ClassVar[str] = "table1"

    def __call__(self, group: Group, targets: Rows, reading: Tensor | None) -> Rows:
        """From the last token of the first copy to the end of the last one (G, 1, n)."""
        start, end = group.spans[:, 0, 1] - 1, group.spans[:, group.copies - 1, 1]
        n = (group.spans[:, 0, 1] - group.spans[:, 0, 0])[:, None]
        inside = (group.at >= start[:, None]) & (group.at < end[:, None]) & (group.text >= 0)[:, None]
        return (inside.to(targets.dtype) / (2 * n))[:, None]

    def for_words(self) -> Weighting:
        """The tokens of the last copy, as in the same table."""
        return Plain("mean", "last", self.pool_special_tokens)


@dataclass(frozen=True)
class SelfAttention(Weighting):
    """How much each token attends to itself in one head (Ditto, section 3).

    Args:
        layer, head: from 0.
        normalise: divide by the sum of the weights; the paper does not (footnote 2).
    """

    layer: int = 0
    head: int = 0
    normalise: bool = False

    kind: ClassVar[str] = "self_attention"
    reads_attention: ClassVar[bool] = True

    def check(self, layers: int, heads: int, vocabulary: int) -> None:
        """Whether the head is there."""
        if not (0 <= self.layer < layers and 0 <= self.head < heads):
            raise NoSuchHead(
                f"head {self.layer + 1}-{self.head + 1} (layer {self.layer}, head {self.head} from 0) does not exist: "
                f"the model has {layers} layers of {heads} heads"
            )

    def tap(self, groups: Sequence[Group], targets: Sequence[Tensor], layers: int) -> Tap:
        """The diagonal of the head."""
        from ..backbone.attention_taps import Diagonal

        return Diagonal(self.layer, self.head)

    def __call__(self, group: Group, targets: Rows, reading: Tensor | None) -> Rows:
        """A_kk on the targets."""
        assert reading is not None
        rows = targets * reading[:, None]
        return rows / rows.sum(-1, keepdim=True) if self.normalise else rows


@dataclass(frozen=True)
class Backward(Weighting):
    """Backward attention: e_i = sum over k of A_new[i, k] v_k (ReBA, Equation 4).

    Args:
        columns: k runs over "all" tokens from i on, or leaves special tokens out ("content").
        normalise: None as the paper; "token" divides each e_i by the sum of its weights, "total" the vector by
            the sum of all its weights.
        attention: A_new is the maximum over heads of all layers ("max") or of the last one ("last_layer").
        triangle: k >= i ("upper", Equation 4) or every k ("full").
        released: the authors' code (cqdyf099/ReBA@6448aa9): the sentence mean is divided by half the sequence's
            length once more; words sum their rows of the upper triangle and are normalised.
    """

    columns: Literal["all", "content"] = "all"
    normalise: Normalise | None = None
    attention: Literal["max", "last_layer"] = "max"
    triangle: Literal["upper", "full"] = "upper"
    released: bool = False

    kind: ClassVar[str] = "backward"
    reads_attention: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse unknown options."""
        super().__post_init__()
        allowed: dict[str, tuple[str | None, ...]] = {
            "columns": ("all", "content"),
            "normalise": (None, "token", "total"),
            "attention": ("max", "last_layer"),
            "triangle": ("upper", "full"),
        }
        for name, values in allowed.items():
            choose(name, getattr(self, name), values)

    def tap(self, groups: Sequence[Group], targets: Sequence[Tensor], layers: int) -> Tap:
        """Algorithm 1's matrix, only the columns that are targets."""
        from ..backbone.attention_taps import MaxOverHeads

        columns = [self._columns(g, t)[0] for g, t in zip(groups, targets, strict=True)]
        return MaxOverHeads(columns, self.triangle, layer=layers - 1 if self.attention == "last_layer" else None)

    def __call__(self, group: Group, targets: Rows, reading: Tensor | None) -> Rows:
        """Sum over the targets i of A_new[i, k]."""
        import torch

        assert reading is not None
        seen = group.scope & (group.copy != SPECIAL) if self.columns == "content" else group.scope
        a = reading.to(targets.dtype) * seen[:, None]
        if self.normalise == "token":
            a = a / a.sum(-1, keepdim=True)
        columns, real = self._columns(group, targets)
        chosen = targets.gather(-1, columns[:, None].expand(-1, targets.shape[1], -1)) * real[:, None]
        rows = chosen @ a
        if self.normalise == "total":
            rows = rows / rows.sum(-1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny)
        return rows / max(group.length // 2, 1) if self.released and self.pool == "half" else rows

    def for_words(self) -> Weighting:
        """The weighting of words; the released code's words are normalised means over the first copy."""
        return Backward("mean", "first", True, "all", "total", self.attention) if self.released else self

    def _columns(self, group: Group, targets: Rows) -> tuple[Tensor, Tensor]:
        """Which tokens i are read, and which of them are no padding (G, C), (G, C)."""
        return _padded((targets != 0).any(1))


def _padded(wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Indices of the wanted tokens of each segment, padded with 0 to the segment with most; which are no padding."""
    import torch

    count = wanted.sum(1, keepdim=True)
    most = max(int(count.max()), 1)
    real = torch.arange(most, device=wanted.device) < count
    return torch.argsort(~wanted, dim=1, stable=True)[:, :most] * real, real
