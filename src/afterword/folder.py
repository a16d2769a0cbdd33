"""Encoders on disk: sentence-transformers' folders, written and read without that library."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors.torch import load_file, save_file

from .codec import from_json, parse_method, to_json
from .errors import ModelError
from .loading import find, load_backbone
from .methods import Method, classical
from .post import Dense, Normalise, Post, Truncate

if TYPE_CHECKING:
    from .encoder import Encoder

CONFIG = "afterword.json"
"""Our module's configuration; where it lies, the method is the folder's own."""
OURS = "afterword.st.Afterword"
STOCK = "sentence_transformers.models."
POOLINGS = {"cls": "cls", "mean": "mean", "lasttoken": "last"}
logger = logging.getLogger(__name__)


@dataclass
class Found:
    """What a sentence-transformers folder says, besides its model."""

    model: Path
    method: Method
    post: tuple[Post, ...] = ()
    max_length: int | None = None
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    similarity_fn_name: str = "cosine"


def load_encoder(
    cls: type[Encoder], name: str | Path, method: Method | str | None, *, max_length: int | None, **options: Any
) -> Encoder:
    """See `Encoder.load`."""
    if isinstance(method, str):
        method = parse_method(method)
    folder = Path(find(name))
    if not (folder / "modules.json").exists():
        if method is None:
            logger.warning("%s names no method: classical mean is used; try reba() or echo()", name)
        return cls(load_backbone(name, **options), method or classical(), max_length=max_length)
    found = read_folder(folder)
    own = method is None
    return cls(
        load_backbone(found.model, **options),
        method or found.method,
        found.post if own else tuple(p for p in found.post if isinstance(p, Normalise)),
        max_length or found.max_length,
        found.prompts,
        found.default_prompt_name,
        found.similarity_fn_name,
    )


def read_folder(folder: Path) -> Found:
    """What a sentence-transformers folder says.

    Raises:
        ModelError: it is broken, or holds a module that changes vectors in a way we do not know.
    """
    found = Found(folder, classical())
    for module in _json(folder / "modules.json", list):
        path = folder / str(module.get("path", ""))
        kind = str(module.get("type", "")).rsplit(".", 1)[-1]
        reader = READERS.get(kind)
        if reader is None:
            raise ModelError(f"{folder} holds a {module.get('type')!r} module: known are {', '.join(READERS)}")
        reader(found, path)
    config = folder / "config_sentence_transformers.json"
    if config.exists():
        read = _json(config, dict)
        found.prompts = {k: v for k, v in (read.get("prompts") or {}).items() if v}
        found.default_prompt_name = read.get("default_prompt_name")
        found.similarity_fn_name = read.get("similarity_fn_name") or "cosine"
    return found


def _read_ours(found: Found, path: Path) -> None:
    config = _json(path / CONFIG, dict)
    found.model, found.method, found.max_length = path, from_json(config["method"]), config.get("max_length")
    if config.get("truncate_dim"):
        found.post += (Truncate(config["truncate_dim"]),)


def _read_transformer(found: Found, path: Path) -> None:
    found.model = path
    config = path / "sentence_bert_config.json"
    if config.exists():
        read = _json(config, dict)
        found.max_length = read.get("max_seq_length")
        if read.get("do_lower_case"):
            raise ModelError(f"{config} lower-cases texts before the tokenizer (do_lower_case): lower-case them yourself")


def _read_pooling(found: Found, path: Path) -> None:
    config = _json(path / "config.json", dict)
    mode = config.get("pooling_mode")
    modes = [mode] if isinstance(mode, str) else list(mode or [])
    modes += [k.removeprefix("pooling_mode_").removesuffix("_tokens").removesuffix("_token") for k, v in config.items()
              if k.startswith("pooling_mode_") and v]  # fmt: skip
    if len(modes) != 1 or modes[0] not in POOLINGS:
        raise ModelError(f"{path} pools by {' and '.join(modes) or 'nothing'}: known are {', '.join(POOLINGS)}, one alone")
    if config.get("include_prompt") is False:
        raise ModelError(f"{path} leaves the prompt out of the pooling (include_prompt=false), which is not supported")
    found.method = classical(POOLINGS[modes[0]])  # type: ignore[arg-type]


def _read_normalise(found: Found, path: Path) -> None:
    found.post += (Normalise(),)


def _read_dense(found: Found, path: Path) -> None:
    config, tensors = _json(path / "config.json", dict), load_file(path / "model.safetensors")
    activation = str(config.get("activation_function", "Identity")).rsplit(".", 1)[-1]
    if not {"linear.weight"} <= set(tensors):
        raise ModelError(f"{path}/model.safetensors holds no linear.weight: the Dense module is incomplete")
    found.post += (Dense(tensors["linear.weight"], tensors.get("linear.bias"), activation),)


READERS = {
    "Afterword": _read_ours,
    "Transformer": _read_transformer,
    "Pooling": _read_pooling,
    "Normalize": _read_normalise,
    "Dense": _read_dense,
}


def _json(path: Path, kind: type[Any]) -> Any:
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise ModelError(f"{path} cannot be read: {e.strerror or e}") from None
    except ValueError as e:
        raise ModelError(f"{path} is not JSON: {e}") from None
    if not isinstance(read, kind):
        raise ModelError(f"{path} holds a {type(read).__name__}: the folder is broken")
    return read


def is_stock(encoder: Encoder) -> bool:
    """Whether sentence-transformers' own Transformer and Pooling give the same vectors."""
    method, pool = encoder.method, encoder.method.weigh.pool
    return pool in ("mean", "last", "cls") and method == classical(pool)  # type: ignore[arg-type]


