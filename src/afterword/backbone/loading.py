"""Load any Hugging Face model and its tokenizer; `self_check` then finds how it must be run."""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import (
    MODEL_FOR_TEXT_ENCODING_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForTextEncoding,
    AutoTokenizer,
)
from transformers.utils import cached_file
from transformers.utils import logging as hf_logging

from ..errors import MissingExtra, ModelError
from ..text.tokenizer import Tokenizer
from .adapters import merge_adapter
from .attention import NAME
from .backbone import Backbone, remove_recorders
from .file_safety import ADAPTER, CHECKED, check_base, check_file, check_folder, quantised_by
from .introspection import max_length, position_offset
from .model_source import ModelSource
from .packed_linear import pack_linears
from .self_check import check
from .text_part import INSIDE, base_of, encoder_of, name_in, text_tower

logger = logging.getLogger(__name__)

REASONS = {
    "the self-check chooses how layers are run": "attn_implementation experts_implementation",
    "device= says where the model goes": "device_map max_memory tp_plan tp_size device_mesh",
    "load() has an argument of that name": "revision token subfolder local_files_only trust_remote_code",
    "cache_folder= says where files are kept": "cache_dir force_download proxies",
    "weights are read from safetensors only": "use_safetensors gguf_file from_tf from_flax state_dict weights_only",
    "the self-check chooses what the model returns": "config output_loading_info output_attentions "
    "output_hidden_states return_dict torchscript use_cache",
}
ELSEWHERE = {name: reason for reason, names in REASONS.items() for name in names.split()}
"""Arguments of transformers' `from_pretrained` that are refused, and why."""


def load_backbone(
    name: str | Path | ModelSource,
    *,
    device: str | torch.device | None = None,
    dtype: torch.dtype | str | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
    token: bool | str | None = None,
    cache_folder: str | Path | None = None,
    local_files_only: bool = False,
    subfolder: str = "",
    model_kwargs: dict[str, Any] | None = None,
    quantization_config: Any = None,
    adapters: Sequence[Path] = (),
) -> Backbone:
    """Load a model and its tokenizer, and run the self-check.

    Args:
        name: a folder, a model on the Hugging Face hub, or one of our own ("afterword-mini"); or a located source,
            which the arguments from `revision` to `subfolder` are not for.
        device: None = a GPU where there is one.
        dtype: None = float32 on a CPU, the checkpoint's own on a GPU.
        revision, token, cache_folder, local_files_only, subfolder: see `ModelSource`.
        trust_remote_code: run the model's own code.
        model_kwargs, quantization_config: passed to transformers when it builds the model.
        adapters: folders whose LoRA adapters are merged into the weights, in this order.

    Raises:
        ModelError: the folder is incomplete, the name is unknown, the weights are not safetensors, an argument in
            ``model_kwargs`` is not allowed.
        UnsupportedModel: no way of running the model reproduces its own hidden states.
    """
    if isinstance(name, ModelSource):
        source = name
    else:
        source = ModelSource(str(name), revision, token, cache_folder, local_files_only, subfolder).located()
    path, common = source.name, {**source.options, "trust_remote_code": trust_remote_code}
    built = _check_model_kwargs(model_kwargs, dtype, quantization_config)
    with quiet(), _one_line(source.name):
        device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        built.setdefault("dtype", torch.float32 if device.type == "cpu" else "auto")
        _check_files(path, source.options)
        settings = {k: v for k, v in built.items() if k not in ("dtype", "quantization_config")}
        config, left = AutoConfig.from_pretrained(path, return_unused_kwargs=True, **common, **settings)
        config = _without_kernels(config)
        built = {k: v for k, v in built.items() if k not in settings or k in left}  # the rest is in the configuration
        tokenizer = _tokenizer(path, common)
        model = _model(path, config, {**common, **built})
        for adapter in adapters:
            merge_adapter(model, adapter)
        if commit := source.commit():
            model.config._commit_hash = commit  # transformers does not keep it
        model = model if _lies_on(model, device) else model.to(device)
        backbone = check(model, tokenizer)
        remove_recorders(model)  # of the check's forwards: they would cost time in every later one
        pack_linears(model)
        return backbone


def _check_model_kwargs(model_kwargs: dict[str, Any] | None, dtype: Any, quantization_config: Any) -> dict[str, Any]:
    """Validate arguments for transformers' `from_pretrained`; add dtype and quantisation, and return them.

    Raises:
        ModelError: an argument is not allowed, or is given twice.
    """
    options = dict(model_kwargs or {})
    if "torch_dtype" in options:  # its older name
        options.setdefault("dtype", options.pop("torch_dtype"))
    for name, value in (("dtype", dtype), ("quantization_config", quantization_config)):
        if value is not None and options.get(name, value) is not value:
            raise ModelError(f"{name} is given twice, as {value!r} and in model_kwargs as {options[name]!r}: give one")
        if value is not None:
            options[name] = value
    for name in options:
        if name in ELSEWHERE:
            raise ModelError(f"model_kwargs holds {name!r}, which is not passed on: {ELSEWHERE[name]}")
    return options


