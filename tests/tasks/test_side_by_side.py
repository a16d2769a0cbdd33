"""What several methods retrieve, side by side."""

import numpy as np
import pytest

from afterword.errors import InputError
from afterword.tasks.captions import Captions
from afterword.tasks.side_by_side import Retrieved, markdown, side_by_side

CAPTIONS = Captions.of(["a.jpg", "b.jpg"], [["a dog", "the dog"], ["a | cat", "the\ncat"]])
GOOD = np.array([[1, 0], [1, 0.1], [0, 1], [0.1, 1]])
BAD = np.array([[1, 0], [0.1, 1], [0.9, 0.1], [0, 1]])


def test_rows_by_query_method_and_rank() -> None:
    rows = side_by_side(CAPTIONS, {"good": GOOD, "bad": BAD}, ["b.jpg", "a.jpg"], k=2)
    assert rows == [
        Retrieved("b.jpg", "a | cat", "good", 1, "the\ncat", True),
        Retrieved("b.jpg", "a | cat", "good", 2, "the dog", False),
        Retrieved("b.jpg", "a | cat", "bad", 1, "a dog", False),
        Retrieved("b.jpg", "a | cat", "bad", 2, "the dog", False),
        Retrieved("a.jpg", "a dog", "good", 1, "the dog", True),
        Retrieved("a.jpg", "a dog", "good", 2, "the\ncat", False),
        Retrieved("a.jpg", "a dog", "bad", 1, "a | cat", False),
        Retrieved("a.jpg", "a dog", "bad", 2, "the dog", True),
    ]


def test_as_markdown() -> None:
    rows = side_by_side(CAPTIONS, {"good": GOOD, "bad": BAD}, ["b.jpg", "a.jpg"], k=1)
    assert markdown(rows) == (
        "Query: a \\| cat\n\n|  | good | bad |\n| --- | --- | --- |\n| #1 | **the cat** | a dog |\n\n"
        "Query: a dog\n\n|  | good | bad |\n| --- | --- | --- |\n| #1 | **the dog** | a \\| cat |"
    )


def test_no_queries_no_rows() -> None:
    assert side_by_side(CAPTIONS, {"good": GOOD}, []) == [] and markdown([]) == ""


def test_what_is_refused() -> None:
    with pytest.raises(InputError, match=r"no image is named 'c.jpg': the first is 'a.jpg'"):
        side_by_side(CAPTIONS, {"good": GOOD}, ["c.jpg"])
    with pytest.raises(InputError, match="bad has 3 vectors for 4 captions"):
        side_by_side(CAPTIONS, {"good": GOOD, "bad": BAD[:3]}, ["a.jpg"])
    with pytest.raises(InputError, match="k=0: show at least 1 caption"):
        side_by_side(CAPTIONS, {"good": GOOD}, ["a.jpg"], k=0)
