"""The settings of a training run, in one value: saved with the result, and compared before a run is resumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import inf
from typing import Any, Literal, get_args

from ..errors import InputError
from ..methods import Method, one_method
from ..methods.serialize import from_json, to_json

Loss = Literal["ranking", "cached_ranking", "angle", "cosent", "released"]
Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True)
class Settings:
    """The hyperparameters of training. The defaults are those of the BeLLM paper, section 4.1, where it gives them.

    Args:
        method: the embedding method; None keeps the encoder's own.
        rank: LoRA rank r; 0 trains every weight.
        alpha: LoRA alpha: the product of the two matrices is scaled by alpha / rank.
        dropout: LoRA dropout probability.
        targets: names of the linear layers that get LoRA; empty = all.
        four_bit: keep the frozen weights in 4 bits (QLoRA); needs CUDA and bitsandbytes.
        added: number of new bidirectional layers after the last one (Table 4's "addition"; see `new_layers.append`).
        fresh: initialise the new layers at random, not as copies of the last layers.
        loss: name of the loss: "ranking", "cached_ranking", "angle", "cosent" or "released".
        temperature: of the ranking losses, whose scale is 1 / temperature.
        scale: factor on the cosines in "angle" and "cosent".
        weights: of the three parts of "released": cosine, in-batch negatives, angle (``cosine_w``, ``ibn_w`` and
            ``angle_w`` of angle_emb).
        mini_batch: texts per forward of "cached_ranking".
        matryoshka: numbers of leading components; the loss is summed over the vectors truncated to each.
        learning_rate: peak learning rate.
        warmup: number of warm-up steps, or their share of all steps; then the learning rate falls linearly to 0. A
            run of one step has none.
        weight_decay: of AdamW.
        clip: maximum norm of the gradient.
        batch_size: rows per batch and process.
        accumulate: batches per step (gradient accumulation).
        epochs: passes over the rows.
        steps: number of steps; replaces `epochs`.
        max_length: maximum number of tokens per text in training; None = the model's limit, which the encoder that is
            saved has in any case.
        distinct: never put a text into a batch twice, if the loss uses in-batch negatives.
        prompt: prepended to every text.
        prompts: prepended to the texts of a column, by column name.
        precision: of the matrix products; "bfloat16" is autocast over float32 weights.
        checkpointing: gradient checkpointing: keep only the layers' inputs, and run layers again for their gradients.
        seed: random seed of LoRA's initial weights, the order of the rows, and dropout.
        every: number of steps between two checkpoints, each with an evaluation on dev.
        patience: stop after this many evaluations without a better dev score; 0 = never.

    Raises:
        InputError: a value is invalid.

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
        """Validate the values."""
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
            raise InputError("all weights of new layers are trained, which 4 bits do not allow: leave four_bit out")
        if self.steps == 1 and self.warmup >= 1:
            raise InputError(f"warmup={self.warmup:g} steps, and the run has one step: give less than 1")
        if len(self.weights) != 3 or not all(0 <= w < inf for w in self.weights) or not any(self.weights):
            given = ",".join(f"{w:g}" for w in self.weights)
            raise InputError(
                f"weights={given}: give three numbers from 0, not all 0: cosine, in-batch negatives, angle"
            )
        if self.prompt and self.prompts:
            raise InputError("give prompt, for every column, or prompts, by column, not both")

    @property
    def lora(self) -> bool:
        """Whether LoRA matrices are trained instead of the weights."""
        return self.rank > 0

    @property
    def ranking(self) -> bool:
        """Whether the loss uses in-batch negatives."""
        return self.loss in ("ranking", "cached_ranking", "released")

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON.

        >>> Settings.from_json(Settings(rank=4, matryoshka=(8, 4)).to_json()).matryoshka
        (8, 4)
        """
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in plain.items()}
        return {**plain, "method": None if self.method is None else to_json(self.method)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Settings:
        """Settings from the result of `to_json`."""
        method = data.get("method")
        return cls(**{**data, "method": None if method is None else one_method(from_json(method), "training")})
