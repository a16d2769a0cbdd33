"""What is asked of `encode` beside its texts: followed, or refused by name."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import torch
from tests.tiny import tiny

from afterword import Encoder, classical
from afterword.errors import InputError

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


def test_tensors_are_ordinary_ones(llama) -> None:
    for found in (llama.encode(TEXTS, convert_to_tensor=True), llama.encode(TEXTS, convert_to_numpy=False)[0]):
        assert not found.is_inference()
        found.add_(1.0).requires_grad_(True)
        found.sum().backward()


@pytest.mark.parametrize("precision", ["int8", "uint8", "binary", "ubinary"])
def test_precisions_are_theirs(llama, precision: str) -> None:
    theirs = llama.sentence_transformer()
    ours, wanted = (model.encode(TEXTS, precision=precision) for model in (llama, theirs))
    assert ours.dtype == wanted.dtype and ours.shape == wanted.shape
    assert (ours == st.quantize_embeddings(llama.encode(TEXTS), precision=precision)).all()
    tensor = llama.encode(TEXTS, precision=precision, convert_to_tensor=True)
    assert tensor.dtype == torch.from_numpy(wanted).dtype and (tensor.numpy() == ours).all()
    if "binary" in precision:
        assert (llama.encode("dog", precision=precision) == ours[1]).all()
    else:
        for one in ("dog", ["dog"]):
            with pytest.raises(InputError, match=f"'{precision}'"):
                llama.encode(one, precision=precision)


def test_nothing_is_quantised_with_empty_texts_in_it(llama) -> None:
    with pytest.raises(InputError, match="precision='int8'"):
        llama.encode(["dog", "", "cat"], precision="int8", on_empty="nan")
