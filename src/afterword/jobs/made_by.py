"""What vectors are made by, and the first difference between what a job was begun with and what it is now."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..encode.options import choose_prompt
from ..encoder import Encoder
from ..errors import DataError
from ..files.fingerprint import fingerprint, identity, weights_digest
from ..methods import AnyMethod
from ..methods.serialize import to_json
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


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values as a JSON file gives them back.

    >>> plain({"--method": ("echo",)})
    {'--method': ['echo']}
    """
    found: dict[str, Any] = json.loads(json.dumps(values, default=str))
    return found


def first_difference(before: Any, now: Any, name: str = "") -> tuple[str, Any, Any] | None:
    """The first value that differs: its name, what it was, and what it is; None if all are equal.

    >>> first_difference({"a": 1, "b": {"c": 2}}, {"a": 1, "b": {"c": 3}})
    ('b c', 2, 3)
    """
    if isinstance(before, dict) and isinstance(now, dict):
        for key in dict.fromkeys([*now, *before]):
            found = first_difference(before.get(key), now.get(key), f"{name} {key}".strip())
            if found is not None:
                return found
        return None
    return None if before == now else (name, before, now)


def check_same(folder: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    """Refuse to go on with parts that were made in another way.

    Raises:
        DataError: a value differs; the first one is named.
    """
    found = first_difference(before, now)
    if found is not None:
        name, old, new = found
        raise DataError(
            f"{folder} was begun with {name} {spelled(old)}, and now it is {spelled(new)}: give the same command, or "
            "--overwrite to start again"
        )


def spelled(value: Any) -> str:
    """A value of a command line in a message.

    >>> spelled(None), spelled("echo"), spelled(["id"])
    ('not given', 'echo', '["id"]')
    """
    return "not given" if value is None or value == [] else str(value) if isinstance(value, str) else json.dumps(value)
