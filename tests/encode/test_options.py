"""What is asked of `encode` beside its texts: followed, or refused by name."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import torch
from tests.tiny import tiny

from afterword import Encoder, classical, echo
from afterword.errors import InputError
from afterword.post import Dense, Normalise

st = pytest.importorskip("sentence_transformers")

TEXTS = ["a b", "dog", "The quick brown fox jumps over the lazy dog.", "dog", "世界"]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    return Encoder.load(tiny("llama", tmp_path_factory.mktemp("options")), classical())


@pytest.mark.parametrize("name", ["encode", "encode_query", "encode_document"])
def test_their_arguments_in_their_order(llama, name: str) -> None:
    """The first may be called what it is called there, or was."""
    wanted = [p for p in inspect.signature(getattr(st.SentenceTransformer, name)).parameters.values() if p.kind != 4]
    ours = list(inspect.signature(Encoder.encode).parameters.values())
    assert [p.name for p in ours[2 : len(wanted)]] == [p.name for p in wanted[2:]]
    assert all(p.kind == p.POSITIONAL_OR_KEYWORD for p in ours[: len(wanted)])
    call = getattr(llama, name)
    by_position = call(TEXTS, None, None, 2, False, "sentence_embedding", "float32", True, False, "cpu", True, 8)
    assert by_position.shape == (5, 8) and np.allclose(np.linalg.norm(by_position, axis=1), 1)
    assert (call(inputs=TEXTS) == call(sentences=TEXTS)).all() and (call(TEXTS) == call(texts=TEXTS)).all()


def test_its_own_device_is_no_other(llama) -> None:
    for device in ("cpu", torch.device("cpu"), "cpu:0", None):
        assert (llama.encode("dog", device=device) == llama.encode("dog")).all()


def test_tensors_are_ordinary_ones(llama) -> None:
    for found in (llama.encode(TEXTS, convert_to_tensor=True), llama.encode(TEXTS, convert_to_numpy=False)[0]):
        assert not found.is_inference()
        found.add_(1.0).requires_grad_(True)
        found.sum().backward()


def test_width_needs_no_vector(llama) -> None:
    narrow = Encoder(llama.backbone, echo(), (Dense(torch.ones(5, 64)), Normalise()))
    assert narrow.dimension == 5
    narrow.post = ()
    assert narrow.dimension == 64, "what it was asked before must not be kept"


@pytest.mark.parametrize("name", ["normalize_embeddings", "convert_to_tensor", "convert_to_numpy", "show_progress_bar"])
def test_a_word_is_no_switch(llama, name: str) -> None:
    with pytest.raises(InputError, match=f"{name}='no'.*True"):
        llama.encode(["a"], **{name: "no"})


def test_one_argument_under_two_names(llama) -> None:
    for given in ((["a"],), ()):
        options = {"inputs": ["b"]} if given else {"inputs": ["b"], "texts": ["a"]}
        with pytest.raises(InputError, match="inputs"):
            llama.encode(*given, **options)
    assert (llama.encode(inputs=["b"]) == llama.encode(["b"])).all()
