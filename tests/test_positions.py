import pytest
from tests.tiny import VOCABULARY, tiny_model
from torch import nn

from afterword.anatomy import position_offset
from afterword.positions import skipped_token


@pytest.mark.parametrize(
    ("kind", "token"), [("roberta", 1), ("camembert", 1), ("bert", None), ("llama", None), ("t5", None)]
)
def test_the_token_that_takes_no_position_is_found(kind: str, token: int | None):
    model = tiny_model(kind)
    assert skipped_token(model, position_offset(model), [None, -1, 0, 1, 2, 3, VOCABULARY]) == token
    assert skipped_token(model, position_offset(model), [0, 2, None]) is None


def test_a_model_without_a_table_of_tokens_says_nothing():
    model = tiny_model("bert")
    model.set_input_embeddings(nn.Identity())
    assert skipped_token(model, 2, [1]) is None
