"""What a command's vectors are made by: written into a .parquet file, and compared before a run is continued."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import torch

from ..encode.options import choose_prompt
from ..encoder import Encoder
from ..files.fingerprint import LIBRARIES, fingerprint, identity, weights_digest
from ..methods import AnyMethod
from ..methods.serialize import to_json
from .contract import Contract
from .probes import probes
from .vectors_info import VectorsInfo


def made_by(
    encoder: Encoder, methods: Mapping[str, AnyMethod], settings: Mapping[str, Any], model: str, probed: bool
) -> dict[str, VectorsInfo]:
    """What each column of vectors is made by.

    Args:
        encoder: the encoder.
        methods: the method of each column.
        settings: the options of `Encoder.encode`.
        model: the model, as the command names it.
        probed: whether probe vectors are computed, which .parquet files store.

    Raises:
        InputError: no prompt has the name that the settings give.
    """
    prompt = choose_prompt(
        encoder.prompts, encoder.default_prompt_name, settings.get("prompt"), settings.get("prompt_name")
    )
    weights, infos = weights_digest(encoder.backbone.model), {}
    for column, method in methods.items():
        one = replace(encoder, method=method)
        infos[column] = VectorsInfo(
            model=model,
            method=to_json(method),
            fingerprint=fingerprint(one, weights),
            identity=identity(one, weights),
            dimension=settings.get("truncate_dim") or one.dimension,
            normalized=bool(settings.get("normalize_embeddings")),
            prompt=prompt or None,
            probes=probes(one) if probed else None,
        )
    return infos


def contract(infos: Mapping[str, VectorsInfo], encoder: Encoder, threads: str = "OMP_NUM_THREADS") -> Contract:
    """What must be the same when a run goes on, so that its rows are those of a run that was not interrupted.

    Args:
        infos: what each column is made by.
        encoder: that embeds.
        threads: what the user gives the number of torch's threads by; on a CPU other ones give other last bits.
    """
    device = encoder.device.type
    cpu = {threads: torch.get_num_threads()} if device == "cpu" else {}
    return {
        "method": {column: info.method for column, info in infos.items()},
        "identity": {column: info.identity for column, info in infos.items()},
        "--device": device,
        **cpu,
        "version": {name: version(name) for name in LIBRARIES},
        "fingerprint": {column: info.fingerprint for column, info in infos.items()},
    }
