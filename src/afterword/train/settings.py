"""What a run depends on, as one value: written beside the result, and compared before a run goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from ..errors import InputError
from ..methods import Method
from ..methods.serialize import from_json, to_json

Loss = Literal["ranking", "cached_ranking", "angle", "cosent", "released"]
Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True)
class Settings:
    """How a model is trained. The defaults are the BeLLM paper's, section 4.1, where it names them.

    Args:
        method: how a text becomes a vector; None keeps the encoder's own.
        rank: of LoRA's matrices; 0 trains every weight ("full rank").
        alpha: LoRA adds alpha / rank times their product.
        dropout: in front of them.
        targets: names of the layers they stand beside; empty = all linear ones.
        four_bit: the frozen weights in 4 bits (QLoRA); needs CUDA and bitsandbytes.
        added: new both-ways layers behind the last one (Table 4's "addition"; see `addition.append`).
        fresh: those start with fresh weights, not with copies of the last layers'.
        loss: a name of `losses.LOSSES`.
        temperature: of the ranking losses, whose scale is its inverse.
        scale: of "angle" and "cosent".
        weights: of "released": cosine, in-batch negatives, angle.
        mini_batch: texts of a forward of "cached_ranking".
        matryoshka: the loss is also summed over the first so many components.
        learning_rate: at its highest.
        warmup: steps, or a share of all, in which it grows to that; then it falls to 0 in a straight line.
        weight_decay: of AdamW.
        clip: the largest norm of a step's gradient.
        batch_size: rows of a step in one process.
        accumulate: batches of a step.
        epochs: passes over the rows.
        steps: or so many steps.
        max_length: tokens of a text at most; None = the model's limit.
        distinct: no text twice in a batch, where in-batch negatives are used.
        prompt: put in front of every text.
        prompts: or in front of a column's, by its name.
        precision: of the products; "bfloat16" is autocast over float32 weights.
        checkpointing: keep only the layers' inputs and run layers again for their gradients.
        seed: of LoRA's start, the rows' order and dropout.
        every: steps from one checkpoint, and one evaluation, to the next.
        patience: evaluations without a better score after which training ends; 0 = never.

    Raises:
        InputError: one of them cannot be.

    >>> Settings().temperature, Settings(method=None, rank=0).lora
    (0.05, False)
    """

    method: Method | None = None
    rank: int = 32
    alpha: int = 32
    dropout: float = 0.1
    targets: tuple[str, ...] = ()
    four_bit: bool = False
    added: int = 0
    fresh: bool = False
    loss: Loss = "ranking"
    temperature: float = 0.05
    scale: float = 20.0
    weights: tuple[float, float, float] = (1.0, 1.0, 1.0)
    mini_batch: int = 32
    matryoshka: tuple[int, ...] = ()
    learning_rate: float = 2e-4
    warmup: float = 0.1
    weight_decay: float = 0.0
    clip: float = 1.0
    batch_size: int = 64
    accumulate: int = 1
    epochs: float = 1.0
    steps: int | None = None
    max_length: int | None = None
    distinct: bool = True
    prompt: str | None = None
    prompts: Mapping[str, str] | None = None
    precision: Precision | None = None
    checkpointing: bool = False
    seed: int = 42
    every: int = 100
    patience: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        object.__setattr__(self, "targets", tuple(self.targets))
        object.__setattr__(self, "matryoshka", tuple(self.matryoshka))
        object.__setattr__(self, "weights", tuple(float(w) for w in self.weights))
        for name, allowed in (("loss", get_args(Loss)), ("precision", (None, *get_args(Precision)))):
            if getattr(self, name) not in allowed:
                raise InputError(f"{name}={getattr(self, name)!r}: choose one of {', '.join(filter(None, allowed))}")
        least = {
            "warmup": 0,
            "weight_decay": 0,
            "clip": 0,
            "rank": 0,
            "added": 0,
            "patience": 0,
            "mini_batch": 1,
            "batch_size": 1,
            "accumulate": 1,
            "every": 1,
            "seed": 0,
        }
        for name, bound in least.items():
            if not getattr(self, name) >= bound:
                raise InputError(f"{name}={getattr(self, name)}: give {bound} or more")
        for name in ("temperature", "scale", "learning_rate", "epochs", "alpha"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name}={getattr(self, name)}: give more than 0")
        for name in ("steps", "max_length"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise InputError(f"{name}={value}: give 1 or more")
        if not 0 <= self.dropout < 1:
            raise InputError(f"dropout={self.dropout}: give 0 or more, less than 1")
        if self.four_bit and not self.lora:
            raise InputError("weights in 4 bits are frozen: give a LoRA rank above 0")
        if self.four_bit and self.added:
            raise InputError("new layers are trained whole, which weights in 4 bits cannot be: leave four_bit out")
        if self.prompt and self.prompts:
            raise InputError("give prompt, for every column, or prompts, by column, not both")

    @property
    def lora(self) -> bool:
        """Whether low-rank matrices are trained, not the weights themselves."""
        return self.rank > 0

    @property
    def ranking(self) -> bool:
        """Whether the loss takes other rows of the batch as negatives."""
        return self.loss in ("ranking", "cached_ranking", "released")

    def to_json(self) -> dict[str, Any]:
        """As plain data.

        >>> Settings.from_json(Settings(rank=4, matryoshka=(8, 4)).to_json()).matryoshka
        (8, 4)
        """
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in plain.items()}
        return {**plain, "method": None if self.method is None else to_json(self.method)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Settings:
        """From what `to_json` gave."""
        method = data.get("method")
        return cls(**{**data, "method": None if method is None else from_json(method)})
