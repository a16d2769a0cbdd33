import numpy as np
import pytest
from tests.tiny import tiny

from afterword import Encoder, classical
from afterword.errors import InputError


def test_out_must_be_able_to_hold_vectors(tmp_path):
    encoder = Encoder.load(tiny("llama", tmp_path), classical())
    read_only = np.zeros((1, encoder.dimension), np.float32)
    read_only.setflags(write=False)
    for out in (np.zeros((1, encoder.dimension), np.int8), np.zeros((1, encoder.dimension), np.float16), read_only, []):
        with pytest.raises(InputError, match="float32 or float64 that can be written to"):
            encoder.encode(["a text"], out=out)
    for out, words in ((np.zeros((1, 8), np.float16), "an array of float16:"), (read_only, "cannot be written to:")):
        with pytest.raises(InputError, match=words):
            encoder.encode(["a text"], out=out)
    over = np.lib.stride_tricks.as_strided(np.zeros(2 * encoder.dimension), (2, encoder.dimension), (8, 8))
    with pytest.raises(InputError, match="rows that overlap in memory"):
        encoder.encode(["a text", "another"], out=over)
    for order in "CF":
        out = np.zeros((2, encoder.dimension), np.float32, order=order)
        assert np.array_equal(encoder.encode(["a text", "another"], out=out), encoder.encode(["a text", "another"]))
    wide = np.zeros((1, encoder.dimension))
    assert np.array_equal(encoder.encode(["a text"], out=wide), encoder.encode(["a text"]).astype(np.float64))
