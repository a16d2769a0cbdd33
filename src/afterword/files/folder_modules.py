"""Read a sentence-transformers folder without that library; each setting is followed, or refused by name."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from ..backbone.file_safety import check_links, read_json
from ..errors import MethodError, ModelError
from ..methods import AnyMethod, Ensemble, Method, classical
from ..methods.frequency import ByToken, Table
from ..methods.serialize import from_json
from ..post import Dense, FittedFlow, Glow, Normalise, Post, Truncate

CONFIG = "afterword.json"
"""The configuration of our module, which holds the method."""

FITTED = "afterword.safetensors"
"""The file with the fitted token weights."""

OURS = "afterword.st.Afterword"

FLOW = "afterword.st.Flow"

LIBRARY = "sentence_transformers.models."
"""The path from which every version of sentence-transformers can import its own modules."""

POOLINGS = {"cls": "cls", "mean": "mean", "lasttoken": "last", "weightedmean": "weighted"}

LEGACY = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""The names of the pooling modes before sentence-transformers 5.4."""

PLAIN_TEXT = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
"""The modality_config of a Transformer module that only tokenizes texts."""

HARMLESS = {"dtype", "torch_dtype", "attn_implementation", "trust_remote_code", "add_pooling_layer"}
"""Model arguments that change vectors by rounding at most."""


@dataclass
class SavedEncoder:
    """The content of a sentence-transformers folder, without the model itself.

    `library_modules` says that its first modules are sentence-transformers' own Transformer and Pooling, not ours.
    """

    model: Path
    method: AnyMethod
    post: tuple[Post, ...] = ()
    max_length: int | None = None
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    similarity_fn_name: str = "cosine"
    revision: str | None = None
    library_modules: bool = True


def read_folder(folder: Path) -> SavedEncoder:
    """Read a sentence-transformers folder, without the model itself.

    Raises:
        ModelError: it is broken, or holds a module or a setting that is not supported.
    """
    check_links(folder)
    saved, kinds = SavedEncoder(folder, classical()), []
    for module in read_json(folder / "modules.json", list):
        kind = _kind(folder, module)
        path = folder / str(module.get("path", ""))
        if not path.resolve().is_relative_to(folder.resolve()):
            raise ModelError(f"{folder}/modules.json leads out of the folder, to {module.get('path')!r}")
        check_links(folder, str(module.get("path", "")))
        READERS[kind](saved, path)
        kinds.append(kind)
    saved.library_modules = kinds[:1] != ["Afterword"]
    start = ["Transformer", "Pooling"] if saved.library_modules else ["Afterword"]
    if kinds[: len(start)] != start or {"Afterword", "Transformer", "Pooling"} & set(kinds[len(start) :]):
        raise ModelError(
            f"{folder}/modules.json lists {', '.join(kinds) or 'nothing'}: known is Transformer, Pooling, …"
        )
    _read_settings(saved, folder / "config_sentence_transformers.json")
    return saved


def _kind(folder: Path, module: Any) -> str:
    if not isinstance(module, dict) or "type" not in module:
        raise ModelError(f"{folder}/modules.json holds {module!r:.60}: a module has a type and a path")
    kind = str(module["type"])
    name = kind.rsplit(".", 1)[-1]
    ours = {own.rsplit(".", 1)[-1] for own in (OURS, FLOW)}
    theirs = kind.startswith("sentence_transformers.") and name in READERS and name not in ours
    if kind not in (OURS, FLOW) and not theirs:
        raise ModelError(f"{folder} holds a {kind!r} module: known are {', '.join(READERS)}")
    return name


