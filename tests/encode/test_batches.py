import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from afterword.encode.limits import Budget, Limits, out_of_memory
from afterword.errors import ModelError


def test_a_budget_by_device() -> None:
    assert Limits(batch_tokens=7).tokens(torch.device("cpu")) == 7
    assert Limits().tokens(torch.device("cuda")) > Limits().tokens(torch.device("cpu"))


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
