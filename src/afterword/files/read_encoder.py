"""Load an encoder: from a saved folder, from a sentence-transformers folder, or from a plain model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..backbone.adapters import base_and_adapters
from ..backbone.loading import load_backbone
from ..backbone.model_source import ModelSource
from ..backbone.text_part import is_inside
from ..errors import ModelError
from ..methods import AnyMethod, classical
from ..methods.serialize import parse_method
from ..post import Normalise
from .folder_modules import read_folder
from .foreign_folders import foreign_method, gritlm, read_foreign
from .write_encoder import logger


def read_encoder(
    name: str | Path,
    method: AnyMethod | str | None,
    *,
    max_length: int | None,
    revision: str | None,
    token: bool | str | None,
    cache_folder: str | Path | None,
    local_files_only: bool,
    subfolder: str,
    **options: Any,
) -> dict[str, Any]:
    """Load the fields of an encoder; the arguments are those of `Encoder.load`."""
    if not isinstance(name, str | os.PathLike):
        raise ModelError(f"{name!r} names no model: give a folder, or a name on the hub")
    if isinstance(method, str):
        method = parse_method(method)
    source = ModelSource(str(name), revision, token, cache_folder, local_files_only, subfolder)
    return read_located(source.located(), str(name), method, max_length=max_length, **options)


def read_located(
    source: ModelSource, name: str, method: AnyMethod | None, *, max_length: int | None, **options: Any
) -> dict[str, Any]:
    """Load the fields of an encoder from a source that is located already, under the name that the user gave."""
    folder, commit = source.folder()
    if (folder / "modules.json").exists():
        return _read(folder, commit, method, max_length, options)
    foreign = read_foreign(folder)
    base, adapters = (source, []) if foreign is None and method is None else base_and_adapters(source, folder)
    if adapters:  # trusting a folder does not extend to the paths that its files name
        options |= {"trust_remote_code": False, "adapters": adapters}
    backbone = load_backbone(base, **options)
    if foreign is not None:
        method = method or foreign_method(*foreign, backbone)
        return {"backbone": backbone, "method": method, "max_length": max_length or foreign[1].get("max_length", 512)}
    if method is None and (found := gritlm(backbone)):
        return {"backbone": backbone, "method": found, "post": (Normalise(),), "max_length": max_length}
    if method is None:
        others = ["reba", "echo"] if backbone.facts.causal else ["ditto"]
        better = " or ".join(f"method={other}()" for other in others)
        logger.warning("%s names no method: classical mean is used; try %s", name, better, extra={"advice": True})
    return {"backbone": backbone, "method": method or classical(), "max_length": max_length}


def _read(
    folder: Path, commit: str | None, method: AnyMethod | None, max_length: int | None, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Load an encoder from a sentence-transformers folder; a method given by the caller replaces the folder's own."""
    saved = read_folder(folder)
    backbone = load_backbone(saved.model, **options)
    if saved.library_modules and backbone.tokenizer.hf.truncation_side == "left":
        raise ModelError(
            f"{folder} cuts long texts at their start (truncation_side 'left'), which is not supported: "
            "set it to 'right' in tokenizer_config.json"
        )
    if saved.library_modules and method is None and is_inside(backbone.model):
        raise ModelError(
            f"{folder}: sentence-transformers pools the states of this {backbone.facts.kind}'s decoder, and here its "
            "encoder alone is run: name a method for the encoder's states, such as method='classical'"
        )
    if method is None and saved.library_modules and (found := gritlm(backbone)):
        saved.method, saved.post = found, (Normalise(),)
    if commit := commit or saved.revision:
        backbone.model.config._commit_hash = commit  # type: ignore[union-attr]
    post = saved.post if method is None else tuple(p for p in saved.post if isinstance(p, Normalise))
    return {
        "backbone": backbone,
        "method": method or saved.method,
        "post": post,
        "max_length": max_length or saved.max_length,
        "prompts": saved.prompts,
        "default_prompt_name": saved.default_prompt_name,
        "similarity_fn_name": saved.similarity_fn_name,
    }
