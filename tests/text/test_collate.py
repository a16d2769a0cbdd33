import pytest
import torch
from tests.tiny import tiny_tokenizer

from afterword.text.batch import lay
from afterword.text.collate import from_features, to_features
from afterword.text.layout import Layout
from afterword.text.tokenizer import Tokenizer

TEXTS = ["The bank of the river.", "A bank for my money and for the money of others!", "dog", "a b"]


@pytest.mark.parametrize(
    "layout",
    [
        Layout(),
        Layout(copies=3),
        Layout("{text} or {text}."),
        Layout("for {text}"),
        Layout("for <PST> {text} <PST>"),
        Layout(copies=2, chunk=4),
    ],
)
@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_features_carry_the_whole_writing(layout: Layout, kind: str):
    tokenizer = Tokenizer(tiny_tokenizer(kind))
    writings = layout.write(TEXTS, tokenizer, 40)
    features = to_features(writings, 9)
    ids, mask = features["input_ids"], features["attention_mask"]
    assert (ids[mask == 0] == 9).all() and mask.sum(1).tolist() == [w.size for w in writings]
    again = from_features(ids, features["segments"])
    one, other = lay(writings), lay(again)
    assert torch.equal(one.tokens, other.tokens) and torch.equal(one.position, other.position)
    assert (one.source is None) == (other.source is None) and one.prefix == other.prefix
    for a, b in zip(one.groups, other.groups, strict=True):
        assert a.with_prefix == b.with_prefix
        for name in ("text", "spans", "special", "first", "part", "final"):
            assert torch.equal(getattr(a, name), getattr(b, name)), name
        assert (a.slots is None) == (b.slots is None) == (not layout.slots)
        assert a.slots is None or torch.equal(a.slots, b.slots)
