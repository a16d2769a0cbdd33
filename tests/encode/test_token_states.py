"""Every token's state, as sentence-transformers hands them out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.tiny import tiny

from afterword import Encoder, classical, prompt, reba
from afterword.errors import InputError
from afterword.post import Normalise

pytest.importorskip("sentence_transformers")

TEXTS = ["a b", "dog", "The quick brown fox jumps over the lazy dog.", "dog", "世界"]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    return Encoder.load(tiny("llama", tmp_path_factory.mktemp("tokens")), classical())


@pytest.fixture(scope="module")
def theirs(llama: Encoder):
    return llama.sentence_transformer()


def test_token_embeddings_are_theirs(llama, theirs) -> None:
    ours, wanted = (model.encode(TEXTS, output_value="token_embeddings") for model in (llama, theirs))
    for a, b in zip(ours, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=2e-5)
        assert a._base is None and not a.is_inference()
    torch.testing.assert_close(llama.encode("dog", output_value="token_embeddings"), ours[1], rtol=0, atol=2e-5)
    alone = llama.encode(TEXTS, output_value="token_embeddings", batch_size=1)[2]
    torch.testing.assert_close(alone, ours[2], rtol=0, atol=2e-5)


def test_everything_of_a_text(llama) -> None:
    encoder = Encoder(llama.backbone, reba(2), (Normalise(),))
    found = encoder.encode(TEXTS, output_value=None, truncate_dim=8)
    assert found[1]["input_ids"].tolist() == [1, *llama.tokenizer("dog", add_special_tokens=False)["input_ids"] * 2]
    assert found[1]["attention_mask"].tolist() == [1] * 7 and found[1]["token_embeddings"].shape == (7, 64)
    vectors = torch.stack([one["sentence_embedding"] for one in found])
    np.testing.assert_allclose(vectors, encoder.encode(TEXTS, truncate_dim=8), rtol=0, atol=1e-6)
    conditioned = Encoder(llama.backbone, prompt("csts")).encode(["a"], output_value=None, conditions=["size"])
    assert conditioned[0]["sentence_embedding"].shape == (64,)


def test_tokens_of_texts_that_cannot_be_used(llama) -> None:
    with pytest.raises(InputError, match="text 1 is blank"):
        llama.encode(["dog", " "], output_value="token_embeddings")
    with pytest.raises(InputError, match="into chunks"):
        Encoder(llama.backbone, reba(2, chunk=4)).encode(["dog"], output_value="token_embeddings")
    short = Encoder(llama.backbone, classical(), max_length=5)
    with pytest.warns(UserWarning, match="1 of 1 text truncated"):
        assert len(short.encode("d" * 9, output_value="token_embeddings")) == 5
