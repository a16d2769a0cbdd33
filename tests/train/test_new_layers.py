from pathlib import Path

import pytest
import torch
from tests.tiny import tiny
from transformers import AutoModel

from afterword import Encoder, bellm, classical
from afterword.errors import UnsupportedModel
from afterword.train.new_layers import append


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma2", "opt"])
@pytest.mark.parametrize("fresh", [False, True], ids=["copied", "fresh"])
def test_the_old_weights_stay_and_the_new_layers_come_last(kind: str, fresh: bool, tmp_path: Path):
    start = Encoder.load(tiny(kind, tmp_path / "a"), classical())
    before, layers = start.encode(["a text"]), start.backbone.stack.layers
    grown = append(start.backbone, 2, fresh)
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
    assert (again.encode(["a text"]) == Encoder(grown, bellm(last=2)).encode(["a text"])).all()
    assert len(AutoModel.from_pretrained(tmp_path / "b").state_dict()) == len(grown.model.state_dict())


def test_new_layers_that_give_nothing_change_nothing(tmp_path: Path):
    """They stand behind the old ones and in front of the norm: with all their outputs 0 the model is the old one."""
    start = Encoder.load(tiny("llama", tmp_path), classical())
    grown = append(start.backbone, 1)
    with torch.no_grad():
        for name, p in grown.stack.layers[-1].named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                p.zero_()
    texts = ["a text", "another one, longer"]
    assert abs(Encoder(grown, classical()).encode(texts) - start.encode(texts)).max() < 1e-6


def test_what_cannot_grow_is_said(tmp_path: Path):
    for kind in ("bloom", "albert", "llama4_text"):
        backbone = Encoder.load(tiny(kind, tmp_path / kind), classical()).backbone
        with pytest.raises(UnsupportedModel, match=f"{kind} cannot have new layers after its last: .+") as found:
            append(backbone, 2)
        assert "\n" not in str(found.value)
    backbone = Encoder.load(tiny("llama", tmp_path / "llama"), classical()).backbone
    with pytest.raises(UnsupportedModel, match="4 layers cannot be copied from the 3 that there are: start them fresh"):
        append(backbone, 4)
    assert append(backbone, 4, fresh=True).facts.layers == 7
