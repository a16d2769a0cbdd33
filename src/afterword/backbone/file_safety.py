"""What a model's files may make a process read: nothing outside their folder, no pickles, no code of others.

Everything is looked at before transformers sees it. The rules, each refused in one line by name:

- weights are read from safetensors; an index of several files names files beside it that end in .safetensors;
- an adapter is read where the model lies that it belongs to; the model that adapter_config.json names as its base
  is never fetched, neither from the hub nor from another folder;
- a link to a file that is read leads to one of the folder, or of the hub's own cache; only weights may be linked from
  anywhere. Links that nobody reads are not looked at.
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
"""Files that are read with a model by their name alone, whoever wrote them."""
CONFIG, INDEX, ADAPTER = "config.json", "model.safetensors.index.json", "adapter_config.json"
CHECKED = (CONFIG, INDEX, ADAPTER)
"""Files of a model on the hub that are fetched and checked before the others."""
SAFE = ".safetensors"
TOKENIZER = "tokenizer_config.json"
TEMPLATES = "additional_chat_templates"
FOLLOWED = (
    *READ,
    *"tokenizer.*.json tokenizer.model* *.jinja chat_template.json vocab*.json *_vocab.json tekken.json *.spm".split(),
    *"tiktoken.model spm*.model bpe.codes dict.txt prophetnet.tokenizer byte_maps.json normalizer.json".split(),
    *"word_*.json emoji.json".split(),
)
"""Files that loading may read, in any kind of model."""


def check_folder(folder: Path) -> None:
    """Whether a folder holds a model that can be read, and nothing that would lead out of it.

    Raises:
        ModelError: the first thing that is missing or must not be.
    """
    if (folder / ADAPTER).exists() and not (folder / CONFIG).exists():
        base = read_json(folder / ADAPTER, dict).get("base_model_name_or_path")
        raise ModelError(
            f"{folder} holds an adapter without its model: load {base!r}, "
            "call encoder.backbone.model.load_adapter(folder), and save that"
        )
    if not (folder / CONFIG).exists():
        if (folder / "training.json").exists():
            raise ModelError(f"{folder} holds a training run that is not finished: finish it with --resume")
        raise ModelError(f"{folder} holds no config.json: give the folder of a model, as save_pretrained writes it")
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
    """Whether a configuration or an index leads anywhere else.

    Args:
        path: its name says what it is.

    Raises:
        ModelError: it does, or cannot be read.
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
    """Whether an adapter on the hub stands beside its model; transformers would load another one in its place.

    Args:
        name: of the repository.
        path: of its adapter_config.json.

    Raises:
        ModelError: it is an adapter, and names its base model.
    """
    base = read_json(path, dict).get("base_model_name_or_path")
    raise ModelError(
        f"{name} is an adapter of {base!r}: load that model, call encoder.backbone.model.load_adapter({name!r}), "
        "and save the encoder"
    )


def quantised_by(folder: Path) -> str | None:
    """The method by which a folder says that its weights are quantised; None = they are not."""
    if not (folder / CONFIG).exists():
        return None
    method = (read_json(folder / CONFIG, dict).get("quantization_config") or {}).get("quant_method")
    return None if method is None else str(method)


def check_links(folder: Path, inner: str = "") -> None:
    """Whether files that are read lie in a folder, or in the hub's cache; only weights may be linked from anywhere.

    Args:
        folder: of a model.
        inner: the folder in it whose files are read, as of a module.

    Raises:
        ModelError: the first that does not.
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
    """A file's JSON, an object or a list.

    Raises:
        ModelError: it is missing or broken.
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
    """Whether it is the name of a file in the same folder."""
    return isinstance(name, str) and "\\" not in name and PurePosixPath(name).name == name and name not in ("", "..")


def _is_str(value: Any) -> bool:
    return isinstance(value, str)
