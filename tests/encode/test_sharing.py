import numpy as np
import pytest
from tests.tiny import tiny

from afterword import Encoder, bellm, classical, echo, prompt, reba
from afterword.backbone.loading import load_backbone
from afterword.encode.sentences import shares


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory):
    return load_backbone(tiny("gpt2", tmp_path_factory.mktemp("run")))


def grouped(methods, own) -> list[list[int]]:
    return sorted(sorted(s.methods) for s in shares(methods, own))


def test_copies_share_on_a_causal_model(own) -> None:
    methods = [classical(), echo(2), reba(3), prompt("eol"), bellm(), reba(2, chunk=4)]
    assert own.tokenizer.suffix == []
    assert grouped(methods, own) == [[0, 1, 2], [3], [4], [5]]
    assert next(s for s in shares(methods, own) if 0 in s.methods).layout.copies == 3


def test_special_tokens_keep_apart(own) -> None:
    assert grouped([classical(), classical(add_special_tokens=False)], own) == [[0], [1]]


def test_equal_layouts_share_on_any_model(tmp_path) -> None:
    bert = load_backbone(tiny("bert", tmp_path))
    assert grouped([classical(), classical("cls"), reba(2), reba(2, "mean"), prompt("eol")], bert) == [
        [0, 1],
        [2, 3],
        [4],
    ]


@pytest.mark.parametrize("kind", ["phi3", "llama dynamic"])
def test_copies_share_no_forward_where_rotary_frequencies_know_the_length(kind, tmp_path) -> None:
    """Both kinds turn to other frequencies beyond 24 tokens: two copies of a text of 15 do, one does not."""
    encoder = Encoder.load(tiny(kind, tmp_path), classical())
    methods, text = {"one": classical(), "two": echo(2), "also two": reba(2)}, "a text of 15 to"
    assert grouped(list(methods.values()), encoder.backbone) == [[0], [1, 2]]
    many = encoder.encode_many([text], methods)
    for name, method in methods.items():
        alone = Encoder(encoder.backbone, method).encode([text])
        np.testing.assert_allclose(many[name], alone, rtol=0, atol=2e-6 * np.abs(alone).max())