def _read_settings(saved: SavedEncoder, path: Path) -> None:
    if not path.exists():
        return
    read = read_json(path, dict)
    kind = read.get("model_type", "SentenceTransformer")
    if kind != "SentenceTransformer":
        raise ModelError(f"{path.parent} is a {kind}: only a SentenceTransformer gives one vector per text")
    prompts = read.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(prompt, str | None) for prompt in prompts.values()):
        raise ModelError(f"{path}: prompts is {prompts!r:.60}: it must be an object of strings by name")
    saved.prompts = {k: v for k, v in prompts.items() if v}
    if {"passage", "corpus"} & set(saved.prompts):
        saved.prompts.setdefault("document", "")  # sentence-transformers' own empty one, chosen before those two
    name = read.get("default_prompt_name")
    if name is not None and name not in prompts:
        raise ModelError(f"{path}: default_prompt_name {name!r} is none of its prompts")
    saved.default_prompt_name = name if name in saved.prompts else None
    saved.similarity_fn_name = read.get("similarity_fn_name") or "cosine"
    saved.revision = read.get("revision")
    if read.get("truncate_dim") is not None:
        saved.post += (Truncate(read["truncate_dim"]),)


def with_document_prompt(prompts: dict[str, str] | None) -> dict[str, str]:
    """Prompts without empty ones, and with the one for documents under the name "document".

    Every SentenceTransformer has a prompt "document", empty by default, and so it would never use "passage".

    >>> with_document_prompt({"passage": "p: ", "query": ""})
    {'passage': 'p: ', 'document': 'p: '}
    """
    given = prompts or {}
    filled = {name: text for name, text in given.items() if text}
    first = next((given[name] for name in ("document", "passage", "corpus") if name in given), "")
    return filled | ({"document": first} if first else {})


def read_ours(path: Path) -> tuple[AnyMethod, int | None]:
    """The method and the maximum length in the folder of our own module.

    Raises:
        ModelError: the configuration or the fitted token weights are missing or broken.
    """
    config = read_json(path / CONFIG, dict)
    try:
        method = from_json(config["method"])
    except KeyError:
        raise ModelError(f"{path / CONFIG} names no method") from None
    except MethodError as e:
        raise ModelError(f"{path / CONFIG}: {e}") from None
    methods = tuple(_with_table(member, name, path) for name, member in by_table(method).items())
    method = replace(method, methods=methods) if isinstance(method, Ensemble) else methods[0]
    return method, config.get("max_length")


def by_table(method: AnyMethod) -> dict[str, Method]:
    """The method, or the methods of an ensemble, by the names of their tables of token weights in a file."""
    return {f"table.{i}" if isinstance(method, Ensemble) else "table": m for i, m in enumerate(method.members)}


def _with_table(method: Method, name: str, path: Path) -> Method:
    """The method with its token weights, if it is fitted to texts."""
    if not isinstance(method.weigh, ByToken):
        return method
    tensors = _tensors(path / FITTED)
    if name not in tensors:
        raise ModelError(
            f"{path / FITTED} holds {', '.join(tensors) or 'nothing'}: a table of token weights is missing"
        )
    return replace(method, weigh=replace(method.weigh, table=Table(tensors[name])))


def _read_ours(saved: SavedEncoder, path: Path) -> None:
    saved.model = path
    saved.method, saved.max_length = read_ours(path)


def _read_transformer(saved: SavedEncoder, path: Path) -> None:
    saved.model = path
    config = next(iter(sorted(path.glob("sentence_*_config.json"))), None)
    if config is None:
        return
    read = read_json(config, dict)
    saved.max_length = read.get("max_seq_length")
    if read.get("do_lower_case"):
        raise ModelError(f"{config} lower-cases texts before the tokenizer (do_lower_case): lower-case them yourself")
    if setting := _unsupported(read):
        raise ModelError(f"{config} sets {setting}, which is not supported: load the bare model with a method")


def _unsupported(read: dict[str, Any]) -> str | None:
    """The first setting of a Transformer module that would change vectors and is not supported here."""
    for key in ("query_length", "document_length", "query_expansion", "processing_kwargs", "config_args",
                "config_kwargs", "tokenizer_args", "processor_kwargs", "tokenizer_name_or_path"):  # fmt: skip
        if read.get(key):
            return f"{key}={read[key]!r:.60}"
    for key in ("model_args", "model_kwargs"):
        if unknown := sorted(set(read.get(key) or {}) - HARMLESS):
            return f"{key}.{unknown[0]}={read[key][unknown[0]]!r:.60}"
    if read.get("transformer_task", "feature-extraction") != "feature-extraction":
        return f"transformer_task={read['transformer_task']!r}"
    if read.get("modality_config", PLAIN_TEXT) != PLAIN_TEXT:
        return f"modality_config={read['modality_config']!r:.90}"
    return None


