"""Promise 1 (right): a text's vector is what the Hugging Face model gives for it alone, whatever the text holds.

Its own tokenizer makes the ids and the mask; the formulas are those of tests/judge.py. Texts hold the spelling of every
special token, lists of ids hold the tokens themselves.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.judge import EXACT, FORMULAS, METHODS, Judge, Text, difference
from tests.zoo import write

from afterword import Encoder
from afterword.backbone.backbone import Backbone
from afterword.backbone.loading import load_backbone

KINDS = ["bert", "esm, token dropout", "gpt2", "llama", "roberta", "t5"]
NAMES = ["classical mean", "classical last", "echo mean", "prompt eol", "reba mean"]
SPECIAL = ["<s>", "</s>", "<pad>", "[MASK]", "<mask>", "[CLS]", "[SEP]", "<|endoftext|>"]
WORDS = ["a", "the ", " bank", "é", "学", "  ", "\n", "x1"]

strings = st.lists(st.sampled_from([*SPECIAL, *WORDS, " "]), min_size=1, max_size=12).map("".join)
numbers = st.lists(st.one_of(st.integers(0, 9), st.integers(10, 260)), min_size=1, max_size=12)


@lru_cache
def loaded(folder: Path, kind: str) -> tuple[Judge, Backbone]:
    write(kind, folder / kind)
    return Judge(folder / kind), load_backbone(folder / kind)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("one_text")


def agree(own: Judge, backbone: Backbone, name: str, text: Text) -> None:
    got = Encoder(backbone, METHODS[name]).encode([text])
    assert difference(got, FORMULAS[name](own, text).numpy()[None]) < EXACT, name


@pytest.mark.parametrize("kind", KINDS)
@examples(6)
@given(text=st.one_of(strings.filter(str.strip), numbers), name=st.sampled_from(NAMES))
def test_a_text_alone(models: Path, kind: str, text: Text, name: str) -> None:
    own, backbone = loaded(models, kind)
    if name != "reba mean" or backbone.facts.attention:
        agree(own, backbone, name, text)


@pytest.mark.parametrize("kind", KINDS)
def test_every_special_token_once(models: Path, kind: str) -> None:
    """The examples by which each was found: a text of one special token, and one of each between two words."""
    own, backbone = loaded(models, kind)
    texts: list[Any] = [f"a {t} b" for t in SPECIAL] + [[20, t, 30, t] for t in range(9)] + ["<pad>", [0], [1], [3]]
    for name in NAMES[:3]:
        got = Encoder(backbone, METHODS[name]).encode(texts)
        wanted = np.stack([FORMULAS[name](own, t).numpy() for t in texts])
        assert difference(got, wanted) < EXACT, name
