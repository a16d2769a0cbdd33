"""Before training: load the encoder, complete the settings from it, and check that settings, model and data fit."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import set_seed

from ..backbone.bidirectional import AUTO
from ..encoder import Encoder
from ..errors import DataError, InputError, MethodError
from ..methods import classical, one_method
from ..papers.turning import resolve
from ..tasks.pairs import ScoredPairs
from .checkpoints import processes
from .lora import check_four_bit
from .losses import check_rows
from .new_layers import append
from .rows import TrainingRows
from .settings import Precision, Settings

EMBEDDINGS = ("static", "static_h0", "layer:0", "normed:0")
"""Kinds of states that no layer has computed: LoRA would have nothing to train."""


def load(
    model: str | Path | Encoder,
    settings: Settings,
    dev: TrainingRows | None = None,
    device: Any = None,
    trust_remote_code: bool = False,
) -> Encoder:
    """Load the encoder that will be trained: with the settings' method, float32 weights and the new layers, if any.

    Args:
        model: as for `Encoder.load`, or an encoder, whose model is used without a copy.
        settings: of the run.
        dev: scored pairs, from which bellm(last="auto") finds the turning point.
        device: None = a GPU where there is one, each process its own.
        trust_remote_code: run the model's own code.

    Raises:
        MethodError: the method asks for bidirectional layers in a model that is bidirectional already, or for a
            number of them that differs from the number of new layers.
    """
    if isinstance(model, Encoder):
        encoder = model
    else:
        if device is None and torch.cuda.is_available():
            device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
        start = None if settings.method is None else classical()
        encoder = Encoder.load(model, start, device=device, trust_remote_code=trust_remote_code)
    method, facts = one_method(settings.method or encoder.method, "training"), encoder.backbone.facts
    if method.sight.both_ways and not facts.causal:
        raise MethodError(f"{facts.kind} is bidirectional already, in every layer: use classical or prompt, not bellm")
    if method.sight.last == AUTO and dev is not None and dev.scored and not dev.conditioned:
        left, right, gold = dev.columns.values()
        pairs = ScoredPairs(tuple(left), tuple(right), np.array(gold), ("dev",) * len(dev))
        method = resolve(method, encoder, pairs)
    if settings.added and method.sight.last != settings.added:
        raise MethodError(
            f"added={settings.added} new layers are bidirectional, and the method has last={method.sight.last}: "
            f"give bellm(last={settings.added})"
        )
    backbone = encoder.backbone
    if backbone.dtype in (torch.float16, torch.bfloat16) and not settings.four_bit:
        backbone.model.float()
    if settings.added:
        set_seed(settings.seed)
        backbone = append(backbone, settings.added, settings.fresh)
    encoder = replace(encoder, backbone=backbone, method=method)
    if settings.prompt is None:
        return encoder
    prompts = {**(encoder.prompts or {}), "trained": settings.prompt}
    return replace(encoder, prompts=prompts, default_prompt_name="trained")


def complete(settings: Settings, encoder: Encoder) -> Settings:
    """The settings with nothing left open: the encoder's method and default prompt, and the device's precision."""
    prompt = settings.prompt
    if prompt is None and settings.prompts is None and encoder.default_prompt_name is not None:
        prompt = (encoder.prompts or {}).get(encoder.default_prompt_name) or None
    chosen = settings.precision or precision(encoder.device)
    return replace(settings, method=one_method(encoder.method, "training"), prompt=prompt, precision=chosen)


def check(settings: Settings, encoder: Encoder, rows: TrainingRows, dev: TrainingRows | None) -> None:
    """Validate settings, model and data together, before anything is written.

    Raises:
        DataError: too few rows, or of a form that the loss, the method or the evaluation cannot use.
        InputError: patience without dev pairs; a prompt for a column that is missing; 4 bits without CUDA.
        MethodError: LoRA with a method that reads states from before the first layer.
        MissingExtra: 4 bits without bitsandbytes.
    """
    check_rows(settings, rows)
    needed = settings.batch_size * processes()
    if len(rows) < needed:
        raise DataError(f"{rows.source} holds {len(rows)} rows, fewer than a batch of {needed}: lower the batch size")
    if dev is not None and not dev.scored:
        raise DataError(f"{dev.source} holds {dev.form}, and dev is scored pairs: sentence1, sentence2, score")
    method = one_method(encoder.method, "training")
    wanted = "condition" in method.layout.fields
    for part in (rows, dev):
        if part is not None and wanted and not part.conditioned:
            raise DataError(
                f"{part.source} holds {part.form}, and the method's template holds {{condition}}: "
                "give sentence1, sentence2, condition, label"
            )
        if part is not None and part.conditioned and not wanted:
            raise DataError(f"{part.source} holds conditions: use a method whose template holds {{condition}}")
    if dev is not None and len(set(dev.columns["score"])) < 2:
        raise DataError(f"{dev.source} holds one score, {dev.columns['score'][0]:g}, for all pairs: nothing ranks them")
    if settings.patience and dev is None:
        raise InputError(f"patience={settings.patience} waits for a better score on dev: give dev")
    columns = list(rows.columns)
    if wrong := [name for name in settings.prompts or {} if name not in columns]:
        raise InputError(f"prompts name the column {wrong[0]!r}: {rows.source} holds {', '.join(columns)}")
    states = method.states.kind
    if settings.lora and states in EMBEDDINGS:
        raise MethodError(f"states={states!r} read no layer, and LoRA adapts layers only: give rank 0")
    if settings.four_bit:
        check_four_bit(encoder.backbone.model, encoder.device)


def precision(device: torch.device) -> Precision:
    """The default precision of the matrix products: bfloat16 on a GPU that supports it, else float32."""
    return "bfloat16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "float32"
