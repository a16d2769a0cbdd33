"""Late chunking by its authors' code (jina-ai/late-chunking@db558c3), through the public API."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.tiny import tiny_tokenizer
from transformers import AutoModel

from afterword import Encoder, classical
from afterword.backbone.self_check import check
from afterword.text.tokenizer import Tokenizer


def test_chunks_are_the_authors(shared: Path):
    folder = shared / "oracle_methods"
    with np.load(folder / "single_pass.npz") as arrays:
        wanted = {name: arrays[f"late_chunking/{name}"] for name in ("states", "spans", "chunks")}
    ids = json.loads((folder / "contrastive_prompting_ids.json").read_text())["normal"][2]
    model = AutoModel.from_pretrained(folder / "llama_tp", attn_implementation="afterword", dtype="float32").eval()
    encoder = Encoder(check(model, Tokenizer(tiny_tokenizer("llama"))), classical(add_special_tokens=False))
    with pytest.warns(UserWarning, match="llama is causal"):
        (found,) = encoder.encode_chunks([ids], [wanted["spans"]])
    assert found.spans == [tuple(span) for span in wanted["spans"].tolist()]
    scale = np.abs(wanted["states"]).max()
    assert np.abs(found.vectors - wanted["chunks"]).max() <= 2e-5 * scale
    (tokens,) = encoder.encode_tokens([ids])
    assert np.abs(tokens.vectors - wanted["states"]).max() <= 2e-5 * scale
    assert tokens.spans == [(i, i + 1) for i in range(len(ids))]