def save_encoder(encoder: Encoder, folder: Path) -> None:
    """See `Encoder.save`: written beside its place and moved there whole, so that no half folder looks like one."""
    half = folder.with_name(folder.name + ".writing")
    shutil.rmtree(half, ignore_errors=True)
    try:
        half.mkdir(parents=True)
        _write(encoder, half)
        folder.mkdir(parents=True, exist_ok=True)
        for item in half.iterdir():
            target = folder / item.name
            if target.is_dir():
                shutil.rmtree(target)
            item.replace(target)
    except OSError as e:
        raise ModelError(f"{folder} cannot be written: {e.strerror or e}; what was there before is kept") from e
    finally:
        shutil.rmtree(half, ignore_errors=True)


def _write(encoder: Encoder, folder: Path) -> None:
    model: Any = encoder.backbone.model
    model.save_pretrained(folder)
    encoder.backbone.tokenizer.hf.save_pretrained(folder)
    modules: list[tuple[str, str]] = []
    if is_stock(encoder):
        _dump(folder / "sentence_bert_config.json", {"max_seq_length": encoder.max_length, "do_lower_case": False})
        mode = {v: k for k, v in POOLINGS.items()}[encoder.method.weigh.pool]
        _write_pooling(folder / "1_Pooling", mode, encoder.backbone.facts.width)
        modules = [("", STOCK + "Transformer"), ("1_Pooling", STOCK + "Pooling")]
    else:
        write_config(folder, encoder.method, encoder.max_length)
        modules = [("", OURS)]
    for step in encoder.post:
        path = f"{len(modules)}_{type(step).__name__.replace('Normalise', 'Normalize')}"
        modules.append((path, _write_step(step, folder / path)))
    rows = [{"idx": i, "name": str(i), "path": path, "type": kind} for i, (path, kind) in enumerate(modules)]
    _dump(folder / "modules.json", rows)
    _dump(
        folder / "config_sentence_transformers.json",
        {
            "__version__": {"afterword": version("afterword")},
            "prompts": encoder.prompts or {},
            "default_prompt_name": encoder.default_prompt_name,
            "similarity_fn_name": encoder.similarity_fn_name,
        },
    )


def write_config(folder: Path, method: Method, max_length: int | None) -> None:
    """Our module's configuration."""
    _dump(folder / CONFIG, {"afterword": version("afterword"), "method": to_json(method), "max_length": max_length})


def _write_pooling(folder: Path, mode: str, width: int) -> None:
    folder.mkdir()
    names = {"cls": "cls_token", "mean": "mean_tokens", "lasttoken": "lasttoken"}
    config: dict[str, Any] = {"word_embedding_dimension": width, "include_prompt": True}
    _dump(folder / "config.json", config | {f"pooling_mode_{n}": m == mode for m, n in names.items()})


def _write_step(step: Post, folder: Path) -> str:
    folder.mkdir()
    if isinstance(step, Normalise):
        return STOCK + "Normalize"
    if isinstance(step, Dense):
        size = dict(zip(("out_features", "in_features"), step.weight.shape, strict=True))
        activation = "torch.nn.modules." + ("linear." if step.activation == "Identity" else "activation.")
        config = {**size, "bias": step.bias is not None, "activation_function": activation + step.activation}
        _dump(folder / "config.json", config)
        bias = {} if step.bias is None else {"linear.bias": step.bias}
        save_file({"linear.weight": step.weight.contiguous(), **bias}, folder / "model.safetensors")
        return STOCK + "Dense"
    raise ModelError(f"{type(step).__name__} has no place in a sentence-transformers folder yet")


def _dump(path: Path, value: Mapping[str, Any] | list[Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
