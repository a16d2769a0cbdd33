"""How far a forward is padded on a CPU, so that each of its rows has the same bits whatever else is in it.

Two kinds of kernels ask for it. Matrix products compute some rows at a time (`linear_probe` tries how many). Some
element-wise functions (SiLU, GELU, sigmoid) compute some numbers at a time and round the remainder differently. torch
divides the numbers among its threads, so each thread may have a remainder of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from .linear_products import ROWS

SHORT_ROWS = 4 * ROWS  # rows per thread, below which a forward is short
LANES = 32  # numbers that an element-wise function computes at a time: two vectors of AVX-512, or four of AVX2
GRAIN = 32768  # torch divides so many numbers among two threads, twice as many among three (at::internal::GRAIN_SIZE)
ALIGNED = 4  # numbers of float32 in 16 bytes
NARROWEST = 16  # MKL multiplies narrower matrices in ways that depend on where they begin
FURTHEST = 8  # times: rows of 172 numbers on 64 threads would need 24 times as many
EVEN = 2  # with at most so many threads, whole rows are whole vectors
ROUNDED = frozenset({"atan2", "atanh", "celu", "cosh", "elu", "exp2", "gelu", "glu", "logaddexp", "logaddexp2", "mish",
                     "pow", "selu", "sigmoid", "silu", "sinh", "softplus"})  # fmt: skip
"""torch's element-wise functions that round a remainder differently; products of complex numbers do too."""
EXACT_POWERS = (-2, -1, -0.5, 0.5, 1, 2, 3)  # for which `pow` does not


@dataclass(frozen=True)
class Filling:
    """To how many rows a forward is padded.

    Attributes:
        rows: per thread; a short forward is padded to a multiple of these, a longer one to a multiple of `ROWS`.
        widths: how many numbers functions of `ROUNDED` get for each row.
    """

    rows: int = ROWS
    widths: frozenset[int] = frozenset()

    def total(self, size: int) -> int:
        """The number of rows to which ``size`` rows are padded: the first at which all threads get whole vectors.

        Where that is more than `FURTHEST` times as many as the products ask for, it is what these ask for.
        """
        first = total = self._whole(size)
        while not all(_even(total, width, torch.get_num_threads()) for width in self.widths):
            total = self._whole(total + 1)
            if total > FURTHEST * first:
                return first
        return total

    def _whole(self, size: int) -> int:
        threads = torch.get_num_threads()
        step = (self.rows if size < SHORT_ROWS * threads else ROWS) * threads
        return -(-size // step) * step


def _even(rows: int, width: int, threads: int) -> bool:
    """Whether each thread gets whole vectors of (rows, width) numbers, and whole rows if a row is not whole vectors.

    GELU is divided among all threads at fewer numbers than other functions.
    """
    numbers = rows * width
    for used in {1, max(1, min(threads, -(-numbers // GRAIN))), threads}:
        each = -(-numbers // used)
        if each % LANES or (width % LANES and each % width):
            return False
    return True


class _Watching(TorchDispatchMode):
    """Notes how many numbers functions of `ROUNDED` get for each row."""

    def __init__(self, rows: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.rows = rows
        self.widths: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the function."""
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__.rstrip("_")
        exact = name == "pow" and isinstance(args[1], int | float) and args[1] in EXACT_POWERS
        rounded = name in ROUNDED or (name == "mul" and out.is_complex())
        if rounded and not exact and isinstance(out, Tensor) and out.dim():
            self.widths.add(out.numel() // self.rows if self.rows in out.shape else int(out.shape[-1]))
        return out


def log_add_exp(a: Tensor, b: Tensor) -> Tensor:
    """log(exp(a) + exp(b)) of two tensors; unlike `torch.logaddexp`, each number's bits do not depend on its place."""
    return torch.maximum(a, b) + torch.log1p(torch.exp(-(a - b).abs()))


def sum_rows(x: Tensor) -> Tensor:
    """The sum (G, D) over dimension 1 of (G, n, D); its bits do not depend on the other sums.

    Threads of `torch.sum` divide the columns at multiples of `LANES`, and a remainder of less than a vector may be
    added up in another order: such a remainder gets columns of zeros.
    """
    columns = x.shape[2]
    if x.device.type == "cpu" and 0 < columns % LANES < LANES // 2:
        x = F.pad(x, (0, LANES // 2))
    return x.sum(1)[:, :columns]


def matrices(x: Tensor) -> Tensor:
    """The matrices of (G, H, r, d), for batched products that have the same bits in any number of them.

    MKL rounds a product that is alone, and rows that do not begin at multiples of 16 bytes, in other ways.
    """
    x = x.flatten(0, 1)
    if x.shape[2] > 1 and x.shape[2] % ALIGNED:
        x = F.pad(x, (0, -x.shape[2] % ALIGNED))
    return x if len(x) > 1 else x.expand(2, -1, -1).contiguous()


def products(a: Tensor, b: Tensor) -> Tensor:
    """a @ b^T (G, H, r, c), of (G, H, r, d) and (G, H, c, d)."""
    (g, h, r, _), c = a.shape, b.shape[2]
    return (matrices(a) @ matrices(b).mT)[: g * h].view(g, h, r, c)


def whole_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b (n, D'), of x (n, D) and W (D', D).

    On a CPU, rows that are not whole are padded: where they begin would matter.
    """
    out, width = weight.shape
    more, wider = (max(NARROWEST - size, -size % ALIGNED) for size in (out, width))
    if x.device.type != "cpu" or not (more or wider):
        return F.linear(x.contiguous(), weight, bias)
    bias = None if bias is None else F.pad(bias, (0, more))
    return F.linear(F.pad(x, (0, wider)), F.pad(weight, (0, wider, 0, more)), bias)[..., :out].contiguous()


def rounded_widths(run: Callable[[], Tensor], rows: int) -> frozenset[int]:
    """How many numbers functions of `ROUNDED` get for each row in a forward; none where it does not matter.

    Args:
        run: a forward of a few tokens.
        rows: to how many rows it is padded.
    """
    if torch.get_num_threads() <= EVEN:
        return frozenset()
    with _Watching(rows) as watching:
        run()
    return frozenset(watching.widths)