def load_tokenizer(source: ModelSource, trust_remote_code: bool = False) -> tuple[Tokenizer, int | None]:
    """Load a model's tokenizer alone, and find the most tokens that the model reads. No weights are read.

    Args:
        source: a located source.
        trust_remote_code: run the model's own code.

    Raises:
        ModelError: the folder is incomplete, or the tokenizer cannot be loaded.
    """
    path, common = source.name, {**source.options, "trust_remote_code": trust_remote_code}
    with quiet(), _one_line(path):
        _check_files(path, source.options)
        config = _without_kernels(AutoConfig.from_pretrained(path, **common))
        tokenizer = _tokenizer(path, common)
        with torch.device("meta"):  # its modules without their weights: where positions begin
            model = AutoModel.from_config(config, trust_remote_code=trust_remote_code)
        return tokenizer, max_length(config, position_offset(model), tokenizer.max_length)


def _lies_on(model: nn.Module, device: torch.device) -> bool:
    """Whether a model is on a device already; some quantised models raise when they are moved."""
    return all(w.device.type == device.type and device.index in (None, w.device.index) for w in model.parameters())


def load_head(backbone: Backbone, name: str | Path | None = None) -> nn.Module:
    """Load the language-model head of a causal model: from states (..., D) to logits of all tokens (..., V).

    A backbone has no head; this is the only function that loads one.

    Args:
        backbone: of a decoder.
        name: the model whose head to load; None = the backbone's own: the input embedding table if the two are tied,
            else the checkpoint's.

    Raises:
        ModelError: an encoder, a checkpoint without a head, or one of another width.
    """
    model, facts = base_of(backbone.model), backbone.facts
    if not facts.causal:
        raise ModelError(f"{facts.kind} is bidirectional: it has no language-model head that says what follows")
    table = model.get_input_embeddings()
    if name is None and getattr(model.config, "tie_word_embeddings", False) and table.embedding_dim == facts.width:
        head = nn.Linear(facts.width, table.num_embeddings, bias=False, device="meta")
        head.weight = table.weight
        return head
    path = ModelSource(str(name or model.name_or_path)).located().name
    with quiet(), _one_line(path):
        _check_files(path, {})
        options = {"dtype": backbone.dtype, "use_safetensors": True, "output_loading_info": True}
        options |= {"attn_implementation": "eager", "config": _without_kernels(AutoConfig.from_pretrained(path))}
        whole, loaded = AutoModelForCausalLM.from_pretrained(path, **options)
    head = whole.get_output_embeddings()
    names = [n for n, module in whole.named_modules() if module is head]
    if not names or any(k.startswith(f"{names[0]}.") for k in loaded["missing_keys"]):
        raise ModelError(f"{path} was saved without its language-model head: name the model that it was made from")
    if head.in_features != facts.width:
        raise ModelError(f"the head of {path} reads {head.in_features} components, the model gives {facts.width}")
    return head.to(backbone.device).eval()  # type: ignore[no-any-return]


def _check_files(path: str, options: dict[str, Any]) -> None:
    """Validate the files that a model's configuration and indices name, before any of them is read."""
    if Path(path).is_dir():
        check_folder(Path(path))
        return
    errors = ("missing_entries", "connection_errors", "gated_repo")
    no_errors = {f"_raise_exceptions_for_{what}": False for what in errors}
    for name in CHECKED:
        file = cached_file(path, name, **options, **no_errors)
        if file is not None and name == ADAPTER:
            check_base(path, Path(file))
        if file is not None:
            check_file(Path(file))


@contextmanager
def quiet() -> Iterator[None]:
    """Switch off the progress bars, reports and warnings of transformers; its settings are restored afterwards."""
    verbosity, bars = hf_logging.get_verbosity(), hf_logging.is_progress_bar_enabled()
    hf_logging.set_verbosity_error()
    _bars(False)
    try:
        yield
    finally:
        hf_logging.set_verbosity(verbosity)
        _bars(bars)


def _bars(shown: bool) -> None:
    with warnings.catch_warnings():  # the hub warns if an environment variable fixes the setting
        warnings.simplefilter("ignore")
        (hf_logging.enable_progress_bar if shown else hf_logging.disable_progress_bar)()


