import pytest
from tests.agreement import close
from tests.tiny import tiny

from afterword import Encoder, reba
from afterword.backbone.loading import load_backbone
from afterword.errors import InputError


@pytest.fixture(scope="module")
def backbone(tmp_path_factory: pytest.TempPathFactory):
    return load_backbone(tiny("llama", tmp_path_factory.mktemp("words")))


def test_shapes(backbone) -> None:
    encoder = Encoder(backbone, reba())
    one_each = encoder.encode_words(["a bank", "the bench"], ["bank", "bench"])
    assert one_each.shape == (2, encoder.dimension)
    lists = encoder.encode_words(["a bank", "the bench", "x"], [["a", "bank"], ["bench"], []])
    assert [r.shape[0] for r in lists] == [2, 1, 0]
    assert close(lists[0][1], one_each[0], 1e-5)
    assert encoder.encode_words("a bank", ["a", "bank"]).shape == (2, encoder.dimension)
    with pytest.raises(InputError, match="1 words for 2 texts"):
        encoder.encode_words(["a", "b"], ["a"])
