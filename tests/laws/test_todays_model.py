"""The law of today's model: whatever was changed after load, `encode` gives what the model now gives, or refuses."""

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.eager import READING, SEEING, STATES, Eager
from tests.families import difference, encode, texts
from tests.tiny import tiny
from torch import nn

from afterword import Encoder, classical, ditto, reba
from afterword.backbone.backbone import Backbone
from afterword.backbone.loading import load_backbone
from afterword.backbone.self_check import check
from afterword.errors import AfterwordError

METHODS = {
    "llama": ["classical mean", "reba last", "bellm 2"],
    "mistral": ["classical mean", "reba mean", "bellm 2"],
    "gpt2": ["classical mean", "reba last"],
    "bert": ["classical mean", "ditto"],
    "t5": ["classical mean", "reba last"],
    "bloom": ["classical mean", "reba last"],
}
TEXTS = texts()[3:6]
KNOWN = {**STATES, **READING, **SEEING}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Backbone]:
    """Backbones as they were loaded; nobody changes these."""
    found: dict[str, Backbone] = {}

    def backbone(kind: str) -> Backbone:
        if kind not in found:
            found[kind] = load_backbone(tiny(kind, tmp_path_factory.mktemp(kind)))
        return found[kind]

    return backbone


class Today(Eager):
    """The model as it is now, by itself: a copy in eval mode, with eager attention."""

    def __init__(self, backbone: Backbone) -> None:
        self.model = copy.deepcopy(backbone.model).eval()
        self.model.set_attn_implementation("eager")
        self.tokenizer = backbone.tokenizer.hf
        with_text = self.tokenizer("a").input_ids
        at = with_text.index(self.tokenizer("a", add_special_tokens=False).input_ids[0])
        self.prefix, self.suffix = with_text[:at], with_text[at + 1 :]


def layers_of(model: nn.Module) -> nn.ModuleList:
    return next(m for m in model.modules() if isinstance(m, nn.ModuleList) and len(m) == 3)


def linears(model: nn.Module) -> list[Any]:
    return [m for m in model.modules() if type(m).__name__ in ("Linear", "Conv1D")]


def adapted(model: Any, around: bool = True, dropout: float = 0.0) -> Any:
    """LoRA in every linear layer of the attention."""
    peft = pytest.importorskip("peft", reason="the extra train is not installed")
    names = {"llama": "q_proj,v_proj", "mistral": "q_proj,v_proj", "gpt2": "c_attn", "bert": "query,value", "t5": "q,v"}
    targets = names.get(model.config.model_type, "query_key_value").split(",")
    config = peft.LoraConfig(r=4, target_modules=targets, init_lora_weights=False, lora_dropout=dropout)
    torch.manual_seed(1)
    return peft.get_peft_model(model, config) if around else model.add_adapter(config)


def merge(model: Any) -> None:
    adapted(model).merge_adapter()


def disable(model: Any) -> None:
    adapted(model).base_model.disable_adapter_layers()


def unload(model: Any) -> None:
    adapted(model).merge_and_unload()


def by_head(model: Any) -> None:
    """A language model that shares the base, as for `generate`."""
    from transformers import LlamaForCausalLM

    whole = LlamaForCausalLM(copy.deepcopy(model.config))
    whole.model, whole.config = model, model.config
    whole.set_attn_implementation("sdpa")


def edit_data(model: Any) -> None:
    for m in linears(model):
        m.weight.data.mul_(1.1)


def replace_data(model: Any) -> None:
    for m in linears(model):
        m.weight.data = m.weight.data * 0.9


@torch.no_grad()
def edit_in_place(model: Any) -> None:
    for m in linears(model):
        m.weight += 0.01


def load_weights(model: Any) -> None:
    model.load_state_dict({name: weight * 1.05 for name, weight in model.state_dict().items()})


def hook_layer(model: Any) -> None:
    def double(module: nn.Module, args: Any, output: Any) -> Any:
        return (output[0] * 2, *output[1:]) if isinstance(output, tuple) else output * 2

    layers_of(model)[1].register_forward_hook(double)


def hook_input(model: Any) -> None:
    linears(layers_of(model)[1])[-1].register_forward_pre_hook(lambda module, args: (args[0] * 2, *args[1:]))


def drop_a_layer(model: Any) -> None:
    del layers_of(model)[2]


def exchange_layers(model: Any) -> None:
    layers_of(model)[2] = copy.deepcopy(layers_of(model)[1])


def add_tokens(model: Any) -> None:
    model.resize_token_embeddings(310)


