from pathlib import Path

import numpy as np
import pytest
import torch
from tests.eager import Eager
from tests.tiny import tiny
from tests.train.conftest import TEXTS
from torch import Tensor, nn
from transformers import AutoModel
from transformers.pytorch_utils import Conv1D

from afterword import Encoder, bellm, classical
from afterword.errors import InputError, UnsupportedModel
from afterword.train.lora import append_layers, attach
from afterword.train.settings import Settings

LORA = Settings(rank=4, alpha=8, dropout=0.0)


def trained(adapted: nn.Module, seed: int = 0) -> None:
    """Matrices as a training would leave them."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in adapted.named_parameters():
            if "lora_" in name:
                p.copy_(torch.randn(p.shape, generator=generator) * 0.2)


def plain(folder: Path, weights: dict[str, Tensor] | None = None) -> np.ndarray:
    """The last states' mean by a fresh model with its own eager attention, a text at a time."""
    eager = Eager(folder)
    if weights is not None:
        eager.model.load_state_dict(weights)
    with torch.no_grad():
        states = [eager.model(**eager.tokenizer(t, return_tensors="pt")).last_hidden_state[0] for t in TEXTS]
    return np.stack([s.mean(0).numpy() for s in states])


def by_hand(folder: Path, adapted: nn.Module) -> dict[str, Tensor]:
    """The weights W + alpha / r B A, written out."""
    weights = {k: v.clone() for k, v in Eager(folder).model.state_dict().items()}
    found = dict(adapted.named_parameters())
    for name, a in found.items():
        if "lora_A" in name:
            b = found[name.replace("lora_A", "lora_B")]
            place = name.removeprefix("base_model.model.").replace(".lora_A.default", "")
            product = LORA.alpha / LORA.rank * b @ a
            weights[place] += (product.T if "c_" in place else product).detach()
    return weights


def close(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(abs(a - b).max() <= 1e-5 * abs(b).max())


@pytest.mark.parametrize("kind", ["llama", "gpt2", "bert"])
def test_every_state_of_an_adapter_equals_a_fresh_plain_forward(kind: str, models: Path):
    encoder = Encoder.load(models / kind, classical())
    base = plain(models / kind)
    assert close(encoder.encode(TEXTS), base)
    adapted = attach(encoder.backbone.model, LORA)
    assert close(encoder.encode(TEXTS), base)  # B is 0 at the start
    trained(adapted)
    changed = plain(models / kind, by_hand(models / kind, adapted))
    assert abs(changed - base).max() > 1e-2
    assert close(encoder.encode(TEXTS), changed)
    adapted.unload()
    assert close(encoder.encode(TEXTS), base)
    whole = attach(encoder.backbone.model, LORA)
    trained(whole, seed=1)
    again = plain(models / kind, by_hand(models / kind, whole))
    whole.merge_and_unload(safe_merge=True)
    assert close(encoder.encode(TEXTS), again) and not close(again, changed)


def test_all_linear_layers_get_matrices_and_nothing_else_is_trained(models: Path):
    for kind in ("llama", "gpt2"):
        model = Encoder.load(models / kind, bellm()).backbone.model
        linear = sum(isinstance(m, nn.Linear | Conv1D) for m in model.modules())
        adapted = attach(model, LORA)
        names = [n for n, p in adapted.named_parameters() if p.requires_grad]
        assert len(names) == 2 * linear and all("lora_" in n for n in names)
    model = Encoder.load(models / "llama", bellm()).backbone.model
    adapted = attach(model, Settings(rank=4, targets=("q_proj", "up_proj")))
    found = {n.split(".lora_")[0].rpartition(".")[2] for n, p in adapted.named_parameters() if p.requires_grad}
    assert found == {"q_proj", "up_proj"}
    with pytest.raises(InputError, match=r"targets=c_attn: .*q_proj"):
        attach(Encoder.load(models / "llama", bellm()).backbone.model, Settings(targets=("c_attn",)))


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma2", "opt"])
@pytest.mark.parametrize("fresh", [False, True], ids=["copied", "fresh"])
def test_the_old_weights_stay_and_the_new_layers_come_last(kind: str, fresh: bool, tmp_path: Path):
    start = Encoder.load(tiny(kind, tmp_path / "a"), classical())
    before, layers = start.encode(["a text"]), start.backbone.stack.layers
    grown = append_layers(start.backbone, 2, fresh)
    assert grown.facts.layers == 5 and start.backbone.facts.layers == 3
    for i, layer in enumerate(grown.stack.layers):
        same = [
            torch.equal(a, b)
            for a, b in zip(layer.parameters(), layers[i if i < 3 else i - 2].parameters(), strict=True)
        ]
        assert all(same) or (fresh and i > 2 and not all(same))
    assert (start.encode(["a text"]) == before).all()
    Encoder(grown, bellm(last=2)).save(tmp_path / "b")
    again = Encoder.load(tmp_path / "b")
    assert close(again.encode(["a text"]), Encoder(grown, bellm(last=2)).encode(["a text"]))
    assert len(AutoModel.from_pretrained(tmp_path / "b").state_dict()) == len(grown.model.state_dict())


def test_a_model_that_cannot_grow_is_named(tmp_path: Path):
    for kind, count in (("bloom", 2), ("albert", 2), ("llama4_text", 2), ("llama", 4)):
        backbone = Encoder.load(tiny(kind, tmp_path / kind), classical()).backbone
        with pytest.raises(UnsupportedModel) as caught:
            append_layers(backbone, count)
        assert "\n" not in str(caught.value)
    assert append_layers(backbone, 4, fresh=True).facts.layers == 7