def _read_pooling(saved: SavedEncoder, path: Path) -> None:
    config = read_json(path / "config.json", dict)
    mode = config.get("pooling_mode", [name for key, name in LEGACY.items() if config.get(key)] or "mean")
    modes = mode if isinstance(mode, list) else [mode]
    if len(modes) != 1 or not isinstance(modes[0], str) or modes[0] not in POOLINGS:
        raise ModelError(
            f"{path} pools by {' and '.join(map(str, modes)) or 'nothing'}: known are {', '.join(POOLINGS)}, one alone"
        )
    saved.method = classical(POOLINGS[modes[0]])  # type: ignore[arg-type]
    if config.get("include_prompt") is False:
        if modes[0] == "weightedmean":
            raise ModelError(
                f"{path} weights by position and leaves the prompt out (include_prompt=false): not supported"
            )
        saved.method = replace(saved.method, weigh=replace(saved.method.weigh, copy="unprompted"))


def _read_normalise(saved: SavedEncoder, path: Path) -> None:
    if (path / "config.json").exists():
        _only_sentences(path, read_json(path / "config.json", dict))
    saved.post += (Normalise(),)


def _only_sentences(path: Path, config: dict[str, Any]) -> None:
    for key in ("module_input_name", "module_output_name"):
        if config.get(key) not in (None, "sentence_embedding"):
            raise ModelError(f"{path} has {key}={config[key]!r}: only sentence_embedding is known")


def _read_dense(saved: SavedEncoder, path: Path) -> None:
    config = read_json(path / "config.json", dict)
    _only_sentences(path, config)
    if config.get("use_residual"):
        raise ModelError(f"{path} adds its input to its output (use_residual), which is not supported")
    activation = str(config.get("activation_function", "torch.nn.modules.activation.Tanh"))
    if not activation.startswith("torch."):
        raise ModelError(f"{path} has the activation {activation!r}: only torch's own are known")
    tensors = _tensors(path / "model.safetensors")
    if "linear.weight" not in tensors or bool(config.get("bias", True)) != ("linear.bias" in tensors):
        raise ModelError(f"{path}/model.safetensors holds {', '.join(tensors) or 'nothing'}: Dense is incomplete")
    step = Dense(tensors["linear.weight"], tensors.get("linear.bias"), activation.rsplit(".", 1)[-1])
    saved.post += (Truncate(len(step.weight)) if _cuts(step) else step,)


def read_flow(path: Path) -> FittedFlow:
    """Read a normalising flow from its module's folder.

    Raises:
        ModelError: the folder is broken.
    """
    config = read_json(path / "config.json", dict)
    try:
        net = Glow(**config)
        net.load_state_dict(_tensors(path / "model.safetensors"))
    except (TypeError, ValueError, RuntimeError) as e:  # unknown options, or tensors of other names or shapes
        raise ModelError(f"{path} does not hold a flow that Afterword saved: {str(e).splitlines()[0]}") from None
    return FittedFlow(net.eval().requires_grad_(False))


def _read_flow(saved: SavedEncoder, path: Path) -> None:
    saved.post += (read_flow(path),)


def _cuts(step: Dense) -> bool:
    """Whether a dense layer only keeps the first components."""
    bare = step.bias is None and step.activation == "Identity"
    return bare and torch.equal(step.weight, torch.eye(*step.weight.shape, dtype=step.weight.dtype))


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as e:
        raise ModelError(f"{path} cannot be read: {str(e).splitlines()[0]}") from None


READERS = {
    "Afterword": _read_ours,
    "Transformer": _read_transformer,
    "Pooling": _read_pooling,
    "Normalize": _read_normalise,
    "Dense": _read_dense,
    "Flow": _read_flow,
}
