"""The options of `encode`, under sentence-transformers' names; options that are not supported are refused by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..backbone.backbone import Backbone
from ..errors import InputError
from ..spelling import did_you_mean
from .limits import count
from .quantise import quantise
from .sentences import Array

PRECISIONS = ("float32", "int8", "uint8", "binary", "ubinary")
SENTENCES, TOKENS = "sentence_embedding", "token_embeddings"
WAY = "encoder.sentence_transformer() is a SentenceTransformer with the same weights, for everything else"

Call = TypeVar("Call", bound=Callable[..., Any])


def also_called(**others: str) -> Callable[[Call], Call]:
    """Accept the first argument of a function also under the names that sentence-transformers gives it.

    Args:
        others: for each other name, the function's own name of that argument.
    """

    def wrap(call: Call) -> Call:
        @wraps(call)
        def renamed(*args: Any, **options: Any) -> Any:
            for other in others.keys() & options.keys():
                if others[other] in options or len(args) > 1:
                    raise InputError(f"{other} is another name of {others[other]}, and both are given: leave one away")
                options[others[other]] = options.pop(other)
            return call(*args, **options)

        return renamed  # type: ignore[return-value]

    return wrap


def refuse_others(options: Mapping[str, Any]) -> None:
    """Refuse arguments that `encode` does not have; sentence-transformers would pass them to its modules.

    Raises:
        InputError: there is one, and it is not None.
    """
    if unknown := [name for name, value in options.items() if value is not None]:
        raise InputError(f"encode has no argument {unknown[0]!r}; {WAY}")


def choose_prompt(
    prompts: Mapping[str, str] | None, default: str | None, prompt: str | None = None, name: str | None = None
) -> str | None:
    """The instruction to put in front of texts. As in sentence-transformers, `prompt` overrides `prompt_name`.

    Raises:
        InputError: no prompt has that name.
    """
    name = name if name is not None else default
    if prompt is not None or name is None:
        return prompt
    if name not in (prompts or {}):
        known = ", ".join(prompts or {}) or "none"
        close = did_you_mean(name, prompts or ())
        raise InputError(f"no prompt is named {name!r}{close}: there are {known}; pass prompt= for any text")
    return (prompts or {})[name]


def several(backbone: Backbone, device: Any, pool: Any, chunk_size: int | None) -> bool:
    """Whether a call asks for several processes; a single device must be the one that the model is on.

    Raises:
        InputError: it is another device, or an argument has no effect in combination with the others.
    """
    listed = isinstance(device, list | tuple)
    if pool is not None and device is not None:
        raise InputError("pool and device are given: a pool has its devices, leave device out")
    if pool is not None or listed:
        count("chunk_size", chunk_size)
        return True
    if chunk_size is not None:
        raise InputError(f"chunk_size={chunk_size} is for several processes: give device=[...] or pool= with it")
    if device is not None:
        own, wanted = backbone.device, _device(device)
        if wanted.type != own.type or wanted.index not in (None, own.index or 0):
            raise InputError(
                f"device={str(device)!r}: the model is on {own}; load it on the device it should run on, "
                f"Encoder.load(..., device={str(device)!r})"
            )
    return False


def _device(device: Any) -> torch.device:
    try:
        return torch.device(device)
    except (RuntimeError, TypeError) as e:
        raise InputError(f"device={device!r} is no device: give 'cpu' or 'cuda:0', or a list of them") from e


@dataclass(frozen=True)
class Form:
    """The form in which `encode` returns vectors.

    Args:
        output_value: "sentence_embedding", "token_embeddings", or None for both with the token ids.
        precision: type of the components, one of `PRECISIONS`; None = "float32".
        convert_to_numpy: return an array; else a list of tensors.
        convert_to_tensor: return one tensor; overrides `convert_to_numpy`.
        device: the device of that tensor.
    """

    output_value: str | None
    precision: str | None
    convert_to_numpy: bool
    convert_to_tensor: bool
    device: torch.device

    def __post_init__(self) -> None:
        """Validate the values."""
        if self.output_value not in (SENTENCES, TOKENS, None):
            raise InputError(f"output_value={self.output_value!r}: choose {SENTENCES!r}, {TOKENS!r} or None; {WAY}")
        if self.precision not in (*PRECISIONS, None):
            raise InputError(f"precision={self.precision!r}: choose {', '.join(PRECISIONS)}")

    @property
    def quantised(self) -> bool:
        """Whether vectors are returned in fewer bits."""
        return self.precision not in ("float32", None)

    def check(self, *, several: bool, **options: Any) -> None:
        """Refuse arguments that have no effect in this form.

        Args:
            several: whether the call asks for several processes.
            options: the values of normalize_embeddings, truncate_dim, out and on_empty.

        Raises:
            InputError: one has no effect.
        """
        switches = {"convert_to_numpy": self.convert_to_numpy, "convert_to_tensor": self.convert_to_tensor, **options}
        for name in ("convert_to_numpy", "convert_to_tensor", "normalize_embeddings"):
            if isinstance(switches.get(name), str):
                raise InputError(f"{name}={switches[name]!r} is a string: give True or False")
        given = [name for name, value in options.items() if value is not None and value is not False]
        given += ["precision"] * self.quantised + ["a pool or a list of devices"] * several
        if self.output_value is None:  # the sentence vector beside the states is truncated and normalised
            given = [name for name in given if name not in ("normalize_embeddings", "truncate_dim")]
        if self.output_value != SENTENCES and given:
            raise InputError(f"output_value={self.output_value!r} gives one tensor per text: {given[0]} is not for it")
        if self.quantised and "out" in given:
            raise InputError(f"out takes float32 vectors: leave out or precision={self.precision!r} away")

    def sentences(self, vectors: Array, single: bool) -> Any:
        """Sentence vectors (n, D) in this form; (D,) for one string."""
        if self.quantised:
            vectors = quantise(vectors, str(self.precision))
        if self.convert_to_tensor:
            tensor = torch.from_numpy(vectors).to(self.device)
            return tensor[0] if single else tensor
        if not self.convert_to_numpy:
            return torch.from_numpy(vectors[0]) if single else list(torch.from_numpy(vectors))
        return vectors[0] if single else vectors

    def tokens(self, features: Sequence[Mapping[str, Tensor]], single: bool) -> Any:
        """The results of `token_states` in this form: one tensor, or one dictionary of tensors, for each text."""
        rows = [dict(text) if self.output_value is None else text[TOKENS] for text in features]
        return rows[0] if single else rows
