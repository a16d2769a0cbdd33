"""Low-rank matrices beside a model's layers: put there, trained, added to the weights."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from ..errors import InputError, MissingExtra, ModelError
from .settings import Settings

try:
    from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
except ImportError as e:
    raise MissingExtra("peft", "train") from e


def attach(model: nn.Module, settings: Settings, whole: Sequence[nn.Module] = ()) -> Any:
    """Put LoRA's matrices beside a model's layers; everything else is frozen.

    Source: BeLLM, "Model Settings": r = 32, alpha = 32, dropout 0.1; all linear layers, as its released code.

    Args:
        model: a base model; its layers are wrapped in place.
        settings: rank, alpha, dropout, targets, four_bit.
        whole: parts that get none: all their weights are trained.

    Returns:
        PEFT's model around it.

    Raises:
        InputError: no linear layer has a target's name.
    """
    there = {name.rpartition(".")[2] for name, m in model.named_modules() if is_linear(m)}
    if wrong := [t for t in settings.targets if t not in there]:
        raise InputError(f"targets={','.join(wrong)}: the linear layers are {', '.join(sorted(there))}")
    if settings.four_bit:
        quantise(model)
    names = {id(m): re.escape(name) for name, m in model.named_modules()}
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=list(settings.targets) or "all-linear",
        exclude_modules=f"({'|'.join(names[id(m)] for m in whole)})\\..*" if whole else None,
    )
    with warnings.catch_warnings():  # of names that transformers has given new ones
        warnings.simplefilter("ignore")
        adapted = get_peft_model(model, config)
    for part in whole:
        part.requires_grad_(True)
    return adapted


def merge(adapted: Any) -> nn.Module:
    """Add the matrices' products to the weights; the model is what it was, with other weights.

    Raises:
        ModelError: the sum is not finite.
    """
    try:
        return adapted.merge_and_unload(safe_merge=True)  # type: ignore[no-any-return]
    except ValueError as e:
        raise ModelError(f"the trained matrices cannot be merged: {e}") from None


def moved(adapted: Any, base: nn.Module, settings: Settings) -> nn.Module:
    """Add the matrices' products to the weights of another model of the same shape: to those of before `quantise`.

    Args:
        adapted: what `attach` gave, trained.
        base: is changed in place.
        settings: those of `attach`.
    """
    other = attach(base, replace(settings, four_bit=False))
    set_peft_model_state_dict(other, get_peft_model_state_dict(adapted))
    return merge(other)


def is_linear(module: nn.Module) -> bool:
    """Whether it is a layer that LoRA stands beside; GPT-2's are of a class of their own."""
    return isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D"


def check_four_bit(model: nn.Module, device: torch.device) -> None:
    """Whether weights can be held in 4 bits.

    Raises:
        InputError: the model is not on a CUDA GPU, or its layers are of a class that bitsandbytes has no 4 bits for.
        MissingExtra: bitsandbytes is not installed.
    """
    if device.type != "cuda":
        raise InputError(f"weights in 4 bits need a CUDA GPU, and the model is on {device}: leave four_bit out")
    if other := {type(m).__name__ for m in model.modules() if is_linear(m) and type(m) is not nn.Linear}:
        raise InputError(f"layers of the class {min(other)} cannot be held in 4 bits: leave four_bit out")
    if find_spec("bitsandbytes") is None:
        raise MissingExtra("bitsandbytes", "qlora")


def quantise(model: Any) -> None:
    """Hold the weights of linear layers in 4 bits (QLoRA: NF4, doubly quantised), in place; the others in float32."""
    import bitsandbytes as bnb

    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            if type(layer) is nn.Linear:
                small = bnb.nn.Linear4bit(
                    layer.in_features, layer.out_features, layer.bias is not None,
                    compute_dtype=torch.bfloat16, quant_type="nf4", compress_statistics=True,
                )  # fmt: skip
                small.load_state_dict(layer.state_dict())
                setattr(parent, name, small.to(layer.weight.device))
    for parameter in model.parameters():
        if parameter.is_floating_point():
            parameter.data = parameter.data.float()
    model.is_loaded_in_4bit = True  # PEFT asks for it
