"""What is saved loads to the same vectors, or is refused; adapters are loaded with their base model."""

import copy
import json
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.version import Version
from safetensors.torch import load_file, save_file
from tests.agreement import close
from tests.tiny import tiny

from afterword import Encoder, classical, echo
from afterword.backbone.loading import base_and_adapters
from afterword.backbone.model_source import ModelSource
from afterword.errors import ModelError

peft = pytest.importorskip("peft", reason="the extra train is not installed")
TEXTS = ["The bank of the river.", "A bank for my money!", "a b"]
LORA: dict[str, Any] = {"r": 4, "target_modules": ["q_proj", "v_proj"], "init_lora_weights": False}


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny("llama", tmp_path_factory.mktemp("models") / "llama")


def files(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


ADAPTERS: dict[str, Any] = {
    "lora": peft.LoraConfig(**LORA),
    "scaled": peft.LoraConfig(**LORA, use_rslora=True, lora_alpha=3),
    "whole norm": peft.LoraConfig(**LORA, modules_to_save=["norm"]),
}


@pytest.mark.parametrize("kind", ADAPTERS)
def test_an_adapter_around_the_model_is_saved_with_it(kind: str, llama: Path, tmp_path: Path):
    encoder = Encoder.load(llama, echo())
    encoder.save(tmp_path / "a", overwrite=True)
    before = encoder.encode(TEXTS)
    name = "mine" if kind == "scaled" else "default"
    peft.get_peft_model(encoder.backbone.model, copy.deepcopy(ADAPTERS[kind]), adapter_name=name)
    after = encoder.encode(TEXTS)
    assert abs(after - before).max() > 1e-2
    encoder.save(tmp_path / "a", overwrite=True)
    assert close(encoder.encode(TEXTS), after)
    if kind == "whole norm" and Version(version("transformers")) < Version("5.23"):
        with pytest.raises(ModelError, match="modules_to_save"):  # older versions do not read these weights
            Encoder.load(tmp_path / "a")
        return
    again = Encoder.load(tmp_path / "a")
    assert close(again.encode(TEXTS), after)
    again.save(tmp_path / "b")  # its adapter is one that transformers has loaded
    assert close(Encoder.load(tmp_path / "b").encode(TEXTS), after)


@pytest.mark.parametrize("file", ["model.safetensors", "adapter_model.safetensors"])
def test_weights_that_are_missing_beside_an_adapter_are_noticed(file: str, llama: Path, tmp_path: Path):
    encoder = Encoder.load(llama, classical())
    peft.get_peft_model(encoder.backbone.model, peft.LoraConfig(**LORA))
    encoder.save(tmp_path / "a")
    tensors = load_file(tmp_path / "a" / file)
    *kept, (lost, _) = sorted(tensors.items())
    save_file(dict(kept), tmp_path / "a" / file, {"format": "pt"})
    with pytest.raises(ModelError, match=lost.removeprefix("base_model.model.").removesuffix(".weight")):
        Encoder.load(tmp_path / "a")


def test_what_transformers_does_not_read_of_an_adapter_is_not_ignored(llama: Path, tmp_path: Path):
    encoder = Encoder.load(llama, classical())
    peft.get_peft_model(encoder.backbone.model, peft.LoraConfig(**LORA, use_dora=True))
    encoder.save(tmp_path / "a")
    with pytest.raises(ModelError, match="lora_magnitude"):
        Encoder.load(tmp_path / "a")


def merged(model: Any) -> None:
    peft.get_peft_model(model, peft.LoraConfig(**LORA)).merge_adapter()


def switched_off(model: Any) -> None:
    peft.get_peft_model(model, peft.LoraConfig(**LORA)).base_model.disable_adapter_layers()


def two(model: Any) -> None:
    around = peft.get_peft_model(model, peft.LoraConfig(**LORA))
    around.add_adapter("other", peft.LoraConfig(**LORA))


@pytest.mark.parametrize("change", [merged, switched_off, two])
def test_what_would_load_to_another_model_is_refused_and_nothing_is_touched(
    change: Callable[[Any], None], llama: Path, tmp_path: Path
):
    encoder = Encoder.load(llama, classical())
    encoder.save(tmp_path / "a")
    before = files(tmp_path)
    change(encoder.backbone.model)
    for place in ("a", "b"):
        with pytest.raises(ModelError, match="default") as caught:
            encoder.save(tmp_path / place, overwrite=True)
        assert "\n" not in str(caught.value)
    assert files(tmp_path) == before


# Chains of adapters, which are merged into the weights


def written(folder: Path, base: object, **settings: object) -> Path:
    """An adapter's folder; its weights are those of one matrix."""
    folder.mkdir(parents=True)
    config = {"peft_type": "LORA", "r": 2, "target_modules": ["q_proj"], "base_model_name_or_path": base}
    (folder / "adapter_config.json").write_text(json.dumps({**config, **settings}))
    save_file({"base_model.model.layers.0.self_attn.q_proj.lora_A.weight": torch.ones(2, 64)},
              folder / "adapter_model.safetensors")  # fmt: skip
    return folder


def chain(folder: Path) -> tuple[ModelSource, list[Path]]:
    return base_and_adapters(ModelSource(str(folder)), folder)


def test_a_chain_ends_at_the_model(llama: Path, tmp_path: Path) -> None:
    first = written(tmp_path / "first", str(llama))
    second = written(tmp_path / "second", str(first))
    assert chain(second) == (ModelSource(str(llama)), [first, second])
    assert chain(llama) == (ModelSource(str(llama)), [])


def test_a_circle_a_missing_base_and_none_at_all(tmp_path: Path) -> None:
    circle = written(tmp_path / "circle", str(tmp_path / "circle"))
    with pytest.raises(ModelError, match="does not lead to a base model"):
        chain(circle)
    with pytest.raises(ModelError, match=r"its base model is missing: there is no folder \./gone"):
        chain(written(tmp_path / "gone", "./gone"))


@pytest.mark.parametrize(
    ("settings", "value"),
    [
        ({"peft_type": "IA3"}, "peft_type='IA3'"),
        ({"modules_to_save": ["embed_tokens"]}, r"modules_to_save=\['embed_tokens'\]"),
        ({}, "does not fit its base model"),
    ],
)
def test_an_adapter_that_cannot_be_merged_is_refused(settings: dict, value: str, llama: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=value):
        Encoder.load(written(tmp_path / "a", str(llama), **settings), "classical")
