"""Chains of adapters, and what cannot be merged."""

import json
from pathlib import Path

import pytest
import torch
from tests.tiny import tiny

from afterword import Encoder
from afterword.backbone.adapters import base_and_adapters
from afterword.backbone.model_source import ModelSource
from afterword.errors import ModelError

peft = pytest.importorskip("peft", reason="the extra train is not installed")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny("llama", tmp_path_factory.mktemp("adapters") / "base")


def adapter(folder: Path, base: object, **settings: object) -> Path:
    """An adapter's folder; its weights are those of one matrix."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True)
    config = {"peft_type": "LORA", "r": 2, "target_modules": ["q_proj"], "base_model_name_or_path": base}
    (folder / "adapter_config.json").write_text(json.dumps({**config, **settings}))
    save_file({"base_model.model.layers.0.self_attn.q_proj.lora_A.weight": torch.ones(2, 64)},
              folder / "adapter_model.safetensors")  # fmt: skip
    return folder


def chain(folder: Path) -> tuple[ModelSource, list[Path]]:
    return base_and_adapters(ModelSource(str(folder)), folder)


def test_a_chain_ends_at_the_model(base: Path, tmp_path: Path) -> None:
    first = adapter(tmp_path / "first", str(base))
    second = adapter(tmp_path / "second", str(first))
    assert chain(second) == (ModelSource(str(base)), [first, second])
    assert chain(base) == (ModelSource(str(base)), [])


def test_a_circle_a_missing_base_and_none_at_all(tmp_path: Path) -> None:
    circle = adapter(tmp_path / "circle", str(tmp_path / "circle"))
    with pytest.raises(ModelError, match="leads to no base model"):
        chain(circle)
    with pytest.raises(ModelError, match="leads to no base model: base_model_name_or_path is None"):
        chain(adapter(tmp_path / "none", None))
    with pytest.raises(ModelError, match=r"its base model is missing: there is no folder \./gone"):
        chain(adapter(tmp_path / "gone", "./gone"))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"peft_type": "IA3"}, "peft_type='IA3' cannot be merged"),
        ({"modules_to_save": ["embed_tokens"]}, r"modules_to_save=\['embed_tokens'\] cannot be merged"),
        ({"bias": "all"}, "bias='all' cannot be merged"),
        ({}, "does not fit its base model: 5 weights differ"),
        ({"megatron_config": {"x": 1}}, "sets megatron_config"),
    ],
)
def test_what_cannot_be_merged_is_refused(settings: dict, said: str, base: Path, tmp_path: Path) -> None:
    folder = adapter(tmp_path / "a", str(base), **settings)
    with pytest.raises(ModelError, match=said):
        Encoder.load(folder, "classical")


def test_weights_are_read_from_safetensors_only(base: Path, tmp_path: Path) -> None:
    folder = adapter(tmp_path / "a", str(base))
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")
    with pytest.raises(ModelError, match=r"holds no adapter_model\.safetensors"):
        Encoder.load(folder, "classical")
