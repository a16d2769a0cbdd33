"""Late interaction by sentence-transformers' own class, with the vectors of `encode_tokens`."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.tiny import tiny

from afterword import Encoder, classical, reba
from afterword.backbone.loading import load_backbone
from afterword.errors import MissingExtra, ModelError
from afterword.post import Dense, FittedFlow, Glow, Truncate

library = pytest.importorskip("sentence_transformers", reason="the extra st is not installed")

from afterword.adapters.multi_vector import multi_vector_encoder  # noqa: E402


def test_its_vectors_are_those_of_tokens(tmp_path: Path):
    """Beside a longer text and a blank one; saved and loaded by sentence-transformers; MaxSim as it is written."""
    llama, texts = load_backbone(tiny("llama", tmp_path / "llama")), ["the bank of the river", "dog", "每个词"]
    if not hasattr(library, "MultiVectorEncoder"):
        with pytest.raises(MissingExtra, match="sentence-transformers>=6"):
            multi_vector_encoder(Encoder(llama, classical()))
        return
    for method in (classical(), reba()):
        encoder = Encoder(llama, method, (Dense(torch.eye(64)[:16]), Truncate(8)), prompts={"query": "q: "})
        theirs = multi_vector_encoder(encoder)
        theirs.save(str(tmp_path / method.name))
        again = library.MultiVectorEncoder(str(tmp_path / method.name), trust_remote_code=True, device="cpu")
        wanted = encoder.encode_tokens(texts, normalize_embeddings=True)
        for model in (theirs, again):
            for own, vectors in zip(wanted, model.encode([*texts, " "], batch_size=4)[:3], strict=True):
                np.testing.assert_allclose(vectors, own.vectors, rtol=0, atol=1e-6)
        query = encoder.encode_tokens("dog", prompt_name="query", normalize_embeddings=True).vectors
        scores = theirs.similarity(theirs.encode_query(["dog"]), theirs.encode_document(texts))
        maxsim = [float((query @ own.vectors.T).max(1).sum()) for own in wanted]
        np.testing.assert_allclose(scores[0], maxsim, rtol=0, atol=1e-5)
    with pytest.raises(ModelError, match="AfterwordTokens"):
        Encoder.load(tmp_path / "reba-2 last")
    with pytest.raises(ModelError, match="FittedFlow"):
        multi_vector_encoder(Encoder(llama, classical(), (FittedFlow(Glow(64, steps=1, hidden=2)),)))
