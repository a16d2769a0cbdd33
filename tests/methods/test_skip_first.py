"""Means without the sequence's first token, which is an attention sink in many decoders."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.agreement import close
from tests.eager import EOL
from tests.tiny import tiny

from afterword import Encoder, classical, prompt

TEXTS = [[10, 20, 30, 40], [50], [60, 70, 80]]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    return Encoder.load(tiny("llama", tmp_path_factory.mktemp("llama")), "classical")


@pytest.mark.parametrize("special", [True, False])
def test_sentences(encoder: Encoder, special: bool) -> None:
    """<s> is the first token; without special tokens it is the text's, and the text of one token keeps it."""
    vectors = Encoder(encoder.backbone, classical(skip_first=True, add_special_tokens=special)).encode(TEXTS)
    weighted = Encoder(encoder.backbone, classical("weighted", skip_first=True, add_special_tokens=special))
    for text, vector, by_position in zip(TEXTS, vectors, weighted.encode(TEXTS), strict=True):
        rows = own_states(encoder, [1, *text] if special else text)
        kept = rows[1:] if len(rows) > 1 else rows
        assert close(vector, kept.mean(0), 1e-5)
        numbers = np.arange(1, len(rows) + 1)[-len(kept) :]
        assert close(by_position, np.average(kept, 0, numbers), 1e-5)


def test_words(encoder: Encoder) -> None:
    """A word loses the first token; one that is nothing else keeps it."""
    method = classical(skip_first=True, add_special_tokens=False)
    words = Encoder(encoder.backbone, method).encode_words(TEXTS[:1], [[(0, 3), (0, 1), (1, 3)]])[0]
    rows = own_states(encoder, TEXTS[0])
    for word, expected in zip(words, [rows[1:3].mean(0), rows[0], rows[1:3].mean(0)], strict=True):
        assert close(word, expected, 1e-5)


def test_chunks(encoder: Encoder) -> None:
    """The chunk that begins the text loses its first token."""
    text, method = "it is late", classical(skip_first=True, add_special_tokens=False)
    ids = encoder.backbone.tokenizer.hf(text, add_special_tokens=False).input_ids
    assert len(ids) == len(text)
    with pytest.warns(UserWarning, match="causal"):
        chunks = Encoder(encoder.backbone, method).encode_chunks([text], [[(0, 5), (5, 10)]])[0]
    rows = own_states(encoder, ids)
    for vector, (start, end) in zip(chunks.vectors, [(1, 5), (5, 10)], strict=True):
        assert close(vector, rows[start:end].mean(0), 1e-5)


def test_prompts(encoder: Encoder) -> None:
    """With special tokens pooled, the mean is over all tokens of the prompt but <s>."""
    front, back = (encoder.backbone.tokenizer.hf(part, add_special_tokens=False).input_ids for part in EOL)
    method = prompt(pool="mean", pool_special_tokens=True, skip_first=True)
    for text, vector in zip(TEXTS, Encoder(encoder.backbone, method).encode(TEXTS), strict=True):
        assert close(vector, own_states(encoder, [1, *front, *text, *back])[1:].mean(0), 1e-5)


def own_states(encoder: Encoder, ids: list[int]) -> np.ndarray:
    with torch.no_grad():
        model = encoder.backbone.model
        model.set_attn_implementation("eager")
        try:
            return model(torch.tensor([ids])).last_hidden_state[0].numpy()
        finally:
            model.set_attn_implementation("afterword")
