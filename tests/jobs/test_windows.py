"""What is held in memory does not grow with the input."""

import numpy as np
import pytest

from afterword.errors import TooLong
from afterword.jobs.items import Item
from afterword.jobs.windows import bisected, windows


def test_windows_hold_so_many_rows_and_so_many_characters():
    items = [Item(i, "x" * size) for i, size in enumerate([1, 1, 1, 50, 1, 99, 1])]
    assert [len(w) for w in windows(items, rows=3, characters=60)] == [3, 3, 1]
    assert [len(w) for w in windows(items, rows=100, characters=50)] == [4, 2, 1]
    assert list(windows([])) == []


def test_refused_texts_are_found_by_halves():
    calls = []

    def encode(items):
        calls.append(len(items))
        if any(item.text == "long" for item in items):
            raise TooLong("text 0 has 9 tokens")
        return {"vector": np.array([[item.line] for item in items], np.float32)}

    items = [Item(i, "long" if i in (3, 11) else "short") for i in range(16)]
    made, why = bisected(encode, items, {"vector": np.zeros((0, 1), np.float32)})
    assert [i for i, reason in enumerate(why) if reason] == [3, 11] and why[3] == "has 9 tokens"
    assert made["vector"][:, 0].tolist() == pytest.approx(
        [i if i not in (3, 11) else np.nan for i in range(16)], nan_ok=True
    )
    assert len(calls) < 20
