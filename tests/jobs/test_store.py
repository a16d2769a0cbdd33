"""Rows are known again by their keys; what goes to a stream is written at once."""

import io
import json

import numpy as np

from afterword.jobs.items import Item
from afterword.jobs.rejects import Rejects
from afterword.jobs.store import RowsKey, StreamStore, Totals
from afterword.jobs.write_vectors import Block


def test_keys_find_the_first_row_that_differs():
    items = [Item(i, f"text {i}") for i in range(5)]
    key = RowsKey.of(items)
    assert RowsKey.of([Item(i, f"text {i}") for i in range(5)]) == key
    assert key.first_other(RowsKey.of(items[:3])) == 3
    assert key.first_other(RowsKey.of([*items[:2], Item(2, "text 2", beside="x"), *items[3:]])) == 2
    assert key != RowsKey.of([Item(0, "text 0", "is odd"), *items[1:]])


def test_values_that_json_does_not_know_are_part_of_a_key():
    keys = [RowsKey.of([Item(0, "a", beside=value)]).whole for value in ((1, 2), (1, 3), b"x", np.float32(1), None)]
    assert len(set(keys)) == len(keys)


def test_a_stream_gets_each_window_and_the_totals_count_rejected_rows():
    stream, told = io.BytesIO(), []
    with Rejects(None, told.append) as rejects:
        store = StreamStore(stream, rejects)
        items = [Item(1, "a"), Item(2, None, "is blank")]
        assert not store.has(0, 0, items)
        store.add(0, 0, items, Block({"text": ["a", None]}, {"vector": np.array([[1], [np.nan]], np.float32)}))
        assert [json.loads(line)["vector"] for line in stream.getvalue().splitlines()] == [[1], None]
        assert store.finish(1) == Totals(2, 1) and told == ["rejected: line 2: is blank"]
    assert store.kept().startswith("2 rows written to the standard output")
