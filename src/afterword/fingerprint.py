"""A name for everything that a vector depends on, so that vectors of two encoders are never mixed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, is_dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from .codec import to_json

if TYPE_CHECKING:
    from .encoder import Encoder


def fingerprint(encoder: Encoder) -> str:
    """32 hexadecimal digits: weights, method, steps, length, prompts, library versions.

    Two encoders of one fingerprint give the same vectors on the same machine.
    """
    digest = hashlib.blake2b(digest_size=16)
    described = {
        "method": {k: v for k, v in to_json(encoder.method).items() if k != "name"},
        "post": [_described(step) for step in encoder.post],
        "max_length": encoder.max_length,
        "prompts": encoder.prompts,
        "default_prompt_name": encoder.default_prompt_name,
        "tokenizer": encoder.backbone.tokenizer.description,
        "config": encoder.backbone.facts.kind,
        "dtype": str(encoder.backbone.dtype),
        "versions": {name: version(name) for name in ("afterword", "torch", "transformers", "tokenizers")},
    }
    digest.update(json.dumps(described, sort_keys=True, default=str).encode())
    digest.update(weights_digest(encoder.backbone.model))
    return digest.hexdigest()


def weights_digest(model: nn.Module) -> bytes:
    """A hash of every weight, whatever file it came from."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(_bytes(tensor))
    return digest.digest()


def _bytes(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def _described(step: object) -> dict[str, Any]:
    fields = asdict(step) if is_dataclass(step) and not isinstance(step, type) else {}
    plain = {k: weights_hash(v) if isinstance(v, Tensor) else v for k, v in fields.items()}
    return {"kind": type(step).__name__, **plain}


def weights_hash(tensor: Tensor) -> str:
    """A hash of one tensor."""
    return hashlib.blake2b(_bytes(tensor), digest_size=16).hexdigest()
