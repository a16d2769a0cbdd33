from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfTransformer
from tests.tiny import tiny

from afterword import Encoder, classical
from afterword.errors import MethodError, NotFitted
from afterword.methods import remove_biases, sif, tfidf
from afterword.methods.frequency import TfIdf

TEXTS = ["the bank of the river", "the bank", "a cat sat", "the rat ran to the bank", "dog"]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    return Encoder.load(tiny("bert", tmp_path_factory.mktemp("bert")), classical())


@pytest.fixture(scope="module")
def mini() -> Encoder:
    return Encoder.load("afterword-mini", classical())


def ids(encoder: Encoder, texts: list[str]) -> list[list[int]]:
    return encoder.backbone.tokenizer.ids(texts)


def test_idf_is_sklearns_smooth_one_less_its_one(bert: Encoder):
    rows = np.zeros((5, 300))
    for row, text in zip(rows, ids(bert, TEXTS), strict=True):
        np.add.at(row, text, 1)
    theirs = (TfidfTransformer(smooth_idf=True).fit(rows).idf_ - 1) / np.log(2)
    theirs[list(range(6))] = 0  # special tokens
    weigh = TfIdf().fit(TEXTS, bert.backbone.tokenizer, 300)
    assert isinstance(weigh, TfIdf) and weigh.table is not None
    np.testing.assert_allclose(weigh.table.values, theirs, rtol=1e-6)


def test_a_vector_is_the_sum_of_tf_idf_and_states(mini: Encoder):
    encoder = Encoder(mini.backbone, tfidf("static")).fit(TEXTS)
    bank, the, dog = (encoder.backbone.tokenizer.ids([t])[0][0] for t in (" bank", " the", "dog"))
    table = encoder.method.weigh.table.values
    assert table[bank] == pytest.approx(np.log2(6 / 4)) and table[dog] == pytest.approx(np.log2(6 / 2))
    words = encoder.backbone.model.get_input_embeddings().weight.detach()
    found = encoder.encode([[bank, the, bank, dog]])[0]
    expected = 2 * np.log2(6 / 4) * words[bank] + table[the] * words[the] + np.log2(3) * words[dog]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    (word,) = encoder.encode_words([[bank, the]], [[(1, 2)]])
    np.testing.assert_allclose(word[0], table[the] * words[the], rtol=1e-5)
    mean = Encoder(mini.backbone, tfidf("static", pool="mean")).fit(TEXTS)
    np.testing.assert_allclose(mean.encode([[bank, the, bank, dog]])[0], expected / 4, rtol=1e-5, atol=1e-6)


def kept(encoder: Encoder, text: str) -> list[str]:
    tokens, weights = encoder.weights(text)
    return [token for token, weight in zip(tokens, weights, strict=True) if weight]


def test_what_biases_a_mean_is_removed(mini: Encoder):
    text = "Dogs bark, and unbelievably the moon is gone!"
    tokens = mini.backbone.tokenizer.tokens(ids(mini, [" " + text])[0])
    whole = [t for t in tokens if t.startswith("Ġ")]
    frequent = ["so and the the is"] * 9

    def left(**options: object) -> list[str]:
        return kept(Encoder(mini.backbone, remove_biases(**options)).fit(frequent), text)  # type: ignore[arg-type]

    none = {"frequent": 0, "subwords": False, "upper": False, "punctuation": False}
    assert left(**none) == tokens
    assert left(**{**none, "frequent": 1}) == [t for t in tokens if t != "Ġthe"]
    assert left(**{**none, "subwords": True}) == whole and len(whole) < len(tokens)
    assert left(**{**none, "upper": True}) == [t for t in tokens if t[-1] == t[-1].lower()]
    assert left(**{**none, "punctuation": True}) == [t for t in tokens if t not in (",", "!")]
    assert left() == [t for t in whole if t[-1] == t[-1].lower() and t not in ("Ġand", "Ġthe", "Ġis")]


def test_a_wordpiece_vocabulary_marks_what_continues_a_word(minilm: Path):
    encoder = Encoder(Encoder.load(minilm).backbone, remove_biases(frequent=2)).fit(["the man is the man", "the end"])
    assert kept(encoder, "Running unbelievably fast, the man said: 中文!") == [
        "running", "un", "fast", "said", "中", "文"
    ]  # fmt: skip
    states = encoder.backbone.model.get_input_embeddings().weight.detach()
    un, fast = encoder.backbone.tokenizer.hf.convert_tokens_to_ids(["un", "fast"])
    np.testing.assert_allclose(encoder.encode("unbelievably fast,"), (states[un] + states[fast]) / 2, atol=1e-6)


def test_where_nothing_is_left_all_tokens_count_alike(mini: Encoder):
    for method in (remove_biases(), tfidf("static", pool="mean")):
        encoder = Encoder(mini.backbone, method).fit(["the the"])
        _, weights = encoder.weights("the the")
        assert weights.tolist() == [0, 0.5, 0.5]
    assert np.isfinite(encoder.encode(["!", "the"])).all()


LETTERS = st.text("abcd é.", min_size=1).filter(str.strip)


@given(texts=st.lists(LETTERS, min_size=1, max_size=5), text=LETTERS, a=st.floats(1e-4, 10))
def test_sif_is_its_formula(mini: Encoder, texts: list[str], text: str, a: float):
    encoder = Encoder(mini.backbone, sif(a)).fit(texts)
    seen = [i for row in ids(mini, texts) for i in row]
    (row,) = ids(mini, [text])
    words = mini.backbone.model.get_input_embeddings().weight.detach().double().numpy()
    wanted = sum(a / (a + seen.count(i) / len(seen)) * words[i] for i in row) / len(row)
    np.testing.assert_allclose(encoder.encode(text), wanted, atol=2e-6 * np.abs(wanted).max())


@pytest.mark.parametrize("method", [tfidf(), sif(), remove_biases()], ids=str)
def test_before_it_is_fitted_it_is_refused(method, mini: Encoder):
    encoder = Encoder(mini.backbone, method)
    assert not encoder.fitted and encoder.fit(TEXTS).fitted and not encoder.fitted
    for call in (
        lambda: encoder.encode("a text"),
        lambda: encoder.encode_words("a text", ["text"]),
        lambda: encoder.weights("a text"),
        lambda: mini.encode_many(["a text"], [method, classical()]),
    ):
        with pytest.raises(NotFitted):
            call()


def test_a_table_of_another_vocabulary_is_refused(bert: Encoder, mini: Encoder):
    fitted = Encoder(bert.backbone, tfidf()).fit(TEXTS).method
    with pytest.raises(MethodError, match="300 ids"):
        Encoder(mini.backbone, fitted)
