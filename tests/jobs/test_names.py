"""Messages name the options of the command line."""

import pytest

from afterword.errors import TooLong
from afterword.jobs import VECTOR
from afterword.jobs.names import reasons_with_options, with_options


def test_arguments_become_options():
    assert with_options("lower max_length=9") == "lower --max-length 9"
    assert with_options("'max_length' is a word") == "'max_length' is a word" and VECTOR == "vector"


def test_the_reason_of_a_rejected_row():
    with pytest.raises(TooLong, match="raise --max-length"), reasons_with_options():
        raise TooLong("raise max_length")
