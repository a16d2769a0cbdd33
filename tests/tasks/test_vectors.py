"""Each text is embedded once for all methods of a forward pass."""

from collections.abc import Callable

import numpy as np
import pytest

from afterword.post import Normalise, Truncate
from afterword.tasks.vectors import CachedEmbedder, VectorCache


class Counting:
    """Two methods' vectors of a text: its length and first letter, and the same doubled."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, texts: list[str], told: Callable[[int], object]) -> dict[str, np.ndarray]:
        self.seen += texts
        told(2 * len(texts))
        found = np.array([[len(t), ord(t[0])] for t in texts], np.float32)
        return {"one": found, "two": 2 * found}


def test_each_text_is_run_once_for_all_methods_of_a_forward():
    run, told = Counting(), []
    forward = VectorCache(("one", "two"), run)
    forward.add(["bb", "a", "bb"], told.append)
    assert forward.missing(["a", "ccc", "ccc"]) == ["ccc"]
    assert forward.vectors("two", ["ccc", "a", "ccc"]).tolist() == [[6, 198], [2, 194], [6, 198]]
    assert forward.vectors("one", ["bb"]).tolist() == [[2, 98]]
    assert run.seen == ["bb", "a", "ccc"] and told == [4]
    forward.keep(["bb"])
    assert forward.missing(["a", "bb"]) == ["a"]


def test_a_run_that_fails_leaves_its_window_out():
    def run(texts: list[str], told: Callable[[int], object]) -> dict[str, np.ndarray]:
        if "bad" in texts:
            raise ValueError("bad")
        return {"one": np.ones((len(texts), 1), np.float32)}

    forward = VectorCache(("one",), run)
    forward.add(["good"])
    with pytest.raises(ValueError, match="bad"):
        forward.add(["good", "bad"])
    assert forward.missing(["good", "bad"]) == ["bad"]


class Whole:
    prompts = {"query": "q: "}  # noqa: RUF012

    def encode(self, texts, /, **options):
        return [options, list(texts)]

    def encode_words(self, texts, words, /):
        return [list(texts), list(words)]


def test_a_lookup_applies_the_steps_and_hands_on_what_is_not_plain():
    cache = VectorCache(("one", "two"), Counting())
    lookup = CachedEmbedder(Whole(), cache, "one", (Truncate(1), Normalise()))
    assert lookup.encode(["bb", "a"]).tolist() == [[1], [1]]
    assert lookup.encode(["a"], conditions=["c"]) == [{"conditions": ["c"]}, ["a"]]
    assert lookup.encode(["a"], prompt_name="query") == [{"prompt_name": "query"}, ["a"]]
    assert lookup.encode_words(["a b"], ["b"]) == [["a b"], ["b"]]
    assert (lookup.prompts, lookup.similarity_fn_name) == ({"query": "q: "}, "cosine")