def record(model: Any) -> None:
    model(torch.tensor([[7, 8, 9]]), output_hidden_states=True)


CHANGES: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "sdpa": (lambda m: m.set_attn_implementation("sdpa"), False),
    "eager": (lambda m: m.set_attn_implementation("eager"), False),
    "config": (lambda m: setattr(m.config, "_attn_implementation", "sdpa"), False),
    "train mode": (lambda m: m.train(), False),
    "dropout of an adapter": (lambda m: adapted(m, dropout=0.5), True),
    "adapter inside": (lambda m: adapted(m, around=False), True),
    "adapter around": (adapted, True),
    "adapter merged": (merge, True),
    "adapter disabled": (disable, False),
    "adapter merged and unloaded": (unload, True),
    "weights through data": (edit_data, True),
    "other weights through data": (replace_data, True),
    "weights in place": (edit_in_place, True),
    "weights loaded": (load_weights, True),
    "hook on a layer": (hook_layer, True),
    "hook before a linear layer": (hook_input, True),
    "float64": (lambda m: m.double(), False),
    "more tokens": (add_tokens, False),
    "states recorded": (record, False),
    "a layer less": (drop_a_layer, True),
    "another layer": (exchange_layers, True),
}
"""What is done to the model, and whether its vectors change."""
REFUSED = {"a layer less", "another layer"}
FEW = {"sdpa", "eager", "config", "train mode", "adapter inside", "weights through data"}
"""Changes that are made to every family; the others to one."""


CASES = [(c, k) for c in CHANGES for k in METHODS if c in FEW or k == "llama"]


@pytest.mark.parametrize(("change", "kind"), CASES)
def test_encode_gives_what_the_model_now_gives_or_refuses(
    change: str, kind: str, loaded: Callable[[str], Backbone]
) -> None:
    backbone = copy.deepcopy(loaded(kind))
    do, moves = CHANGES[change]
    before = {name: encode(backbone, KNOWN[name][0], TEXTS) for name in METHODS[kind]}
    do(backbone.model)
    modes = [m.training for m in backbone.model.modules()]
    for name, old in before.items():
        method, reference = KNOWN[name]
        if change in REFUSED and backbone.facts.way != "eager":
            with pytest.raises(AfterwordError, match="not those that it was loaded with"):
                encode(backbone, method, TEXTS)
            continue
        found = encode(backbone, method, TEXTS)
        today = Today(backbone)
        wanted = np.stack([reference(today, t).numpy() for t in TEXTS])
        assert difference(found, wanted) < 2e-5, name
        assert (difference(found, old) > 1e-3) == moves, name
        alone = encode(backbone, method, TEXTS[:1])
        bitwise = backbone.facts.way == "flat" and change != "float64"
        assert np.array_equal(alone, found[:1]) if bitwise else difference(alone, found[:1]) < 1e-6, name
    assert [m.training for m in backbone.model.modules()] == modes


def test_a_language_model_that_shares_the_base_changes_nothing(loaded: Callable[[str], Backbone]) -> None:
    backbone = copy.deepcopy(loaded("llama"))
    before = {name: encode(backbone, KNOWN[name][0], TEXTS) for name in METHODS["llama"]}
    by_head(backbone.model)
    assert all(np.array_equal(encode(backbone, KNOWN[name][0], TEXTS), old) for name, old in before.items())


def test_a_copy_gives_what_its_own_model_gives(loaded: Callable[[str], Backbone]) -> None:
    first = copy.deepcopy(loaded("llama"))
    encode(first, KNOWN["classical mean"][0], TEXTS)
    other = copy.deepcopy(first)
    edit_data(first.model)
    for backbone in (first, other):
        today = Today(backbone)
        for name in METHODS["llama"]:
            method, reference = KNOWN[name]
            wanted = np.stack([reference(today, t).numpy() for t in TEXTS])
            assert difference(encode(backbone, method, TEXTS), wanted) < 2e-5, name


