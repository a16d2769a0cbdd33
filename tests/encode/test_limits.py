"""How much at a time; what was cut is said once."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from afterword.encode.limits import Budget, Cuts, Limits, out_of_memory
from afterword.errors import InputError, ModelError, TooLong
from afterword.text.segments import Writing


@pytest.mark.parametrize(
    "options", [{"max_length": 0}, {"batch_size": -1}, {"batch_tokens": 1.5}, {"on_long": "cut"}, {"on_empty": "skip"}]
)
def test_limits_that_make_no_sense(options: dict) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        Limits(**options)


def test_a_budget_by_device() -> None:
    assert Limits(batch_tokens=7).tokens(torch.device("cpu")) == 7
    assert Limits().tokens(torch.device("cuda")) > Limits().tokens(torch.device("cpu"))


def test_what_was_cut_is_counted_and_said_once() -> None:
    limits, cuts = Limits(max_length=5), Cuts()
    cuts.note([Writing((), kept=5, total=9), Writing((), kept=3, total=3)], limits)
    cuts.note([Writing((), kept=5, total=7)], limits)
    with pytest.warns(UserWarning, match=r"2 of 3 texts.*max_length=5.*lost 3 tokens in the middle, 4 at most"):
        cuts.warn(limits)


def test_nothing_is_said_where_nothing_was_cut_or_nobody_asks() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Cuts([], 3).warn(Limits())
        Cuts([1], 3).warn(Limits(on_long="ignore"))


def test_refusal_names_the_text() -> None:
    both = [Writing((), kept=3, total=3), Writing((), kept=5, total=9)]
    with pytest.raises(TooLong, match="text 8 has 9 tokens"):
        Cuts().note(both, Limits(5, on_long="error"), [[0, 1], [8, 9]])


def test_a_text_that_is_there_three_times_is_counted_three_times() -> None:
    cuts = Cuts()
    cuts.note([Writing((), kept=5, total=9), Writing((), kept=3, total=3)], Limits(5), [[0, 2, 3], [1]])
    assert cuts.lost == [4, 4, 4] and cuts.texts == 4


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


def test_one_text_that_does_not_fit_is_said() -> None:
    def run(indices: list[int]) -> None:
        raise MemoryError

    with pytest.raises(ModelError, match="one text alone"):
        list(Budget(100).batches([3, 4], run))


def test_other_errors_pass() -> None:
    assert not out_of_memory(RuntimeError("shapes differ"))

    def run(indices: list[int]) -> None:
        raise RuntimeError("shapes differ")

    with pytest.raises(RuntimeError, match="shapes differ"):
        list(Budget(100).batches([3, 4], run))


def test_whole_numbers_of_numpy() -> None:
    limits = Limits(np.int64(5), np.int32(2), batch_tokens=np.uint8(9))
    assert (limits.max_length, limits.batch_size, limits.batch_tokens) == (5, 2, 9)
    assert type(limits.batch_size) is int
    for wrong in (np.int64(0), True, np.float32(2)):
        with pytest.raises(InputError, match="batch_size"):
            Limits(batch_size=wrong)
