"""The features of our sentence-transformers module, without that library."""

import numpy as np
import pytest
import torch
from tests.tiny import tiny

from afterword import Encoder, classical, echo, ensemble, prompt, reba
from afterword.backbone.loading import load_backbone
from afterword.encode.module_features import features_of, vectors_of
from afterword.errors import InputError

TEXTS = ["a bank of the river", "dog", "x" * 20]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory):
    return load_backbone(tiny("llama", tmp_path_factory.mktemp("features")))


@pytest.mark.parametrize("method", [reba(2), ensemble([echo(2), prompt("eol"), classical()], "concat")], ids=str)
def test_vectors_of_features_are_those_of_the_encoder(own, method) -> None:
    features = features_of(own, method, TEXTS, None, "ask: ", None)
    further = {name.partition(".")[2] for name in features} - {""}
    assert further == ({"1", "2"} if len(method.members) > 1 else set())
    with torch.no_grad():
        found = vectors_of(own, method, features, keep_mode=False)
    assert ("token_embeddings" in found) == (len(method.members) == 1)
    wanted = Encoder(own, method).encode(TEXTS, prompt="ask: ")
    assert np.abs(found["sentence_embedding"].numpy() - wanted).max() <= 2e-6 * np.abs(wanted).max()


def test_a_text_without_tokens_has_the_vector_zero_in_every_method(own) -> None:
    method = ensemble([classical(add_special_tokens=False), prompt("eol"), reba(add_special_tokens=False)], "concat")
    features = features_of(own, method, ["dog", "", "cat"], None, None, None)
    assert features["blank"].tolist() == [False, True, False]
    with torch.no_grad():
        found = vectors_of(own, method, features, keep_mode=False)["sentence_embedding"]
    assert (found[1] == 0).all() and (found[[0, 2]] != 0).all()
    assert features_of(own, method, ["", ""], None, None, None)["blank"].all()
    with pytest.raises(InputError, match="text 1 holds token id 99999"):
        features_of(own, method, ["dog", [99999]], None, None, None)
    with pytest.raises(InputError, match=r"has no \{condition\}"):
        features_of(own, method, ["dog"], ["size"], None, None)


def test_conditions_go_to_the_methods_that_have_a_place_for_them(own) -> None:
    method = ensemble([prompt("csts"), classical()])
    features = features_of(own, method, ["dog"], ["size"], None, None)
    with torch.no_grad():
        found = vectors_of(own, method, features, keep_mode=False)["sentence_embedding"].numpy()
    wanted = Encoder(own, method).encode(["dog"], conditions=["size"])
    assert np.abs(found - wanted).max() <= 2e-6 * np.abs(wanted).max()
