"""What is held in memory does not grow with the input."""

from afterword.jobs.rows import Item, windows


def test_windows_hold_so_many_rows_and_so_many_characters():
    items = [Item(i, "x" * size) for i, size in enumerate([1, 1, 1, 50, 1, 99, 1])]
    assert [len(w) for w in windows(items, rows=3, characters=60)] == [3, 3, 1]
    assert [len(w) for w in windows(items, rows=100, characters=50)] == [4, 2, 1]
    assert list(windows([])) == []
