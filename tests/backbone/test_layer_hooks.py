"""A carried state and two streams, against the model's own eager layers, one text at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.eager import Eager, loaded
from tests.examples import examples
from tests.families import batch_of, by_text, texts
from tests.judge import EXACT, difference
from tests.tiny import tiny
from tests.zoo import write
from torch import Tensor

from afterword import Encoder
from afterword.backbone.backbone import Backbone
from afterword.backbone.bidirectional import Sight
from afterword.backbone.facts import LAST
from afterword.backbone.loading import load_backbone
from afterword.errors import AttentionNotSeen, MethodError, NoSuchHead, UnsupportedModel
from afterword.methods import Layout, Method, States, token_prepending
from afterword.text.batch import lay

FRONT, BEHIND = "for <PST> ", " is:"
TEMPLATE = f"{FRONT}{{text}}{BEHIND}"
KINDS = ["llama", "gpt2", "gemma2"]
ids = st.lists(st.integers(8, 260), min_size=1, max_size=12)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("carry")


@contextmanager
def by_hand(eager: Eager, slots: Sequence[int], start: int, stop: int) -> Iterator[None]:
    """h[slots] = h[last] in front of these layers."""

    def carry(_: Any, args: tuple[Any, ...]) -> Any:
        h = args[0].clone()
        h[:, list(slots)] = h[:, -1:].clone()
        return h, *args[1:]

    stack = eager.model.h if hasattr(eager.model, "h") else eager.model.layers
    hooks = [layer.register_forward_pre_hook(carry) for layer in stack[start:stop]]
    yield
    for hook in hooks:
        hook.remove()


def wanted(eager: Eager, text: list[int], start: int, stop: int, state: int) -> np.ndarray:
    front, star, behind = (eager.tokenizer(t, add_special_tokens=False).input_ids for t in ("for ", "*", BEHIND))
    whole = [*front, *star, *eager.tokenizer(" ", add_special_tokens=False).input_ids, *text, *behind]
    slot = len(eager.prefix) + len(front)
    whole = [*eager.prefix, *whole]
    with torch.no_grad(), by_hand(eager, [slot], start, stop):
        out = eager.model(input_ids=torch.tensor([whole]), output_hidden_states=True, use_cache=False)
    return out.hidden_states[state][0, -1].numpy()


@pytest.mark.parametrize("kind", KINDS)
@examples(5)
@given(texts=st.lists(ids, min_size=1, max_size=4), range_=st.sampled_from([(0, 1), (1, 2), (1, 3), (0, 3), (2, 3)]),
       state=st.integers(1, 3), stacked=st.booleans())  # fmt: skip
def test_any_texts_in_one_batch(
    models: Path, kind: str, texts: list[list[int]], range_: tuple[int, int], state: int, stacked: bool
) -> None:
    eager, own = loaded(models, kind)
    if stacked:
        own = Backbone(own.model, own.tokenizer, replace(own.facts, way="stacked"), own.modules)
    encoder = Encoder(own, token_prepending(TEMPLATE, *range_, states=f"layer:{state}"))
    got = encoder.encode(texts)
    assert difference(got, np.stack([wanted(eager, t, *range_, state) for t in texts])) < EXACT
    if not stacked:
        assert (got[-1] == encoder.encode([texts[-1]])[0]).all(), "alone and in a batch"


def test_what_cannot_carry_is_refused(models: Path, minilm: Path) -> None:
    _, own = loaded(models, "llama")
    with pytest.raises(MethodError, match="bert is bidirectional"):
        Encoder.load(minilm, token_prepending())
    with pytest.raises(NoSuchHead, match=r"carry=\[1, 4\]"):
        Encoder(own, token_prepending(stop=4))
    with pytest.raises(MethodError, match=r"'a \{text\}' has no <PST>"):
        Encoder(own, Method(Layout("a {text}"), States(), sight=Sight(carry=(1,))))
    with pytest.raises(MethodError, match="no text in the batch contains the placeholder"):
        own.forward(lay(Layout().write(["abc"], own.tokenizer)), sight=Sight(carry=(1,)))
    eager = Backbone(own.model, own.tokenizer, replace(own.facts, way="eager"), ())
    with pytest.raises(AttentionNotSeen, match="runs with its own attention, so no layer can be changed"):
        Encoder(eager, token_prepending())


def equation_5(eager: Eager, ids: list[int], last: int, couple: str) -> Tensor:
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
            wanted = equation_5(eager, ids, last, couple)[0]
            assert (state - wanted).abs().max() < 1e-5 * wanted.abs().max()


def test_nothing_of_a_second_stream_stays_behind(tmp_path: Path):
    backbone = load_backbone(tiny("llama", tmp_path))
    batch = batch_of(texts())
    hooks = lambda: sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in backbone.model.modules())  # noqa: E731
    with torch.no_grad():
        before, count = backbone.forward(batch).states[LAST], hooks()
        backbone.forward(batch, sight=Sight(1, couple="add"))
        assert hooks() == count
        assert torch.equal(backbone.forward(batch).states[LAST], before)


def test_layers_that_pass_keys_to_later_ones_have_no_second_stream(tmp_path: Path):
    backbone = load_backbone(write("gemma3n_text", tmp_path))
    with torch.no_grad(), pytest.raises(UnsupportedModel, match="couple='replace'"):
        backbone.forward(batch_of(texts()), sight=Sight(2, couple="add"))
    with torch.no_grad(), pytest.raises(UnsupportedModel, match="have the shape"):
        backbone.forward(batch_of(texts()), frozenset({1}))


@pytest.mark.parametrize(
    ("kind", "norm"), [("llama", "norm"), ("gpt2", "ln_f"), ("gpt_neox", "final_layer_norm"), ("gemma2", "norm")]
)
def test_the_stack_is_the_layers_and_the_norm_behind_them(kind: str, norm: str, tmp_path: Path):
    backbone = load_backbone(tiny(kind, tmp_path))
    stack, model = backbone.stack, backbone.model
    assert len(stack.layers) == 3 and stack.norm is getattr(model, norm)
    assert all(a in layer.modules() for a, layer in zip(backbone.modules, stack.layers, strict=True))
    assert model.config._attn_implementation == "afterword"  # type: ignore[union-attr]


def test_layers_that_are_one_module_cannot_be_taken_apart(tmp_path: Path):
    with pytest.raises(UnsupportedModel, match="AlbertModel"):
        _ = load_backbone(tiny("albert", tmp_path)).stack
