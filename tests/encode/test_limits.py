"""Batches of bounded size; truncated texts are counted, and said once; progress."""

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from afterword import Encoder, classical
from afterword.encode.limits import Budget, Limits, Truncation
from afterword.errors import InputError, ModelError, TextsUnknown
from afterword.text.segments import Segment, TokenizedText


@pytest.mark.parametrize(
    "options", [{"max_length": 0}, {"batch_size": -1}, {"batch_tokens": 1.5}, {"on_long": "cut"}, {"on_empty": "skip"}]
)
def test_limits_that_make_no_sense(options: dict) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        Limits(**options)


def test_texts_that_are_mostly_unknown_are_counted() -> None:
    def text(*ids: int) -> TokenizedText:
        return TokenizedText((Segment([1, *ids, 2], ((1, 1 + len(ids)),)),), kept=len(ids), total=len(ids))

    losses = Truncation(unknown_id=9)
    losses.note([text(9, 9), text(9, 5), text(9, 5, 5), text(), text(5)], Limits(), [[0, 4], [1], [2], [3], [5]])
    with pytest.warns(TextsUnknown, match="^3 texts"):
        losses.warn(Limits(on_long="error"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        losses.warn(Limits(on_long="ignore"))
        Truncation(texts=5, unknown_id=9).warn(Limits())


def test_every_way_of_embedding_warns_of_unknown_texts(minilm: Path) -> None:
    encoder, text = Encoder.load(minilm, classical()), "👍 👍 a"
    ways: list[Callable[[], object]] = [
        lambda: encoder.encode([text, "a"]),
        lambda: encoder.encode_many([text], [classical(), classical("last")]),
        lambda: encoder.encode_words([text], [["a"]]),
        lambda: encoder.encode_tokens([text]),
        lambda: encoder.encode_chunks([text], "sentences"),
        lambda: encoder.encode_chunks([text], "sentences", late=False),
    ]
    for way in ways:
        with pytest.warns(TextsUnknown, match="^1 text is mostly"):
            way()


@given(st.lists(st.integers(1, 30), max_size=20), st.integers(1, 40), st.one_of(st.none(), st.integers(1, 4)))
def test_batches_hold_everything_once(sizes: list[int], tokens: int, texts: int | None) -> None:
    batches = [batch for batch, _ in Budget(tokens, texts).batches(sizes, len)]
    assert sorted(i for b in batches for i in b) == list(range(len(sizes)))
    for batch in batches:
        assert sum(sizes[i] for i in batch) <= tokens or len(batch) == 1
        assert texts is None or len(batch) <= texts
    lengths = [sizes[i] for b in batches for i in b]
    assert lengths == sorted(lengths, reverse=True)


ERRORS = (
    torch.OutOfMemoryError("x"),
    MemoryError(),
    RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
)


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
def test_memory_that_runs_out_is_remembered_for_the_rest_of_the_run(error: Exception) -> None:
    """100 texts of 20 tokens at 1,000 tokens a forward, where 300 fit: two tries are too large, and no more."""
    ran: list[int] = []

    def run(indices: list[int]) -> list[int]:
        ran.append(20 * len(indices))
        if ran[-1] > 300:
            raise error
        return [10 * i for i in indices]

    budget, done = Budget(1000), {}
    for _ in range(2):  # two windows of one run
        for indices, made in budget.batches([20] * 50, run):
            done.update(zip(indices, made, strict=True))
    assert done == {i: 10 * i for i in range(50)}
    assert ran[:2] == [1000, 500] and max(ran[2:]) <= 250
    assert sum(ran[2:]) == 2 * 50 * 20


@pytest.mark.parametrize(
    ("error", "raised"),
    [(MemoryError(), (ModelError, "max_length")), (RuntimeError("shapes"), (RuntimeError, "shapes"))],
)
def test_one_text_that_does_not_fit_and_other_errors_are_raised(error: Exception, raised) -> None:
    def run(indices: list[int]) -> None:
        raise error

    with pytest.raises(raised[0], match=raised[1]):
        list(Budget(100).batches([3, 4], run))


def test_the_bar_counts_texts(capsys: pytest.CaptureFixture[str]) -> None:
    Encoder.load("afterword-mini").encode(["a", "b", "c"], show_progress_bar=True)
    seen = capsys.readouterr()
    assert "3/3" in seen.err and not seen.out
