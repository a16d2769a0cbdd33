"""LoRA adapters of a model that lies elsewhere: found by a chain of names, and merged into its weights."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..errors import MissingExtra, ModelError
from .file_safety import ADAPTER, SAFE, check_file, check_links, read_json
from .model_source import ModelSource

WEIGHTS = f"adapter_model{SAFE}"
MERGED: dict[str, tuple[Any, ...]] = {"peft_type": ("LORA",), "modules_to_save": (None, []), "bias": (None, "none")}
"""Settings of an adapter that can be merged."""


def base_and_adapters(source: ModelSource, folder: Path) -> tuple[ModelSource, list[Path]]:
    """The model at the bottom of a chain of adapters, and their folders, the one next to the model first.

    Args:
        source: a located source.
        folder: its folder: of a model, or of an adapter that names its base.

    Raises:
        ModelError: an adapter names no base, one that is not there, or itself; or its files are not allowed.
    """
    adapters: list[Path] = []
    while (folder / ADAPTER).exists() and all(path.name == WEIGHTS for path in folder.glob(f"*{SAFE}")):
        check_links(folder)
        check_file(folder / ADAPTER)
        named = read_json(folder / ADAPTER, dict).get("base_model_name_or_path")
        if not isinstance(named, str) or folder in adapters:
            raise ModelError(f"{folder}/{ADAPTER} leads to no base model: base_model_name_or_path is {named!r}")
        adapters.insert(0, folder)
        try:
            source = ModelSource(named, None, source.token, source.cache_folder, source.local_files_only).located()
        except ModelError as e:
            raise ModelError(f"{folder} holds an adapter, and its base model is missing: {e}") from None
        folder, _ = source.folder()
    return source, adapters


def merge_adapter(model: Any, folder: Path) -> None:
    """Merge the LoRA adapter of a folder into a model's weights, in place.

    Raises:
        ModelError: it is no LoRA, holds other weights too, or does not fit the model.
        MissingExtra: PEFT is not installed.
    """
    config = read_json(folder / ADAPTER, dict)
    if wrong := [name for name, allowed in MERGED.items() if config.get(name) not in allowed]:
        raise ModelError(
            f"{folder}/{ADAPTER}: {wrong[0]}={config.get(wrong[0])!r:.60} cannot be merged: do it with PEFT"
        )
    if not (folder / WEIGHTS).exists():
        raise ModelError(f"{folder} holds no {WEIGHTS}: weights are read from safetensors only")
    if find_spec("peft") is None:
        raise MissingExtra("peft", "train")
    names = getattr(model, "_weight_conversions", None)
    report = model.load_adapter(str(folder))
    if lost := sorted({*report.missing_keys, *report.unexpected_keys}):
        raise ModelError(f"{folder} does not fit its base model: {len(lost)} weights differ, {lost[0]} among them")
    for name, layer in list(model.named_modules()):
        if hasattr(layer, "get_base_layer"):
            layer.merge(safe_merge=True)
            model.set_submodule(name, layer.get_base_layer())
    model._hf_peft_config_loaded, model._weight_conversions = False, names  # else it is saved under other names
    del model.peft_config
