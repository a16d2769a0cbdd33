"""What a command's vectors are made by: written into a .parquet file, and compared before a run is continued."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..encoder import Encoder
    from ..jobs.output_file import Output
    from ..jobs.vectors_info import VectorsInfo
    from ..methods import AnyMethod


def made_by(
    encoder: Encoder, methods: Mapping[str, AnyMethod], settings: Mapping[str, Any], model: str, output: Output
) -> dict[str, VectorsInfo]:
    """What each column of vectors is made by.

    Args:
        encoder: the encoder.
        methods: the method of each column.
        settings: the options of `Encoder.encode`.
        model: the model, as the command names it.
        output: the output; only a .parquet file stores probe vectors, and only for one they are computed.

    Raises:
        InputError: no prompt has the name that the settings give.
    """
    from ..encode.options import choose_prompt
    from ..files.fingerprint import fingerprint, identity, weights_digest
    from ..jobs.probes import probes
    from ..jobs.vectors_info import VectorsInfo
    from ..methods.serialize import to_json

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
            probes=probes(one) if output.kind == "parquet" else None,
        )
    return infos


def contract(infos: Mapping[str, VectorsInfo], device: str) -> dict[str, Any]:
    """What must be the same when a run goes on, so that its rows are those of a run that was not interrupted."""
    from importlib.metadata import version

    from ..files.fingerprint import LIBRARIES

    return {
        "method": {column: info.method for column, info in infos.items()},
        "identity": {column: info.identity for column, info in infos.items()},
        "--device": device,
        "version": {name: version(name) for name in LIBRARIES},
        "fingerprint": {column: info.fingerprint for column, info in infos.items()},
    }
