from pathlib import Path
from typing import Any

import pytest
import torch
from tests.eager import Eager
from tests.families import batch_of, by_text, texts
from tests.tiny import tiny
from torch import Tensor

from afterword.backbone import LAST
from afterword.errors import MethodError, NoSuchHead
from afterword.loading import load_backbone
from afterword.rules import Plan
from afterword.sight import Sight, coupled


def test_which_layers():
    assert Sight(last=2).of(5) == {3, 4}
    assert Sight(layers=(4, 1, 1)).of(5) == {1, 4} and Sight(layers=(4, 1, 1)) == Sight(layers=(1, 4))
    assert not Sight() and Sight(last=1) and Sight(layers=(0,)) and Sight(couple="angle031")
    assert Sight(last=2, couple="add").first(5) == 3


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda: Sight(couple="sum"), MethodError, "couple='sum': choose one of replace, add"),  # type: ignore[arg-type]
        (lambda: Sight(last=-1), MethodError, "last=-1"),
        (lambda: Sight(last="all"), MethodError, "last='all'.*or 'auto'"),  # type: ignore[arg-type]
        (lambda: Sight(last="auto", layers=(2,)), MethodError, "give one of the two"),
        (lambda: Sight(last="auto").of(3), MethodError, "needs pairs.*turning-point.*resolve"),
        (lambda: Sight(last=1, layers=(2,)), MethodError, "give one of the two"),
        (lambda: Sight(last=4).of(3), NoSuchHead, "the model has 3 layers"),
        (lambda: Sight(layers=(3,)).of(3), NoSuchHead, "layers 0 to 2"),
        (lambda: Sight(layers=(0, 2), couple="add").first(3), MethodError, "layers must be the last ones"),
    ],
)
def test_what_cannot_be_is_refused(make: Any, error: type[Exception], said: str):
    with pytest.raises(error, match=said):
        make()


def by_hand(eager: Eager, ids: list[int], last: int, couple: str) -> Tensor:
    """Equation 5 with a Llama taken apart: every layer called by itself, with eager masks."""
    model = eager.model
    n, h = len(ids), model.embed_tokens(torch.tensor([ids]))
    rope = model.rotary_emb(h, torch.arange(n)[None])
    closed = torch.full((n, n), float("-inf")).triu(1)[None, None]
    first = len(model.layers) - last

    def through(h: Tensor, layers: Any, mask: Tensor) -> Tensor:
        for layer in layers:
            h = layer(h, attention_mask=mask, position_embeddings=rope)
        return h

    below = through(h, model.layers[:first], closed)
    causal = below if couple == "angle031" else through(below, model.layers[first:], closed)
    start = below if couple in ("add", "add_postnorm") else h
    both = through(start, model.layers[first:], torch.zeros_like(closed))
    return model.norm(causal) + model.norm(both) if couple == "add_postnorm" else model.norm(causal + both)


@pytest.mark.parametrize("last", [1, 2])
@pytest.mark.parametrize("couple", ["add", "add_postnorm", "add_embedding", "angle031"])
def test_two_streams_are_equation_5(couple: Any, last: int, tmp_path: Path):
    backbone, eager = load_backbone(tiny("llama", tmp_path)), Eager(tmp_path)
    batch = batch_of(texts())
    with torch.no_grad():
        got = by_text(batch, backbone.forward(batch, sight=Sight(last, couple=couple)).states[LAST])
        for ids, state in zip(texts(), got, strict=True):
            wanted = by_hand(eager, ids, last, couple)[0]
            assert (state - wanted).abs().max() < 1e-5 * wanted.abs().max()


def test_nothing_of_a_second_stream_stays_behind(tmp_path: Path):
    backbone = load_backbone(tiny("llama", tmp_path))
    batch = batch_of(texts())
    hooks = lambda: sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in backbone.model.modules())  # noqa: E731
    with torch.no_grad():
        before, count = backbone.forward(batch).states[LAST], hooks()
        backbone.forward(batch, sight=Sight(1, couple="add"))
        with pytest.raises(ZeroDivisionError), coupled(backbone.stack, Sight(1, couple="add"), Plan(())):
            _ = 1 / 0
        assert hooks() == count
        assert torch.equal(backbone.forward(batch).states[LAST], before)
