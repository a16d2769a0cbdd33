"""States as means of layers."""

import json
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from afterword import Encoder, Method, classical, reba
from afterword.backbone.backbone import Backbone, Trace
from afterword.backbone.facts import LAST
from afterword.backbone.loading import load_backbone
from afterword.errors import MethodError, NoSuchHead
from afterword.files.fingerprint import described
from afterword.methods.serialize import from_json, to_json
from afterword.methods.states import CustomStates, States


@pytest.mark.parametrize(
    ("kind", "layers"),
    [
        ("layer:3", (3,)),
        ("layer:-1+0", (LAST, 0)),
        ("normed:3", ("normed:3",)),
        ("attention:all", ("attention:all",)),
        ("values:0+-1", ("values:0+-1",)),
        ("router:softmax", ("router:softmax",)),
    ],
)
def test_names_and_numbers(kind, layers) -> None:
    assert States(kind).layers == layers


@pytest.mark.parametrize("kind", ["", "first", "layer:a", "layers:1", "normed:-1", "values", "router:all"])
def test_an_unknown_kind_is_named(kind) -> None:
    with pytest.raises(MethodError, match="states="):
        States(kind)


def test_a_missing_layer_is_named() -> None:
    States("layer:4").check(4)
    States("layer:-5").check(4)
    States("normed:4").check(4)
    for kind in ("layer:5", "layer:-6", "normed:5"):
        with pytest.raises(NoSuchHead, match="0 to 4"):
            States(kind).check(4)


class Twice(CustomStates):
    """The last layer, concatenated with the mean of the first two."""

    kind = "test_twice"
    reads = ("last", "layer:0+1")

    def __call__(self, last: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
        return torch.cat([last, first], 1)

    def width(self, backbone: Backbone) -> int:
        return 2 * super().width(backbone)


@dataclass(frozen=True)
class Rise(CustomStates):
    """The last layer without a share of what attention added."""

    kind = "test_rise"
    reads = ("last", "attention:all")
    share: float = 1.0

    def __call__(self, last: torch.Tensor, added: torch.Tensor) -> torch.Tensor:
        return last - self.share * added


def test_custom_states() -> None:
    backbone = load_backbone("afterword-mini")
    texts = ["The king lives in a castle.", "Water boils."]
    parts = [Encoder(backbone, classical(states=kind)).encode(texts) for kind in ("last", "layer:0+1", "attention:all")]
    twice = replace(reba(), states=Twice(), weigh=classical().weigh, layout=classical().layout)
    encoder = Encoder(backbone, twice)
    assert np.allclose(encoder.encode(texts), np.concatenate(parts[:2], 1), atol=1e-6)
    assert encoder.dimension == 2 * backbone.facts.width and Twice().layers == ("last", 0, 1)
    word = encoder.encode_words([texts[0]], ["king"])
    assert np.allclose(word[:, :256], Encoder(backbone, classical()).encode_words([texts[0]], ["king"]), atol=1e-6)
    assert Twice() == Twice() != States() and Rise(0.5) != Rise()
    half = Encoder(backbone, Method(states=Rise(0.5)))
    assert np.allclose(half.encode(texts), parts[0] - parts[2] / 2, atol=1e-5)
    assert described(half)["method"]["states"] == {"kind": "test_rise", "share": 0.5, "code": Rise.code}
    assert Rise.code and half.fingerprint != Encoder(backbone, Method(states=Rise())).fingerprint


def test_custom_states_are_written_and_read() -> None:
    method = Method(states=Rise(0.5), name="rise")
    data = json.loads(json.dumps(to_json(method)))
    assert data["states"] == {"kind": "test_rise", "class": f"{__name__}.Rise", "share": 0.5}
    assert from_json(data) == method
    with pytest.raises(MethodError, match="Rose of my_states"):
        from_json({**data, "states": {"kind": "rose", "class": "my_states.Rose"}})
    with pytest.raises(MethodError, match="shore"):
        from_json({**data, "states": {**data["states"], "shore": 1}})
    with pytest.raises(MethodError, match="has no kind"):
        to_json(Method(states=type("Nameless", (Rise,), {})()))


@pytest.mark.parametrize(
    "wrong", [lambda x: x[:1], lambda x: x.long(), lambda x: x[:, :2], lambda x: 1.0, lambda x: x[0]]
)
def test_what_custom_states_return_is_checked(wrong) -> None:
    states = type("Wrong", (CustomStates,), {"__call__": lambda self, x: wrong(x)})()
    with pytest.raises(MethodError, match="Wrong returned states"):
        states.mean(Trace({LAST: torch.ones(3, 4)}))
