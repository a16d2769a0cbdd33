"""What an index was made by comes back from its metadata as it was written."""

import numpy as np
import pytest
from tests.index.rows import PROBES, info

from afterword.errors import DataError
from afterword.index.info import FORMAT, IndexInfo


def as_bytes(notes: dict[str, str]) -> dict[bytes, bytes]:
    return {name.encode(): value.encode() for name, value in notes.items()}


def test_it_comes_back_as_it_was_written():
    given = info(chunking="256 late", query_prompt_name="query", language="Chinese", text_search=False, prompt="p: ")
    found = IndexInfo.from_schema(as_bytes(given.to_schema()))
    assert np.array_equal(found.probes, PROBES)
    assert {**vars(found), "probes": 0} == {**vars(given), "probes": 0}


def test_a_newer_format_is_refused():
    with pytest.raises(DataError, match=f"has format {FORMAT + 1}"):
        IndexInfo.from_schema(as_bytes(info(format=FORMAT + 1).to_schema()))
