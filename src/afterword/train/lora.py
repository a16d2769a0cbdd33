"""LoRA by PEFT: attach low-rank matrices to a model's linear layers, and merge them into the weights after training."""

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


def attach(model: nn.Module, settings: Settings, full: Sequence[nn.Module] = ()) -> Any:
    """Add LoRA matrices to a model's linear layers; the remaining weights are frozen.

    Source: BeLLM, "Model Settings": r = 32, alpha = 32, dropout 0.1; all linear layers, as its released code.

    Args:
        model: a base model; its layers are wrapped in place.
        settings: rank, alpha, dropout, targets, four_bit.
        full: modules without LoRA, all of whose weights are trained.

    Returns:
        PEFT's model, which wraps the given one.

    Raises:
        InputError: a target is not the name of a linear layer.
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
        exclude_modules=f"({'|'.join(names[id(m)] for m in full)})\\..*" if full else None,
    )
    with warnings.catch_warnings():  # PEFT uses names that transformers has deprecated
        warnings.simplefilter("ignore")
        adapted = get_peft_model(model, config)
    for part in full:
        part.requires_grad_(True)
    return adapted


def merge(adapted: Any) -> nn.Module:
    """Merge the LoRA matrices into the weights and unwrap the model.

    Raises:
        ModelError: a merged weight is NaN or infinite.
    """
    try:
        return adapted.merge_and_unload(safe_merge=True)  # type: ignore[no-any-return]
    except ValueError as e:
        raise ModelError(f"the trained matrices cannot be merged: {e}") from None


def merge_into(adapted: Any, base: nn.Module, settings: Settings) -> nn.Module:
    """Merge trained LoRA matrices into another model of the same shape: the copy from before `quantise`.

    Args:
        adapted: the trained result of `attach`.
        base: the model that is changed, in place.
        settings: the settings given to `attach`.
    """
    other = attach(base, replace(settings, four_bit=False))
    set_peft_model_state_dict(other, get_peft_model_state_dict(adapted))
    return merge(other)


def is_linear(module: nn.Module) -> bool:
    """Whether LoRA can be added to a module: a linear layer, or GPT-2's Conv1D, which is one too."""
    return isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D"


def check_four_bit(model: nn.Module, device: torch.device) -> None:
    """Check that a model's weights can be held in 4 bits.

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
    """Quantise the linear layers to 4 bits in place (QLoRA: NF4, double quantisation), the rest to float32."""
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
    model.is_loaded_in_4bit = True  # PEFT looks for this attribute
