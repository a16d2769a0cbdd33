"""weights @ states, and memory that runs out."""

import pytest
import torch
from tests.tiny import tiny

from afterword import classical, reba
from afterword.batch import lay
from afterword.embed import combine, halving, in_batches, out_of_memory, vectors, weights
from afterword.errors import ModelError
from afterword.loading import load_backbone
from afterword.writing import Segment, Writing


def writing(n: int) -> Writing:
    return Writing((Segment(list(range(20, 20 + n)), ((0, n),)),), kept=n, total=n)


def test_the_one_law() -> None:
    """Two texts, the longer one first on the flat axis; a row of weights each."""
    batch = lay([writing(1), writing(2)])
    states = torch.tensor([[1.0, 0], [0, 1], [5, 5]])
    made = combine(batch, [torch.tensor([[[2.0, 3.0]]]), torch.tensor([[[4.0]]])], states)
    assert made[:, 0].tolist() == [[20, 20], [2, 3]]


def test_vectors_are_weights_times_states(tmp_path) -> None:
    own = load_backbone(tiny("llama", tmp_path))
    batch = lay(classical().layout.write(["abc", "de"], own.tokenizer))
    with torch.no_grad():
        (weighed,) = weights(own, [reba(1)], batch)
        (made,) = vectors(own, [reba(1)], batch)
    for group, rows in zip(batch.groups, weighed.weights, strict=True):
        for g, text in enumerate(group.text.tolist()):
            expected = rows[g, 0] @ group.of(weighed.states)[g]
            assert torch.allclose(made[text, 0], expected, atol=1e-6)


def test_batches_keep_to_the_budget() -> None:
    assert list(in_batches([writing(n) for n in (3, 9, 1, 2)], 6, None)) == [[1], [0, 3, 2]]


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("x"), MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")],
)
def test_a_batch_that_does_not_fit_is_halved(error: Exception) -> None:
    done: dict[int, int] = {}

    def run(indices: list[int]) -> list[int]:
        if len(indices) > 2:
            raise error
        return [10 * i for i in indices]

    cut = halving(run, [0, 1, 2, 3, 4], lambda indices, made: done.update(zip(indices, made, strict=True)))
    assert cut and done == {i: 10 * i for i in range(5)}


def test_one_text_that_does_not_fit_is_said() -> None:
    def run(indices: list[int]) -> None:
        raise MemoryError

    with pytest.raises(ModelError, match="one text alone"):
        halving(run, [0, 1], lambda *_: None)


def test_other_errors_pass() -> None:
    assert not out_of_memory(RuntimeError("shapes differ"))

    def run(indices: list[int]) -> None:
        raise RuntimeError("shapes differ")

    with pytest.raises(RuntimeError, match="shapes differ"):
        halving(run, [0, 1], lambda *_: None)
