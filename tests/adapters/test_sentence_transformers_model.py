"""A model without a transformer, GloVe in small: word vectors and their mean, by sentence-transformers itself."""

from pathlib import Path

import numpy as np
import pytest

st = pytest.importorskip("sentence_transformers")

from sentence_transformers.sentence_transformer import modules  # noqa: E402
from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer  # noqa: E402

from afterword.adapters.sentence_transformers_model import SentenceTransformerModel  # noqa: E402

VECTORS = {"cat": [1.0, 0.0], "dog": [0.0, 1.0], "bank": [3.0, 3.0]}


def glove(folder: Path, vectors: dict[str, list[float]] = VECTORS) -> Path:
    tokenizer = WhitespaceTokenizer(list(vectors), stop_words=[])
    words = modules.WordEmbeddings(tokenizer, np.array(list(vectors.values()), np.float32))
    pooling = modules.Pooling(2, "mean")
    st.SentenceTransformer(modules=[words, pooling], device="cpu").save_pretrained(str(folder))
    return folder


def test_vectors_are_means_of_words(tmp_path: Path):
    model = SentenceTransformerModel(glove(tmp_path / "glove"), "cpu")
    assert model.encode(["cat dog", "cat cat bank"]).tolist() == [[0.5, 0.5], [pytest.approx(5 / 3), 1.0]]
    assert model.encode(["cat"]).dtype == np.float32


def test_the_identity_is_that_of_the_files(tmp_path: Path):
    one, same = glove(tmp_path / "a"), glove(tmp_path / "b")
    changed = glove(tmp_path / "c", {**VECTORS, "cat": [1.0, 0.5]})
    first, again, other = [SentenceTransformerModel(folder, "cpu").identity for folder in (one, same, changed)]
    assert first == again != other
