"""What a model is made of: its layers, the norm behind them, where positions start, how rotary frequencies behave."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from .errors import UnsupportedModel
from .sight import Stack


def count_layers(config: Any) -> int:
    """How many layers with attention or not a configuration asks for."""
    for name in ("num_hidden_layers", "num_layers", "n_layer", "n_layers"):
        if isinstance(getattr(config, name, None), int):
            return int(getattr(config, name))
    return 0


def count_heads(config: Any) -> int:
    """How many attention heads a configuration asks for; 0 where it names none."""
    for name in ("num_attention_heads", "num_heads", "n_head", "n_heads"):
        if isinstance(getattr(config, name, None), int):
            return int(getattr(config, name))
    return 0


def position_offset(model: nn.Module) -> int:
    """Position of the first token: RoBERTa and its kin count from ``padding_idx + 1``; their table says so."""
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding) and module.padding_idx is not None:
            return module.padding_idx + 1
    return 0


def position_limit(config: Any, offset: int) -> int | None:
    """Tokens at most, by the configuration; None where positions are not limited."""
    for name in ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx"):
        value = getattr(config, name, None)
        if isinstance(value, int) and value > 0:
            return int(value * _stretch(config)) - offset
    return None


def _stretch(config: Any) -> float:
    """How far dynamic rotary frequencies reach beyond the positions a model was trained on."""
    return max((float(r.get("factor") or 1) for r in _rotary(config) if r.get("rope_type") == "dynamic"), default=1.0)


def _rotary(config: Any) -> list[dict[str, Any]]:
    """The rotary parameters: one set, or one for each kind of layer."""
    parameters = getattr(config, "rope_parameters", None) or {}
    return [parameters] if "rope_type" in parameters else [p for p in parameters.values() if isinstance(p, dict)]


def window(config: Any) -> int | None:
    """The shortest attention window or chunk of a model, where it has one."""
    names = ("sliding_window", "attention_chunk_size", "window_size", "local_attention")
    found = [getattr(config, n, None) for n in names]
    return min((w for w in found if isinstance(w, int) and w > 0), default=None)


def rotary_split(config: Any) -> tuple[int | None, bool]:
    """Rotary frequencies that depend on the longest text of a forward.

    Returns:
        The length beyond which they change (None: they never do), and whether they then differ for each length.
    """
    for kind in _rotary(config):
        if kind.get("rope_type") in ("longrope", "dynamic"):
            grows = kind["rope_type"] == "dynamic"
            original = None if grows else kind.get("original_max_position_embeddings")
            original = original or getattr(config, "original_max_position_embeddings", None)
            return int(original or config.max_position_embeddings), grows
    return None, False


def reset_rotary(model: nn.Module) -> None:
    """Forget dynamic rotary frequencies that an earlier, longer text left behind."""
    for module in model.modules():
        original = getattr(module, "original_max_seq_len", None)
        if original is None:
            continue
        for name in [n for n in vars(module) if n.endswith("max_seq_len_cached")]:
            setattr(module, name, original)
        for name in [n for n in (*vars(module), *module._buffers) if n.endswith("original_inv_freq")]:
            module.register_buffer(name.replace("original_", ""), getattr(module, name), persistent=False)


def find_stack(model: nn.Module, attention: Sequence[nn.Module]) -> Stack:
    """The layers that hold the attention modules, in order, and the norm behind them.

    Raises:
        UnsupportedModel: no list of layers holds them one by one.
    """
    for parent in model.modules():
        for layers in (c for c in parent.children() if isinstance(c, nn.ModuleList)):
            if len(layers) == len(attention) and all(
                any(m is a for m in layer.modules()) for layer, a in zip(layers, attention, strict=True)
            ):
                return Stack(tuple(layers), _norm_behind(model, parent))
    raise UnsupportedModel(
        f"{type(model).__name__}: its layers cannot be told apart, which states='normed:k' and sums of two streams "
        "need; couple='replace' does not"
    )


@torch.no_grad()
def _norm_behind(model: nn.Module, parent: nn.Module) -> nn.Module | None:
    """The child whose output is what the model returns: seen by running two tokens through it."""
    outputs: list[tuple[nn.Module, Any]] = []
    hooks = [
        c.register_forward_hook(lambda m, _, out: outputs.append((m, out)))
        for c in parent.children()
        if not isinstance(c, nn.ModuleList)
    ]
    implementation = model.config._attn_implementation  # type: ignore[union-attr]
    try:
        model.set_attn_implementation("eager")  # type: ignore[operator]
        last = model(input_ids=torch.zeros(1, 2, dtype=torch.long, device=next(model.parameters()).device))
    finally:
        model.set_attn_implementation(implementation)  # type: ignore[operator]
        for hook in hooks:
            hook.remove()
    final = last.last_hidden_state
    same = (m for m, out in outputs if isinstance(out, Tensor) and out.shape == final.shape and torch.equal(out, final))
    return next(same, None)


@contextmanager
def in_float32(model: nn.Module) -> Iterator[None]:
    """Parameters and buffers in float32 for a while; a half-precision model is bit for bit what it was afterwards."""
    every = [*model.parameters(), *model.buffers()]
    half = [(t, t.dtype) for t in every if t.dtype in (torch.float16, torch.bfloat16)]
    try:
        for t, _ in half:
            t.data = t.data.float()
        yield
    finally:
        for t, dtype in half:
            t.data = t.data.to(dtype)
