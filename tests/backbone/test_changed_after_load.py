"""A model that was changed after it was loaded: its texts stay apart, or it is refused."""

import copy
import pickle

import numpy as np
import pytest
import torch
from tests.tiny import tiny
from torch import nn

from afterword import Encoder, classical
from afterword.backbone.self_check import check
from afterword.errors import UnsupportedModel

TEXTS = ["a king walks in the park", "hi", "the bank of the river", "zz top"]


@pytest.fixture
def encoder(tmp_path) -> Encoder:
    return Encoder.load(tiny("llama", tmp_path), classical())


class Shifted(nn.Module):
    """A layer that adds, to each token, the one before."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x) + torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], 1)


def steer_the_first(encoder: Encoder) -> None:
    def hook(module, args, out):
        hidden = out[0] if isinstance(out, tuple) else out
        hidden = torch.cat([hidden[:, :1] + 3, hidden[:, 1:]], 1)
        return (hidden, *out[1:]) if isinstance(out, tuple) else hidden

    encoder.backbone.model.layers[1].register_forward_hook(hook)


def take_off_the_mean(encoder: Encoder) -> None:
    encoder.backbone.model.layers[1].mlp.register_forward_hook(lambda m, a, out: out - out.mean(1, keepdim=True))


def shift(encoder: Encoder) -> None:
    layer = encoder.backbone.model.layers[1]
    layer.mlp = Shifted(layer.mlp)


CHANGES = [steer_the_first, take_off_the_mean, shift]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("first", [True, False])
def test_what_looks_along_the_tokens_is_refused(encoder, change, first):
    if first:
        encoder.encode(TEXTS)
    change(encoder)
    with pytest.raises(UnsupportedModel, match="makes the texts of a batch affect each other") as error:
        encoder.encode(TEXTS)
    assert "\n" not in str(error.value)
    with pytest.raises(UnsupportedModel):  # and stays refused, copied and pickled too
        encoder.encode(TEXTS)
    with pytest.raises(UnsupportedModel):
        copy.deepcopy(encoder).encode(TEXTS)


def test_checked_anew_it_runs_another_way(encoder):
    take_off_the_mean(encoder)
    anew = Encoder(check(encoder.backbone.model, encoder.backbone.tokenizer), classical())
    assert anew.backbone.facts.way != "flat"
    alone = np.stack([anew.encode(text) for text in TEXTS])
    assert np.abs(anew.encode(TEXTS) - alone).max() <= 1e-6 * np.abs(alone).max()


def test_a_hook_that_treats_each_token_by_itself_is_followed_and_tried_once(encoder, monkeypatch):
    before, model = encoder.encode(TEXTS), encoder.backbone.model
    model.layers[1].mlp.register_forward_hook(lambda m, a, out: out * 1.5)
    after = encoder.encode(TEXTS)
    assert np.abs(after - before).max() > 1e-3 * np.abs(before).max()
    tried = []
    monkeypatch.setattr("afterword.backbone.changed_after_load.require_independence", lambda *a: tried.append(a))
    assert np.array_equal(encoder.encode(TEXTS), after)
    assert not tried
    copied = pickle.loads(pickle.dumps(Encoder.load(model.name_or_path, classical())))
    copied.encode(TEXTS)
    assert len(tried) == 1  # nobody knows what was done to a copy


def test_another_class_is_a_change_too(encoder, monkeypatch):
    """Of a module that stays where it is, and of all modules of a class, whose forward somebody replaced."""
    mlp = encoder.backbone.model.layers[-1].mlp
    plain = type(mlp).forward

    def shifted(self, x):
        y = plain(self, x)
        return y + 0.3 * y.roll(1, -2)

    with monkeypatch.context() as now:
        now.setattr(mlp, "__class__", type("Shifted", (type(mlp),), {"forward": shifted}))
        with pytest.raises(UnsupportedModel, match="makes the texts of a batch affect each other"):
            encoder.encode(TEXTS)
    encoder.encode(TEXTS)
    with monkeypatch.context() as now:
        now.setattr(type(mlp), "forward", shifted)
        with pytest.raises(UnsupportedModel, match="makes the texts of a batch affect each other"):
            encoder.encode(TEXTS)
    encoder.encode(TEXTS)
