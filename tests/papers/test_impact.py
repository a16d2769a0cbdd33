"""The impact matrix: the authors' own (LividWo's get_dep_matrix) and Ditto's formula, by arrays of theirs."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from tests.tiny import tiny

from afterword import Encoder, Method, bellm, classical, echo, prompt
from afterword.encode.limits import Limits
from afterword.errors import InputError, MethodError, NoMaskToken
from afterword.papers.impact import impact


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-5), ("float64", 1e-10)])
def test_the_authors_matrices(oracle: Path, dtype: str, tolerance: float):
    wanted = np.load(oracle / "perturbed_masking.npz")
    encoder = Encoder.load(oracle / "models" / "bert", classical(), dtype=dtype)
    for s, text in enumerate(wanted["sentences"]):
        matrix = wanted[f"{dtype}/token_level/last_s{s}"]
        found = impact(encoder, str(text))
        assert np.abs(found.matrix - matrix).max() < tolerance * matrix.max()
        assert found.tokens[0] == "[CLS]" and found.content == (1, len(matrix) - 1)
        content = wanted[f"{dtype}/token_level/last_content_s{s}"]
        assert np.abs(found.matrix[1:-1, 1:-1] - content).max() < tolerance * content.max()
        columns = wanted[f"{dtype}/token_level/colmean_content_s{s}"]
        assert np.abs(found.columns - columns).max() < tolerance * columns.max()
        for layer in (0, 2, 4):  # here every word is one token: whole words masked or tokens is the same
            whole = wanted[f"{dtype}/wholeword_authors/layer{layer}_s{s}"]
            of_layer = impact(Encoder(encoder.backbone, classical(states=f"layer:{layer}")), str(text))
            assert np.abs(of_layer.matrix - whole).max() <= tolerance * max(whole.max(), 1), layer


def test_without_special_tokens_in_small_batches_and_of_one_token(tmp_path: Path):
    encoder = Encoder.load(tiny("bert", tmp_path), classical(add_special_tokens=False))
    whole, small = impact(encoder, "a thin line"), impact(encoder, "a thin line", limits=Limits(batch_size=3))
    assert whole.content == (0, len(whole.tokens)) and (np.diag(whole.matrix) == 0).all()
    assert (whole.matrix == small.matrix).all() and (whole.matrix + np.eye(len(whole.tokens)) > 0).all()
    assert impact(encoder, "a").matrix.tolist() == [[0.0]]
    assert whole.to_json()["content"] == [0, len(whole.tokens)]


def test_what_cannot_be_masked(tmp_path: Path):
    bert = Encoder.load(tiny("bert", tmp_path / "bert"), classical(), max_length=8)
    llama = Encoder.load(tiny("llama", tmp_path / "llama"), classical())
    with pytest.raises(NoMaskToken, match=r"llama has no \[MASK\]"):
        impact(llama, "a")
    for method in (echo(), prompt("promptbert"), bellm(1, template=None)):
        with pytest.raises(MethodError, match="the text alone; use classical"):
            impact(made(bert, method), "a")
    with pytest.raises(InputError, match="9 tokens with special ones, 7 without: give 1 to 8"):
        impact(bert, "abcdefg")
    with pytest.raises(InputError, match="give 1 to 8"):
        impact(bert, "")


def made(encoder: Encoder, method: Method) -> Encoder:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # bellm changes nothing on an encoder
        return Encoder(encoder.backbone, method)
