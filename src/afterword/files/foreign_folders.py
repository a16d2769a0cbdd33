"""Checkpoints of LLM2Vec, AnglE with BiLLM, and GritLM: what their folders say of the method, as a `Method`."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from ..backbone.backbone import Backbone
from ..backbone.bidirectional import Sight
from ..backbone.file_safety import ADAPTER, CONFIG, read_json
from ..errors import ModelError
from ..methods import Method
from ..methods.weights import Plain
from ..text.layout import Layout

logger = logging.getLogger(__name__)

LLM2VEC, ANGLE, START = "llm2vec_config.json", "angle.config", "BiLLM_START_INDEX"
POOLS = {
    LLM2VEC: {
        "mean": "mean",
        "weighted_mean": "weighted",
        "eos_token": "last",
        "last_token": "last",
        "bos_token": "cls",
    },
    ANGLE: {"avg": "mean", "last": "last", "cls": "cls"},
}
"""Their names of what is pooled, and ours."""
LLAMA3, INST, QWEN = "meta-llama/Meta-Llama-3-8B", "[INST] {text} [/INST]", "<|im_start|>user\n{text}<|im_end|>"
FORMATS = {
    f"{LLAMA3}-Instruct": "<|start_header_id|>user<|end_header_id|>\n\n{text}<|eot_id|>",
    "mistralai/Mistral-7B-Instruct-v0.2": INST,
    "meta-llama/Llama-2-7b-chat-hf": INST,
    "google/gemma-2-9b-it": "<bos><start_of_turn>user\n{text}<end_of_turn>",
    "Qwen/Qwen2-1.5B-Instruct": QWEN,
    "Qwen/Qwen2-7B-Instruct": QWEN,
}
"""What LLM2Vec writes around texts for these base models (prepare_for_tokenization; Llama and Mistral by
McGill-NLP/llm2vec@020e65f, Gemma and Qwen2 by forks of it)."""
CLASSES = {f"{kind}{end}" for kind in "Llama Mistral Gemma Gemma2 Qwen2".split() for end in ("BiModel", "EncoderModel")}
"""LLM2Vec's models, which configurations of its folders name."""


def read_foreign(folder: Path) -> tuple[str, dict[str, Any]] | None:
    """Which file of LLM2Vec or AnglE a folder has, and its settings; None for any other folder.

    A folder of LLM2Vec without its file is known by the classes that its configurations name.

    Raises:
        ModelError: a file is broken.
    """
    read = {
        name: read_json(folder / name, dict) for name in (LLM2VEC, ANGLE, CONFIG, ADAPTER) if (folder / name).exists()
    }
    if file := next((name for name in (LLM2VEC, ANGLE) if name in read), None):
        return file, read[file]
    mapping = _setting(ADAPTER, read.get(ADAPTER, {}), "auto_mapping", dict, {})
    classes = _setting(CONFIG, read.get(CONFIG, {}), "architectures", list, [])
    named = {_setting(ADAPTER, mapping, "base_model_class", str, "")}
    named |= {_setting(CONFIG, {"architectures": each}, "architectures", str, "") for each in classes}
    return (LLM2VEC, {}) if CLASSES & named else None


def _setting(file: str, settings: dict[str, Any], name: str, kind: type[Any], default: Any) -> Any:
    """A setting of a file, by default where it is missing or null; raises ModelError if it is of another type."""
    value = settings.get(name)
    if value is None or isinstance(value, kind):
        return default if value is None else value
    raise ModelError(f"{file}: {name} is {value!r:.60}: give a {kind.__name__}, or leave it out")


def foreign_method(file: str, settings: dict[str, Any], backbone: Backbone) -> Method:
    """The method that a folder asks for, for its loaded model.

    Args:
        file: `LLM2VEC` or `ANGLE`.
        settings: its content.
        backbone: the model, with its adapters merged.

    Raises:
        ModelError: the pooling is not supported, or a setting is of another type.
    """
    key, default = ("pooling_mode", "mean") if file == LLM2VEC else ("pooling_strategy", "cls")
    asked, layers = _setting(file, settings, key, str, default), backbone.facts.layers
    if asked not in POOLS[file]:
        raise ModelError(f"{file} asks for pooling {asked!r}: known are {', '.join(POOLS[file])}")
    pool: Any = POOLS[file][asked]
    if file == ANGLE:
        last = _both_ways(layers) if _setting(file, settings, "apply_billm", bool, False) else 0
        return Method(Layout(), weigh=Plain(pool), sight=Sight(last), name=f"angle last {last} {pool}")
    skips = _setting(file, settings, "skip_instruction", bool, True) and pool in ("mean", "weighted")
    around = _around(backbone, asked)
    layout = Layout() if around == "{text}" else Layout("{text}", chat=around)
    weigh = Plain(pool, "tail", False) if skips else Plain(pool)
    return Method(layout, weigh=weigh, sight=Sight(layers), name=f"llm2vec {pool}")


def gritlm(backbone: Backbone) -> Method | None:
    """The method of a model of GritLM (ContextualAI/gritlm@134d8b4), known by its modelling file; None for others.

    The configuration then forgets that file, so that a saved encoder keeps the method that it has.
    """
    config: Any = backbone.model.config
    if "gritlm" not in str(getattr(config, "auto_map", None)).lower():
        return None
    del config.auto_map
    sight = Sight(backbone.facts.layers)
    return Method(Layout("<|embed|>\n{text}"), weigh=Plain("mean", "tail", False), sight=sight, name="gritlm mean")


def _around(backbone: Backbone, pooling: str) -> str:
    """What LLM2Vec writes around a text, by the name of the base model; a copy's configuration may say the name."""
    name = str(backbone.model.name_or_path)
    if (Path(name) / CONFIG).exists():
        name = str(read_json(Path(name) / CONFIG, dict).get("_name_or_path") or name)
    around, end = FORMATS.get(name, "{text}"), str(backbone.tokenizer.hf.eos_token or "")
    if pooling != "eos_token" or name == f"{LLAMA3}-Instruct":
        return around
    return around + (
        "<|end_of_text|>" if name == LLAMA3 else {"llama": " </s>", "mistral": " </s>"}.get(backbone.facts.kind, end)
    )


def _both_ways(layers: int) -> int:
    """How many last layers BiLLM makes bidirectional: those from its environment variable on, by default all."""
    given = os.environ.get(START)
    if given is None:
        logger.warning("%s names no bidirectional layers: all are, as BiLLM's default is; set %s", ANGLE, START)
        return layers
    if not given.removeprefix("-").isdecimal():
        raise ModelError(f"{START}={given!r}: give the number of the first bidirectional layer, from 0")
    return max(layers - int(given), 0) if int(given) >= 0 else 0
