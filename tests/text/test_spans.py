import pytest

from afterword.errors import InputError
from afterword.text.placeholder import Placeholder
from afterword.text.spans import one_copy, ranges_of, room_of, tokens_of

PARTS = ["a ", Placeholder("*"), " ", None, "; ", None, "."]


def test_where_copies_and_placeholders_stand():
    assert ranges_of("xyz", PARTS) == [(4, 7), (9, 12)] and ranges_of("xyz", PARTS, Placeholder) == [(2, 3)]
    assert one_copy(PARTS) == [*PARTS[:4], "."]


def test_the_tokens_that_overlap():
    offsets = [(0, 2), (2, 2), (2, 5), (5, 6)]
    assert tokens_of(offsets, (1, 3)) == (0, 3) and tokens_of(offsets, (5, 6)) == (3, 4)
    assert tokens_of(offsets, (6, 9)) == (0, 0)


def test_the_room_of_each_copy():
    assert room_of(7, 2, 20) == 3
    with pytest.raises(InputError, match="max_length=20 leaves no room for 3 copies"):
        room_of(2, 3, 20)
