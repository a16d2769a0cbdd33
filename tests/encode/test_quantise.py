from __future__ import annotations

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


@pytest.fixture(scope="module")
def theirs(llama: Encoder):
    return llama.sentence_transformer()


@pytest.mark.parametrize("precision", ["int8", "uint8", "binary", "ubinary"])
def test_precisions_are_theirs(llama, theirs, precision: str) -> None:
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
    with pytest.raises(InputError, match="NaN has no int8"):
        llama.encode(["dog", "", "cat"], precision="int8", on_empty="nan")