@pytest.mark.parametrize("kind", ["roberta", "xlm-roberta", "camembert"])
def test_another_start_of_positions_is_refused_and_followed_after_a_check(
    kind: str, loaded: Callable[[str], Backbone]
) -> None:
    backbone, method = copy.deepcopy(loaded(kind)), KNOWN["classical mean"][0]
    model: Any = backbone.model
    assert backbone.facts.way == "flat" and backbone.facts.offset == 2
    before = encode(backbone, method, TEXTS)
    model.embeddings.position_embeddings.padding_idx = model.embeddings.word_embeddings.padding_idx = 5
    assert np.array_equal(encode(backbone, method, TEXTS), before)  # these two say only what gets no gradient
    model.embeddings.padding_idx = 5
    wanted = np.stack([KNOWN["classical mean"][1](Today(backbone), t).numpy() for t in TEXTS])
    assert difference(before, wanted) > 0.1
    with pytest.raises(AfterwordError, match=r"counts positions from padding_idx=5 .* and from 1 before: set \w+\.pad"):
        encode(backbone, method, TEXTS)
    assert difference(encode(check(model, backbone.tokenizer), method, TEXTS), wanted) < 2e-5
    model.embeddings.padding_idx = 1
    assert np.array_equal(encode(backbone, method, TEXTS), before)


def test_layers_that_run_chunks_of_tokens_give_the_same_or_say_so(loaded: Callable[[str], Backbone]) -> None:
    backbone, method = copy.deepcopy(loaded("bert")), KNOWN["classical mean"][0]
    before = encode(backbone, method, TEXTS)
    backbone.model.config.chunk_size_feed_forward = 3  # type: ignore[union-attr]  # layers read it when they are made
    assert np.array_equal(encode(backbone, method, TEXTS), before)
    for chunk, fits in ((1, True), (3, False)):
        for layer in layers_of(backbone.model):
            layer.chunk_size_feed_forward = chunk  # type: ignore[assignment]
        if fits:
            assert difference(encode(backbone, method, TEXTS), before) < 2e-5
            continue
        with pytest.raises(AfterwordError, match=r"chunk_size_feed_forward=3 and refuse tokens .*: set it to 0"):
            encode(backbone, method, TEXTS)


def test_dynamic_quantisation_is_refused_by_its_name(loaded: Callable[[str], Backbone]) -> None:
    from torch.ao.quantization import quantize_dynamic

    backbone = copy.deepcopy(loaded("bert"))
    encoder = Encoder(backbone, KNOWN["classical mean"][0])
    encoder.encode("a text")
    quantize_dynamic(backbone.model, {nn.Linear}, inplace=True)
    with pytest.raises(AfterwordError, match="quantised dynamically, by the largest value of a whole batch"):
        encoder.encode("a text")


def test_a_folder_of_todays_model_gives_todays_vectors(loaded: Callable[[str], Backbone], tmp_path: Path) -> None:
    backbone = copy.deepcopy(loaded("llama"))
    encoder = Encoder(backbone, KNOWN["reba last"][0])
    encoder.encode(TEXTS)
    edit_data(backbone.model)
    encoder.save(tmp_path / "saved")
    assert np.array_equal(Encoder.load(tmp_path / "saved").encode(TEXTS), encoder.encode(TEXTS))


@pytest.mark.parametrize("kind", ["llama", "bert"])
def test_under_autocast_attention_is_read_as_well(kind: str, loaded: Callable[[str], Backbone]) -> None:
    backbone = loaded(kind)
    for method in (reba(2), reba(2, "mean"), ditto((1, 2))):
        expected = encode(backbone, method, TEXTS)
        with torch.autocast("cpu", torch.bfloat16):
            assert 0 < difference(encode(backbone, method, TEXTS), expected) < 0.1, method.name


@pytest.mark.parametrize("kind", ["llama", "bert", "t5", "bloom"])
def test_what_torch_makes_by_default_changes_nothing(kind: str, loaded: Callable[[str], Backbone]) -> None:
    backbone = loaded(kind)
    for name in METHODS[kind]:
        expected = encode(backbone, KNOWN[name][0], TEXTS)
        try:
            torch.set_default_dtype(torch.float64)
            if kind != "bloom":  # its own code makes its slopes on the default device
                torch.set_default_device("meta")
            found = encode(backbone, KNOWN[name][0], TEXTS)
        finally:
            torch.set_default_device(None)
            torch.set_default_dtype(torch.float32)
        assert np.array_equal(found, expected), name


def test_a_backbone_that_handed_out_its_states_can_be_pickled(loaded: Callable[[str], Backbone]) -> None:
    backbone = copy.deepcopy(loaded("llama"))
    expected = encode(backbone, KNOWN["reba last"][0], TEXTS)
    record(backbone.model)
    other = pickle.loads(pickle.dumps(backbone))
    assert np.array_equal(encode(other, KNOWN["reba last"][0], TEXTS), expected)
    first = encode(other, classical(states="layer:1"), TEXTS)
    assert np.array_equal(encode(pickle.loads(pickle.dumps(other)), classical(states="layer:1"), TEXTS), first)
