"""Write a model and its tokenizer to a folder that loads to the same vectors; refuse a model that would not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import __version__

from ..errors import ModelError
from .introspection import window
from .loading import INSIDE, base_of, quiet

MARKS = (".base_layer.", ".original_module.")
"""In the layer with which PEFT replaces another, the names of that layer's own weights hold one of these."""


def write_model(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write a model and its tokenizer.

    A model with an adapter is written with its own weights and the adapter's, so that the folder is complete and loads
    to the same vectors, with or without a PEFT wrapper around the model. The encoder of an encoder-decoder is written
    with the weight names and the configuration of the full model, so that transformers' AutoModel can load it too.

    Raises:
        ModelError: the folder would not load to the same model.
    """
    base = base_of(model)
    adapter, inside = _only_adapter(base), getattr(base, INSIDE, None)
    if inside is not None and adapter is not None:  # transformers would look for it in the full model
        raise ModelError(
            f"the adapter {adapter!r} on the encoder of a {base.config.model_type} cannot be saved: merge it into the "
            "weights with merge_and_unload()"
        )
    if type(base).__module__.startswith("transformers."):
        _check_window(base.config)
    native, names = getattr(base, "_hf_peft_config_loaded", False), getattr(base, "_weight_conversions", None)
    with quiet():
        try:
            base._hf_peft_config_loaded = False  # else transformers writes the adapter alone
            if adapter is not None:
                base._weight_conversions = None  # else it writes the model's weights under an adapter's names
            if inside is not None:
                name, config = inside
                base.save_pretrained(folder, state_dict={f"{name}.{k}": t for k, t in base.state_dict().items()})
                config.dtype = base.config.dtype
                config.save_pretrained(folder)
            else:
                base.save_pretrained(folder, state_dict=adapter and _without_adapters(base.state_dict()))
            if adapter is not None:
                base._hf_peft_config_loaded = True  # now write the adapter alone
                base.save_pretrained(folder)
        finally:
            base._hf_peft_config_loaded, base._weight_conversions = native, names
        tokenizer.save_pretrained(folder)


def _only_adapter(base: Any) -> str | None:
    """The name of the model's only adapter, or None; raises ModelError for adapters that a folder cannot express."""
    layers = [module for module in base.modules() if isinstance(getattr(module, "merged", None), bool)]
    names = sorted(getattr(base, "peft_config", None) or {})
    if not layers:
        return None
    if len(names) != 1:
        raise ModelError(f"the model has {len(names)} adapters, {', '.join(names)}: keep one with delete_adapter()")
    if any(layer.merged for layer in layers):
        raise ModelError(f"the adapter {names[0]!r} is merged but still attached: call merge_and_unload() to save both")
    if any(layer.disable_adapters or names[0] not in layer.active_adapters for layer in layers):
        raise ModelError(f"the adapter {names[0]!r} is disabled: enable it, or remove it with unload()")
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
    kept = {}
    for name, tensor in weights.items():
        mark = next((m for m in MARKS if m in name), None)
        if mark is not None:
            kept[name.replace(mark, ".")] = tensor
        elif not any(name.startswith(f"{layer}.") for layer in wrapped):
            kept[name] = tensor
    return kept
