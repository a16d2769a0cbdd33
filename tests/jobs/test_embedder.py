"""Texts to vectors by several methods at once: those of `encode_many`."""

from pathlib import Path

import numpy as np

from afterword import Encoder, classical, echo
from afterword.jobs.recipe import MethodsEmbedder


def test_vectors_by_name_and_the_progress(llama: Path) -> None:
    encoder, seen = Encoder.load(llama, classical()), list[float]()
    embedder = MethodsEmbedder(encoder, {"classical": classical(), "echo": echo()})
    found = embedder(["a", "b c"], on_progress=seen.append)
    assert sum(seen) == 2 and list(found) == ["classical", "echo"]
    for name, method in embedder.methods.items():
        assert np.array_equal(found[name], Encoder(encoder.backbone, method).encode(["a", "b c"]))
