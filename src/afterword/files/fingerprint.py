"""A name for everything that a vector depends on, so that vectors of two encoders are never mixed."""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..methods import Method
from ..methods.frequency import ByToken
from ..methods.serialize import to_json
from .folder_modules import spelled_out
from .parts import Parts

LIBRARIES = ("afterword", "torch", "transformers", "tokenizers")

PASSING = frozenset(
    "_name_or_path _commit_hash transformers_version architectures dtype torch_dtype use_cache output_attentions "
    "output_hidden_states return_dict id2label label2id problem_type auto_map".split()
)
"""Settings of a model that no vector depends on, or that are described apart; saving changes some of them."""


def fingerprint(encoder: Parts, weights: bytes | None = None) -> str:
    """32 hexadecimal digits: weights, the hub's commit, method, steps, length, prompts, library versions.

    Two encoders of one fingerprint give the same vectors on the same machine. It stays the same when an encoder is
    saved and loaded again.

    Args:
        encoder: any.
        weights: the `weights_digest` of its model, where that was made before.
    """
    digest = hashlib.blake2b(digest_size=16)
    digest.update(json.dumps(described(encoder), sort_keys=True, default=str).encode())
    digest.update(weights or weights_digest(encoder.backbone.model))
    return digest.hexdigest()


def described(encoder: Parts) -> dict[str, Any]:
    """All that a fingerprint hashes beside the weights."""
    config: Any = encoder.backbone.model.config
    return {
        "method": _method(encoder.method),
        "post": [described_step(step) for step in encoder.post],
        "max_length": encoder.max_length,
        "prompts": spelled_out(encoder.prompts),
        "default_prompt_name": encoder.default_prompt_name,
        "tokenizer": encoder.backbone.tokenizer.description,
        "revision": encoder.revision,
        "config": {k: v for k, v in config.to_dict().items() if k not in PASSING},
        "dtype": str(encoder.backbone.dtype),
        "products": encoder.backbone.products,
        "versions": {name: version(name) for name in LIBRARIES},
    }


def _method(method: Method) -> dict[str, Any]:
    """All of a method but its name; of a weighting of the user's own its code, not where that is imported from."""
    found = {k: v for k, v in to_json(method).items() if k != "name"} | fitted(method)
    weigh = {k: v for k, v in found["weigh"].items() if k != "class"}
    return {**found, "weigh": weigh if method.weigh.code is None else {**weigh, "code": method.weigh.code}}


def fitted(method: Method) -> dict[str, str]:
    """A hash of what a method has fitted, where it has."""
    weigh = method.weigh
    return {"table": weights_hash(weigh.table.values)} if isinstance(weigh, ByToken) and weigh.table else {}


def weights_digest(model: nn.Module) -> bytes:
    """A hash of every weight that can reach a state, whatever file it came from.

    A pooler stands behind the states: where a folder has none, each load would make another one up.
    """
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(model.state_dict().items()):
        if "pooler" not in name:
            digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
            digest.update(_bytes(tensor))
    return digest.digest()


def _bytes(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def described_step(step: object) -> dict[str, Any]:
    """A step by its kind and everything it holds."""
    return {"kind": type(step).__name__, **{k: _described(v) for k, v in sorted(vars(step).items())}}


def _described(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        value = torch.from_numpy(value)
    if isinstance(value, nn.Module):
        return weights_digest(value).hex()
    return weights_hash(value) if isinstance(value, Tensor) else value


def weights_hash(tensor: Tensor) -> str:
    """A hash of one tensor, its type and shape."""
    digest = hashlib.blake2b(f"{tensor.dtype} {list(tensor.shape)}".encode(), digest_size=16)
    digest.update(_bytes(tensor))
    return digest.hexdigest()