@contextmanager
def _one_line(name: str) -> Iterator[None]:
    """Turn any error of loading into a `ModelError` of one line."""
    try:
        yield
    except (ModelError, MissingExtra):
        raise
    except Exception as e:  # a broken folder may raise anything
        if "trust_remote_code=True" in str(e):
            raise ModelError(f"{name} runs code of its own: pass trust_remote_code=True if you trust it") from e
        first = next((line.strip() for line in str(e).splitlines() if line.strip()), type(e).__name__)
        if quantised := quantised_by(Path(name)):
            name = f"{name}, whose weights are quantised by {quantised!r},"
        raise ModelError(f"{name} cannot be loaded: {first:.300}") from e


def _tokenizer(path: str, common: dict[str, Any]) -> Tokenizer:
    try:
        return Tokenizer(AutoTokenizer.from_pretrained(path, **common))
    except ModelError as e:
        raise ModelError(f"{path}: {e}") from None
    except Exception as e:  # a broken file may raise anything
        if "trust_remote_code=True" in str(e):
            raise
        first = next((line.strip() for line in str(e).splitlines() if line.strip()), type(e).__name__)
        raise ModelError(
            f"{path}: its tokenizer cannot be loaded ({first:.120}): get its tokenizer.json and tokenizer_config.json "
            "again, or write them with the tokenizer's save_pretrained"
        ) from e


@contextmanager
def _without_adapter(path: str) -> Iterator[str]:
    """A copy of a folder without its adapter, which older versions of transformers would load instead of the model."""
    if not (Path(path) / ADAPTER).exists():
        yield path
        return
    with tempfile.TemporaryDirectory() as bare:
        for file in Path(path).resolve().iterdir():
            if not file.name.startswith("adapter"):
                (Path(bare) / file.name).symlink_to(file)
        yield bare


def _with_our_backend(kind: Any, path: str, config: Any, options: dict[str, Any]) -> Any:
    """Load a model with our attention backend if it supports it, else with eager; also return the loading report."""
    try:
        model, loaded = kind.from_pretrained(path, config=deepcopy(config), attn_implementation=NAME, **options)
        model.set_attn_implementation("eager")
        if model.config._attn_implementation != "eager":  # it does not support switching
            raise ValueError("does not follow the attention interface")
        model.set_attn_implementation(NAME)
    except (KeyError, ValueError, AttributeError, TypeError) as e:
        logger.debug("%s is not built with our attention backend: %s", path, e)
        model, loaded = kind.from_pretrained(path, config=deepcopy(config), attn_implementation="eager", **options)
    return model, loaded


def _model(path: str, config: Any, options: dict[str, Any]) -> Any:
    """Load the text model, without its head."""
    options = {"use_safetensors": True, "output_loading_info": True, **options}
    options["adapter_kwargs"] = {  # no adapter: its report would replace the model's
        "subfolder": "-", "local_files_only": options.get("local_files_only", False),
    }  # fmt: skip
    kind = AutoModelForTextEncoding if type(config) in MODEL_FOR_TEXT_ENCODING_MAPPING else AutoModel
    with _without_adapter(path) as bare:
        model, loaded = _with_our_backend(kind, bare, config, options)
    model.name_or_path = model.config._name_or_path = path
    if (Path(path) / ADAPTER).exists():
        if encoder_of(model) is not model:
            raise ModelError(f"{path} holds an adapter of an encoder and a decoder: add it to the weights first")
        report = model.load_adapter(path)
        if missing := sorted(report.missing_keys):
            raise ModelError(f"{path} lacks {len(missing)} weights of its adapter, {missing[0]} among them")
        if unread := sorted(report.unexpected_keys):
            raise ModelError(f"transformers does not read {unread[0]} of the adapter in {path}: merge it with PEFT")
    model, whole = text_tower(encoder := encoder_of(model)), model
    if encoder is not whole:
        whole.config.architectures = [type(whole).__name__]
        setattr(model, INSIDE, (name_in(whole, model), deepcopy(whole.config)))
    named, kept = dict(_tensors(whole)), {id(t) for _, t in _tensors(model)}
    lacking = [k for k in loaded["missing_keys"] if "pooler" not in k and (k not in named or id(named[k]) in kept)]
    if lacking:
        raise ModelError(f"{path} lacks {len(lacking)} weights, {lacking[0]} among them: the folder is incomplete")
    if options["dtype"] in (torch.float64, "float64"):  # the grouped product of experts does not support float64
        model.set_experts_implementation("eager")
    return model.eval()


def _without_kernels(config: Any) -> Any:
    """A configuration without kernels from the hub, in any of its parts: a folder must not decide which code runs."""
    for part in (config, *(getattr(config, name, None) for name in getattr(config, "sub_configs", {}))):
        for key, value in vars(part).items() if part is not None else ():
            if key.endswith("_implementation_internal") and "/" in str(value):
                setattr(part, key, None)
    return config


def _tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters and buffers, under all of their names."""
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)
