"""A condition that cannot be used is told in one line, which shows nothing that the user did not write."""

import numpy as np
import pytest
from tests.index.rows import DIMENSION, info, reader

pytest.importorskip("lancedb")

from afterword.errors import DataError
from afterword.index.find import Asked, find
from afterword.index.index import Index


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return Index.create(tmp_path_factory.mktemp("a") / "i", reader(["x", "y"]), info(text_search=False))


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("yera > 3", "--where 'yera > 3': no column yera; there are id, doc, chunk, start, end, text"),
        (
            'id = "a b"',
            "no column a b; there are id, doc, chunk, start, end, text; a text stands in single quotes: 'a b'",
        ),
        ("chunk >", "--where 'chunk >' cannot be read: expected an expression, found its end"),
        ("id = 'O'Brien'", "a quote is not closed; two stand for one"),
        (" ", "--where ' ' is empty: write a condition"),
        ("chunk", "--where 'chunk' is no condition: compare with something"),
        ("chunk = 'a'", "is of another type than its column, Int64"),
        ("nope(chunk) > 1", "Invalid function 'nope'"),
        ("cast(text as int) > 1", "Cannot cast string 'x'"),
        ("regexp_match(text, '(')", "Regular expression did not compile"),
    ],
)
def test_each_mistake_is_named(index: Index, where: str, told: str):
    with pytest.raises(DataError) as caught:
        find(index, ["any"], np.ones((1, DIMENSION), np.float32), Asked(where=where))
    said = str(caught.value)
    assert told in said and "\n" not in said
    assert not any(
        inner in said for inner in ("SELECT", "cannot be searched", "/root", "lance", "hash", "Invalid input")
    )
