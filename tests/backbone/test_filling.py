"""A row has the same bits in every padded forward: element-wise functions and sums, on any number of threads."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tests.tiny import tiny
from tests.zoo import write
from torch import Tensor, nn

from afterword import Encoder, classical
from afterword.backbone.filling import Filling, log_add_exp, rounded_widths, sum_rows

FUNCTIONS = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu, tanh": lambda x: F.gelu(x, approximate="tanh"),
    "sigmoid": torch.sigmoid,
    "softplus": F.softplus,
}
THREADS = (1, 2, 3, 5, 8, 16)


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)) * 2


@pytest.fixture(autouse=True)
def threads_restored():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("width", [24, 100, 352, 2816])
def test_a_row_has_the_same_bits_at_every_size_that_is_filled(width: int, name: str):
    function, x = FUNCTIONS[name], numbers(2048, width)
    torch.set_num_threads(1)
    wanted = torch.cat([function(part) for part in x.split(32)])
    for threads in THREADS:
        torch.set_num_threads(threads)
        for size in (1, 9, 40, 70, 100, 150, 260, 530, 700):
            rows = Filling(32, frozenset({width})).total(size)
            assert rows >= size and torch.equal(function(x[:rows].clone()), wanted[:rows]), (threads, size, rows)


def test_rows_that_threads_would_divide_within_a_vector_are_filled_further():
    """Four threads: torch divides 256 rows of 352 numbers among three of them, 384 rows among all."""
    torch.set_num_threads(4)
    assert Filling(32).total(200) == 256 and Filling(32, frozenset({352})).total(200) == 384


@pytest.mark.parametrize(
    ("size", "rows", "total"), [(0, 8, 0), (1, 8, 8), (9, 8, 16), (127, 8, 128), (128, 8, 128), (129, 8, 160)]
)
def test_a_short_forward_is_filled_to_fewer_rows(size: int, rows: int, total: int):
    torch.set_num_threads(1)
    assert Filling(rows).total(size) == total
    torch.set_num_threads(2)
    assert Filling(rows, frozenset({40})).total(2 * size) == 2 * total


def test_the_widths_that_matter_are_found_in_a_forward():
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = nn.Linear(12, 40), nn.Linear(20, 12)

        def forward(self, x: Tensor) -> Tensor:
            gate, value = self.up(x).chunk(2, -1)
            cubed = x.pow(3) + x.tanh() + x.relu() + torch.pow(2, torch.arange(12)) + torch.pow(x[0, 0].abs(), 1.5)
            return self.down(F.silu(gate) * value) + cubed * torch.sigmoid(x[:, :1]) + F.glu(x)[:, 1:2]

    block = Block()
    torch.set_num_threads(2)
    assert rounded_widths(lambda: block(numbers(5, 12)), 5) == frozenset()
    torch.set_num_threads(3)
    assert rounded_widths(lambda: block(numbers(5, 12)), 5) == {20, 1, 6, 12}


def test_the_widths_of_what_is_computed_head_by_head_are_found():
    torch.set_num_threads(3)

    def run() -> Tensor:
        gates = torch.sigmoid(numbers(1, 5, 4, 25))  # four heads of 25 numbers for each of five tokens
        turned = torch.view_as_complex(numbers(1, 5, 3, 7, 2))
        return gates.flatten(2) + torch.view_as_real(turned * turned).sum() + (turned + turned).real.sum()

    assert rounded_widths(run, 5) == {100, 21}


def test_a_forward_is_not_filled_without_bound():
    torch.set_num_threads(64)
    assert Filling(8).total(400) == 512 and Filling(8, frozenset({352})).total(400) == 1024
    assert Filling(8, frozenset({172})).total(400) == 512, "24 times as many rows would be needed"


def test_log_add_exp_is_torchs_within_a_rounding_wherever_a_number_stands():
    a, b = numbers(5000) * 10, numbers(2, 5000)[1] * 10
    made = log_add_exp(a, b)
    torch.testing.assert_close(made, torch.logaddexp(a.double(), b.double()).float(), rtol=3e-7, atol=1e-6)
    for start in range(0, 4000, 131):
        for size in (1, 7, 16, 31, 48, 200):
            part = slice(start, start + size)
            assert torch.equal(log_add_exp(a[part].clone(), b[part].clone()), made[part])


def test_the_gradient_of_log_add_exp():
    a, b = (x.double().requires_grad_() for x in (numbers(40), numbers(2, 40)[1]))
    with torch.no_grad():
        b[:5] = a[:5]
        a[5:7], b[5:9] = -1e4, -1e4
    made = torch.autograd.grad(log_add_exp(a, b).sum(), (a, b))
    torch.testing.assert_close(made, torch.autograd.grad(torch.logaddexp(a, b).sum(), (a, b)))


@pytest.mark.parametrize("columns", [1, 7, 40, 100, 177, 384])
def test_sums_do_not_depend_on_other_sums_nor_on_threads(columns: int):
    torch.set_num_threads(1)
    for rows in (1, 6, 50, 300):
        x = numbers(20, rows, columns)
        wanted = sum_rows(x)
        torch.testing.assert_close(wanted, x.double().sum(1).float(), rtol=1e-5, atol=1e-4)
        for threads in (1, 2, 12, 16):
            torch.set_num_threads(threads)
            for count in (1, 2, 3, 8, 16, 20):
                assert torch.equal(sum_rows(x[:count].clone()), wanted[:count]), (rows, threads, count)


def test_a_hook_that_comes_later_is_filled_for(tmp_path: Path):
    torch.set_num_threads(3)
    encoder = Encoder.load(tiny("llama", tmp_path), classical())
    encoder.encode(["a"])
    packed = encoder.backbone.packed
    with torch.no_grad(), packed.fast() as before:
        assert before.watched is not None and 24 not in before.filling.widths
    block = encoder.backbone.model.layers[0].mlp
    block.register_forward_hook(lambda module, given, out: out + F.silu(out[..., :24]).sum(-1, keepdim=True))
    encoder.encode(["a"])
    with torch.no_grad(), packed.fast() as after:
        assert 24 in after.filling.widths


def test_powers_of_every_kind_are_looked_at(tmp_path: Path):
    """ALiBi's slopes are powers of a number, by a tensor."""
    torch.set_num_threads(3)
    encoder = Encoder.load(write("bloom", tmp_path / "bloom"), classical())
    assert encoder.encode([[5, 6, 7]]).shape == (1, 64)
