"""The part of a model that reads texts: the encoder of an encoder-decoder, the text model of a multimodal one."""

from __future__ import annotations

import inspect
import logging
from typing import Any

from torch import nn
from transformers import MODEL_FOR_TEXT_ENCODING_MAPPING

from ..errors import UnsupportedModel
from .attention import NAME
from .introspection import text_config

logger = logging.getLogger(__name__)

INSIDE = "inside_of"
"""Attribute of an encoder taken out of an encoder-decoder: its name in the whole model, and the whole configuration."""


def base_of(model: Any) -> Any:
    """The model inside a PEFT wrapper; any other model itself. PEFT's forward takes no positions."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def encoder_of(model: Any) -> Any:
    """The encoder of an encoder-decoder, so that no decoder is kept in memory; any other model itself.

    Raises:
        UnsupportedModel: the encoder does not run by itself on token ids.
    """
    config = model.config
    if type(config) in MODEL_FOR_TEXT_ENCODING_MAPPING or not getattr(config, "is_encoder_decoder", False):
        return model
    encoder = model.get_encoder() if hasattr(model, "get_encoder") else model
    if encoder is model or not hasattr(encoder, "save_pretrained"):
        raise UnsupportedModel(
            f"{config.model_type} is an encoder and a decoder, and its encoder ({type(encoder).__name__}) is a plain "
            "module of torch that transformers neither configures nor saves by itself: use an encoder, a decoder, or T5"
        )
    if "input_ids" not in inspect.signature(encoder.forward).parameters:
        raise UnsupportedModel(f"{config.model_type} is an encoder and a decoder, and its encoder takes no token ids")
    encoder.name_or_path = model.name_or_path
    return _with_our_backend(encoder)


def name_in(whole: nn.Module, part: nn.Module) -> str:
    """The name of a module in another that holds it."""
    return next(str(name) for name, module in whole.named_modules() if module is part)


def is_inside(model: Any) -> bool:
    """Whether a model is the encoder of an encoder-decoder, which AutoModel would load with its decoder."""
    return getattr(base_of(model), INSIDE, None) is not None


def text_tower(model: Any) -> Any:
    """The text model inside a multimodal one; any other model itself.

    The rest never runs, so it is neither kept in memory nor saved. A quantised model is not split, since the settings
    of its quantisation belong to the whole.
    """
    config = text_config(model.config)
    if config is model.config or getattr(model.config, "quantization_config", None) is not None:
        return model
    inside = (m for m in model.modules() if m is not model and getattr(m, "config", None) is config)
    tower: Any = next((m for m in inside if hasattr(m, "get_input_embeddings")), model)
    if tower is not model:
        tower.name_or_path = config._name_or_path = model.name_or_path
        config._commit_hash = getattr(model.config, "_commit_hash", None)
        config.architectures = [type(tower).__name__]
    return _with_our_backend(tower) if tower is not model else model


def _with_our_backend(model: Any) -> Any:
    """The model with our attention backend, if it can also switch back to eager."""
    was = model.config._attn_implementation
    try:
        model.set_attn_implementation("eager")
        if model.config._attn_implementation == "eager":
            model.set_attn_implementation(NAME)
    except (KeyError, ValueError, AttributeError, TypeError, ImportError) as e:
        logger.debug("%s does not use our attention backend: %s", type(model).__name__, e)
        model.config._attn_implementation = was
    return model
