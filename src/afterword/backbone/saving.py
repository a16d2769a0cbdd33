"""Write a model and its tokenizer to a folder that loads to the same vectors; refuse a model that would not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import __version__

from ..errors import ModelError
from .introspection import window
from .loading import quiet
from .text_part import INSIDE, base_of

MARKS = (".base_layer.", ".original_module.")
"""Parts of the names of a layer's own weights inside the layer with which PEFT replaces it."""


def write_model(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write a model and its tokenizer.

    A model with an adapter is written with its own weights and the adapter's, so that the folder is complete and loads
    to the same vectors, with or without a PEFT wrapper around the model. The encoder of an encoder-decoder is written
    with the weight names and the configuration of the full model, so that transformers' AutoModel can load it too.

    Raises:
        ModelError: the folder would not load to the same model.
    """
    base = base_of(model)
    own = _without_adapters(base.state_dict())
    adapter, inside = _check_adapters(base), getattr(base, INSIDE, None)
    if inside is not None and adapter is not None:  # transformers would look for it in the full model
        raise ModelError(
            f"the adapter {adapter!r} on the encoder of a {base.config.model_type} cannot be saved: add it "
            "to the weights with merge_and_unload()"
        )
    if type(base).__module__.startswith("transformers."):
        _check_window(base.config)
    native = getattr(base, "_hf_peft_config_loaded", False)
    renamed = getattr(base, "_weight_conversions", None)
    with quiet():
        try:
            base._hf_peft_config_loaded = False  # else transformers writes the adapter alone
            if adapter is not None:
                base._weight_conversions = None  # else it writes the model's weights under an adapter's names
            if inside is not None:
                _write_inside(base, folder, *inside)
            else:
                base.save_pretrained(folder, state_dict=None if adapter is None else own)
            if adapter is not None:
                base._hf_peft_config_loaded = True  # now write the adapter alone
                base.save_pretrained(folder)
        finally:
            base._hf_peft_config_loaded, base._weight_conversions = native, renamed
        tokenizer.save_pretrained(folder)


def _write_inside(encoder: Any, folder: Path, name: str, config: Any) -> None:
    """Write the encoder of an encoder-decoder as `name` of the full model."""
    encoder.save_pretrained(folder, state_dict={f"{name}.{k}": t for k, t in encoder.state_dict().items()})
    config.dtype = encoder.config.dtype
    config.save_pretrained(folder)


def _check_adapters(base: Any) -> str | None:
    """Validate the model's adapters, and return the name of the only one, or None.

    Raises:
        ModelError: there are several, or the adapter is merged or switched off, which a folder cannot express.
    """
    layers = [module for module in base.modules() if isinstance(getattr(module, "merged", None), bool)]
    names = sorted(getattr(base, "peft_config", None) or {})
    if not layers:
        return None
    if len(names) != 1:
        there = ", ".join(names) or "unknown"
        raise ModelError(
            f"the model holds {len(names)} adapters, {there}: a folder holds one; keep one with delete_adapter(), "
            "or add them to the weights with merge_and_unload()"
        )
    if any(layer.merged for layer in layers):
        raise ModelError(
            f"the adapter {names[0]!r} is merged into the weights and still there: it would be added twice; "
            "call unmerge_adapter() or merge_and_unload()"
        )
    if any(layer.disable_adapters or names[0] not in layer.active_adapters for layer in layers):
        raise ModelError(f"the adapter {names[0]!r} is switched off: switch it on, or remove it with unload()")
    return str(names[0])


def _check_window(config: Any) -> None:
    """Validate that the window survives saving: older transformers halve that of a bidirectional Gemma 3 each time."""
    now = window(type(config).from_dict(config.to_dict()))
    if window(config) != now:
        raise ModelError(
            f"this {config.model_type} cannot be saved: transformers {__version__} would read its attention window of "
            f"{window(config)} tokens back as {now}; update transformers"
        )


def _without_adapters(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """A model's own weights under their own names, without those of adapters; PEFT wraps the layers of both."""
    wrapped = {name.split(mark)[0] for name in weights for mark in MARKS if mark in name}
    own = {}
    for name, tensor in weights.items():
        mark = next((m for m in MARKS if m in name), None)
        if mark is not None:
            own[name.replace(mark, ".")] = tensor
        elif not any(name.startswith(f"{layer}.") for layer in wrapped):
            own[name] = tensor
    return own
