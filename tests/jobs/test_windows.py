"""What is held in memory does not grow with the input."""

import warnings

from afterword.errors import TextsUnknown
from afterword.jobs.items import Item
from afterword.jobs.windows import unknown_texts, windows


def test_windows_hold_so_many_rows_and_so_many_characters():
    items = [Item(i, "x" * size) for i, size in enumerate([1, 1, 1, 50, 1, 99, 1])]
    assert [len(w) for w in windows(items, rows=3, characters=60)] == [3, 3, 1]
    assert [len(w) for w in windows(items, rows=100, characters=50)] == [4, 2, 1]
    assert list(windows([])) == []


def test_texts_that_the_model_does_not_know_are_counted_and_still_told_of():
    given: list[Warning] = [TextsUnknown(3), UserWarning("other"), TextsUnknown(2)]
    with warnings.catch_warnings(record=True) as told, unknown_texts() as numbers:
        warnings.simplefilter("always")
        for one in given:
            warnings.warn(one, stacklevel=1)
    assert numbers == [3, 2] and [one.message for one in told] == given
