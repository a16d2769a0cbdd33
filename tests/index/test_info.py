"""What an index was made by comes back from its metadata as it was written."""

import numpy as np
import pytest
from tests.index.rows import PROBES, info

from afterword.errors import DataError
from afterword.index.info import FORMAT, IndexInfo, Recall, to_field

MEASURED = Recall(0.973, 40, 10, 200, 120_000)


def as_bytes(notes: dict[str, str]) -> dict[bytes, bytes]:
    return {name.encode(): value.encode() for name, value in notes.items()}


def test_it_comes_back_as_it_was_written():
    given = info(chunking="256 late", query_prompt_name="query", language="Chinese", text_search=False, prompt="p: ")
    found = IndexInfo.from_schema(as_bytes(given.to_schema()), as_bytes(to_field(MEASURED)))
    assert np.array_equal(found.probes, PROBES)
    assert {**vars(found), "probes": 0, "measured": 0} == {**vars(given), "probes": 0, "measured": 0}
    assert (found.recall, found.nprobes, found.refine) == (0.973, 40, 10)


def test_before_the_first_measurement_there_is_no_recall():
    found = IndexInfo.from_schema(as_bytes(info().to_schema()), None)
    assert (found.measured, found.recall, found.nprobes, found.refine) == (None, None, None, None)


def test_a_newer_format_is_refused():
    with pytest.raises(DataError, match=f"has format {FORMAT + 1}"):
        IndexInfo.from_schema(as_bytes(info(format=FORMAT + 1).to_schema()), None)
