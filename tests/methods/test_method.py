import pytest
from tests.tiny import tiny

from afterword import Encoder, classical
from afterword.errors import MethodError


def test_two_methods_of_one_name_are_refused(tmp_path):
    encoder = Encoder.load(tiny("llama", tmp_path), classical())
    twins = [classical(), classical(pool_special_tokens=False)]
    with pytest.raises(MethodError, match="two methods are named 'classical mean last'"):
        encoder.encode_many(["a text"], twins)
    assert len(encoder.encode_many(["a text"], {"with": twins[0], "without": twins[1]})) == 2
