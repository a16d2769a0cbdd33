"""Check a model's files before transformers reads them: nothing outside their folder, no pickles, no foreign code.

The rules; a file that breaks one is refused by name:

- weights are read from safetensors; an index of several files names *.safetensors files beside it;
- an adapter is read from the folder of its model; the base model that adapter_config.json names is never downloaded
  or loaded from another folder;
- a link to a file that is read points into the folder or into the hub's own cache; only weights may be linked from
  anywhere. Links to other files are not checked.
"""

from __future__ import annotations

import json
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any

from ..errors import ModelError

READ = (
    "config.json modules.json afterword.json afterword.safetensors config_sentence_transformers.json "
    "sentence_*_config.json model.safetensors model-*-of-*.safetensors *.safetensors.index.json adapter_config.json "
    "adapter_model.* tokenizer.json tokenizer_config.json special_tokens_map.json added_tokens.json vocab.json "
    "vocab.txt merges.txt tokenizer.model spiece.model sentencepiece*.model"
).split()
"""Files of a model that are read because of their name alone."""
CONFIG, INDEX, ADAPTER = "config.json", "model.safetensors.index.json", "adapter_config.json"
CHECKED = (CONFIG, INDEX, ADAPTER)
"""Files of a model on the hub that are downloaded and checked before the others."""
SAFE = ".safetensors"
TOKENIZER = "tokenizer_config.json"
TEMPLATES = "additional_chat_templates"
FOLLOWED = (
    *READ,
    *"tokenizer.*.json tokenizer.model* *.jinja chat_template.json vocab*.json *_vocab.json tekken.json *.spm".split(),
    *"tiktoken.model spm*.model bpe.codes dict.txt prophetnet.tokenizer byte_maps.json normalizer.json".split(),
    *"word_*.json emoji.json".split(),
)
"""Files that loading any kind of model may read."""


def check_folder(folder: Path) -> None:
    """Validate that a folder holds a model, and that none of its files refers to anything outside.

    Raises:
        ModelError: a file is missing or not allowed; the message names the first.
    """
    if (folder / ADAPTER).exists() and not (folder / CONFIG).exists():
        base = read_json(folder / ADAPTER, dict).get("base_model_name_or_path")
        raise ModelError(
            f"{folder} holds an adapter without its model: load {base!r}, "
            "call encoder.backbone.model.load_adapter(folder), and save that; or name a method, and both are loaded"
        )
    if not (folder / CONFIG).exists():
        if (folder / "training.json").exists():
            raise ModelError(f"{folder} holds a training run that is not finished: finish it with --resume")
        inner = [path.parent for path in folder.glob("*/config.json") if any(path.parent.glob(f"*{SAFE}"))]
        fix = f"{min(inner)}, which holds one" if inner else "the folder of a model, as save_pretrained writes it"
        raise ModelError(f"{folder} holds no config.json: give {fix}")
    check_links(folder)
    check_links(folder, TEMPLATES)
    if not any(folder.glob(f"*{SAFE}")):
        raise ModelError(f"{folder} holds no *.safetensors: weights are read from safetensors only; convert them first")
    for path in (folder / CONFIG, folder / ADAPTER, folder / TOKENIZER, *folder.glob(f"*{SAFE}.index.json")):
        if path.exists():
            check_file(path)
    if (folder / ADAPTER).exists() and not (folder / f"adapter_model{SAFE}").exists():
        raise ModelError(f"{folder} holds no adapter_model.safetensors: weights are read from safetensors only")


def check_file(path: Path) -> None:
    """Validate that a configuration or an index refers only to files beside it.

    Args:
        path: the file; its name says which kind it is.

    Raises:
        ModelError: it refers to others, or cannot be read.
    """
    read = read_json(path, dict)
    if path.name == CONFIG:
        quantised = read.get("quantization_config")
        if quantised is not None and not (isinstance(quantised, dict) and _is_str(quantised.get("quant_method"))):
            raise ModelError(f"{path}: its quantization_config names no quant_method: {quantised!r:.60}")
        weights = read.get("transformers_weights")
        if weights is not None and not (_plain(weights) and weights.endswith((SAFE, f"{SAFE}.index.json"))):
            raise ModelError(f"{path} reads its weights from {weights!r}: give a *.safetensors file beside it")
    elif path.name == TOKENIZER:
        files = read.get("fast_tokenizer_files") or []
        if wrong := [n for n in files if not _plain(n)] if isinstance(files, list) else [files]:
            raise ModelError(f"{path} reads a tokenizer from {wrong[0]!r}: it may name files beside it only")
    elif path.name == ADAPTER:
        if read.get("megatron_config") is not None:
            raise ModelError(f"{path} sets megatron_config, which imports code by name: remove that setting")
    else:
        named = read.get("weight_map")
        names = set(named.values()) if isinstance(named, dict) and all(map(_is_str, named.values())) else {None}
        if wrong := sorted((n for n in names if not (_plain(n) and str(n).endswith(SAFE))), key=str):
            raise ModelError(f"{path} reads weights from {wrong[0]!r}: it may name *.safetensors files beside it only")


def check_base(name: str, path: Path) -> None:
    """Refuse an adapter on the hub, in whose place transformers would load its base model.

    Args:
        name: of the repository.
        path: of its adapter_config.json.

    Raises:
        ModelError: always; the message names the base model.
    """
    base = read_json(path, dict).get("base_model_name_or_path")
    raise ModelError(
        f"{name} is an adapter of {base!r}: load that model, call encoder.backbone.model.load_adapter({name!r}), "
        "and save the encoder"
    )


def quantised_by(folder: Path) -> str | None:
    """The method that quantised a folder's weights, by its configuration; None if they are not quantised."""
    if not (folder / CONFIG).exists():
        return None
    method = (read_json(folder / CONFIG, dict).get("quantization_config") or {}).get("quant_method")
    return None if method is None else str(method)


def check_links(folder: Path, inner: str = "") -> None:
    """Validate that links to files that are read point into the folder or the hub's cache; weights may be anywhere.

    Args:
        folder: of a model.
        inner: the subfolder whose files are read, for example of a module.

    Raises:
        ModelError: a link points elsewhere; the message names the first.
    """
    real = folder.resolve()
    caches = [parent.parent for parent in real.parents if parent.name == "snapshots"]
    roots = [real, *(cache / "blobs" for cache in caches)]  # <cache>/snapshots/<commit> links to <cache>/blobs
    for path in sorted((folder / inner).iterdir()) if (folder / inner).is_dir() else ():
        read = path.suffix != SAFE and any(fnmatch(path.name, pattern) for pattern in FOLLOWED)
        if read and path.is_file():
            target = path.resolve()
            if not any(target.is_relative_to(root) for root in roots):
                raise ModelError(f"{path} leads out of the folder, to {target}: put a copy of the file in its place")


def read_json(path: Path, kind: type[Any]) -> Any:
    """The JSON object or list of a file.

    Raises:
        ModelError: the file is missing or broken.
    """
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise ModelError(f"{path} cannot be read: {e.strerror or e}") from None
    except RecursionError:
        raise ModelError(f"{path} is nested too deeply: the folder is broken") from None
    except ValueError as e:
        raise ModelError(f"{path} is not JSON: {e}") from None
    if not isinstance(read, kind):
        raise ModelError(f"{path} holds a {type(read).__name__}: the folder is broken")
    return read


def _plain(name: Any) -> bool:
    """Whether a value is the name of a file in the same folder."""
    return isinstance(name, str) and "\\" not in name and PurePosixPath(name).name == name and name not in ("", "..")


def _is_str(value: Any) -> bool:
    return isinstance(value, str)
