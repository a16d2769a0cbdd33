"""Which kernel makes a linear layer's products: one that keeps a row's bits whatever stands beside it, and is fast.

Some kernels split a long sum where rows are few (MKL on Intel with two threads or more, where a layer reads many
numbers): the same row then gets other last bits in a larger batch. So each shape of layer is tried on this machine:
some rows alone, and the same rows among many. The answer is kept on disk, by processor, version and setting.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, get_args

import torch
from torch import Tensor

from . import linear_probe_cache as cache
from .linear_products import (
    ROWS,
    Kernel,
    Products,
    forced,
    in_bfloat16,
    pack,
    packed_linear,
    plain_linear,
    processor,
    setting,
)

BATCHES = (64, 256, 1024, 4096)
"""Rows among which the same rows are looked for."""

FEW = (8, 16)  # rows a thread: smaller numbers than `ROWS` that a short forward may be filled to
SHORT_ROWS = 4 * ROWS  # rows a thread, below which a forward is short

TIMED = 256  # rows, where speed is measured
REPEATS = 2
FASTER = 1.3  # where both keep the bits: packed weights take memory, and are used where they gain at least this much
DEARER = 1.1  # a kernel that keeps the bits may cost this much more than one that does not
PER_WEIGHT = 4.1e-8  # seconds that the largest batch may take, for each weight of the layer: 4,096 rows at 200 GFLOP/s
SHORT = 5e-3  # seconds that it may take in any case
SURE = 1024  # rows that are tried however slow the processor is
MOST = 20e9  # operations of one product
FILE = "kernels.json"

Product = Callable[[Tensor], Tensor]
"""Rows (1, M, in) to rows (1, M, out)."""


class Shape(NamedTuple):
    """A linear layer, as far as kernels differ by it."""

    inputs: int
    outputs: int
    bias: bool = True
    transposed: bool = False

    def __str__(self) -> str:
        """Like "384 -> 1536"."""
        return f"{self.inputs} -> {self.outputs}"


@dataclass(frozen=True)
class Verdict:
    """What the probe saw of one shape, and the kernel that it chose.

    Attributes:
        kernel: "plain" or "packed".
        keeps: by kernel, whether a row's bits are the same alone and in every batch; only of kernels that were asked.
        seconds: by kernel, CPU time of one product of about `TIMED` rows on each thread.
        rows: by kernel, the batches that were tried.
        few: by kernel, the rows a thread to a multiple of which a short forward must be filled to keep the bits.
    """

    kernel: Kernel
    keeps: dict[str, bool] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    rows: dict[str, list[int]] = field(default_factory=dict)
    few: dict[str, int] = field(default_factory=dict)

    @property
    def holds(self) -> bool | None:
        """Whether the chosen kernel keeps the bits; None where it was not asked."""
        return self.keeps.get(self.kernel)


_FOUND: dict[str, Verdict] = {}
_DOOR = threading.Lock()


def choose(shape: Shape, dtype: torch.dtype, products: Products = "float32", also: Sequence[Kernel] = ()) -> Verdict:
    """The kernel for one shape of layer: found once, then read from memory or disk.

    Args:
        shape: of the layer.
        dtype: of its weight and of what it reads.
        products: what float32 matrices are rounded to.
        also: kernels whose bits must be known, whether they are chosen or not.
    """
    key = _key(shape, dtype, products)
    with _DOOR:
        if key not in _FOUND:
            _FOUND.update(_kept())
        found = _FOUND.get(key)
        if found is None or set(also) - set(found.keeps):
            with torch.no_grad():
                found = _Probe(shape, dtype, products).verdict(also)
            _FOUND[key] = found
            cache.add(FILE, {key: asdict(found)})
        return found


def keeps(shape: Shape, dtype: torch.dtype, kernel: Kernel, products: Products = "float32") -> bool:
    """Whether one kernel keeps a row's bits at one shape; False where it cannot run."""
    return choose(shape, dtype, products, also=(kernel,)).keeps[kernel]


def batches(threads: int) -> list[int]:
    """How many rows are tried: `BATCHES`, each filled up as a forward's rows are."""
    whole = ROWS * threads
    return sorted({-(-rows // whole) * whole for rows in BATCHES} - {whole})


def bits_hold(product: Product, rows: Tensor, many: Sequence[int]) -> bool:
    """Whether rows get the same bits by themselves and at every place of larger batches.

    Args:
        product: what is tried.
        rows: (M, in); they fill whole rows of the kernels, as a text alone does.
        many: sizes of larger batches, multiples of M, smallest first; the first that differs ends it.
    """
    whole, shift = len(rows), len(rows) // 2 + 1  # the copies do not begin where a kernel's blocks do
    alone = _bits(product(rows[None])[0])
    for size in many:
        out = _bits(product(rows.repeat(size // whole + 1, 1)[None, shift : shift + size])[0])
        first, last = out[: whole - shift], out[-shift:]
        inside = out[whole - shift : -shift].unflatten(0, (-1, whole)) if size > whole else out[:0]
        same = torch.equal(first, alone[shift:]) and torch.equal(last, alone[:shift])
        if not (same and bool((inside == alone).all())):
            return False
    return True


def fewest_rows(product: Product, rows: Tensor, threads: int) -> int:
    """The rows a thread to which a short forward must be filled, so that each row has the bits of a longer one.

    Args:
        product: what is tried; it gives rows the same bits in every batch of a multiple of M.
        rows: (M, in), M = `ROWS` a thread.
        threads: of a product.

    Returns:
        8 or 16, where every multiple below `SHORT_ROWS` gives the same bits; else `ROWS`.
    """
    every = rows.repeat(SHORT_ROWS // ROWS, 1)
    wanted = _bits(product(rows[None])[0]).repeat(SHORT_ROWS // ROWS, 1)
    for few in FEW:
        sizes = range(few * threads, len(every), few * threads)
        if all(torch.equal(_bits(product(every[None, :size])[0]), wanted[:size]) for size in sizes):
            return few
    return ROWS


def _bits(x: Tensor) -> Tensor:
    return x.contiguous().view({2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()])


def _key(shape: Shape, dtype: torch.dtype, products: Products) -> str:
    layer = f"{shape}{' transposed' if shape.transposed else ''}{'' if shape.bias else ' without bias'}"
    name = str(dtype).removeprefix("torch.") + (f" products={products}" if products != "float32" else "")
    threads = f"{torch.get_num_threads()} threads"
    return " | ".join((_machine(), f"torch {torch.__version__}", threads, name, setting(), layer))


_MACHINE: list[str] = []


def _machine() -> str:
    if not _MACHINE:
        _MACHINE.append(processor())
    return _MACHINE[0]


def _kept() -> Iterator[tuple[str, Verdict]]:
    """Verdicts on disk, less what nobody could have written."""
    for key, value in cache.read(FILE).items():
        if isinstance(value, dict) and (verdict := _read(value)) is not None:
            yield key, verdict


def _read(value: dict[str, Any]) -> Verdict | None:
    kernels = set(get_args(Kernel))
    kernel, *parts = (value.get(k) for k in ("kernel", "keeps", "seconds", "rows", "few"))
    if not all(isinstance(part, dict) and set(part) <= kernels for part in parts):
        return None
    keeps, seconds, rows, few = parts
    right = (
        kernel in get_args(Kernel)
        and all(isinstance(v, bool) for v in keeps.values())  # type: ignore[union-attr]
        and all(isinstance(v, float) for v in seconds.values())  # type: ignore[union-attr]
        and all(isinstance(v, list) and all(isinstance(n, int) for n in v) for v in rows.values())  # type: ignore[union-attr]
        and all(n in (*FEW, ROWS) for n in few.values())  # type: ignore[union-attr]
    )
    return Verdict(kernel, keeps, seconds, rows, few) if right else None  # type: ignore[arg-type]


class _Probe:
    """One shape on this machine, now."""

    def __init__(self, shape: Shape, dtype: torch.dtype, products: Products) -> None:
        self.shape, self.dtype = shape, dtype
        self.whole = ROWS * torch.get_num_threads()
        self.weights = shape.inputs * shape.outputs
        w, b, self.x = (
            part.to(dtype).view(size)
            for part, size in zip(
                _numbers(self.weights, shape.outputs, self.whole * shape.inputs),
                ((shape.outputs, shape.inputs), (-1,), (self.whole, shape.inputs)),
                strict=True,
            )
        )
        bias = b if shape.bias else None
        own = w.T.contiguous() if shape.transposed else w
        self.products: dict[Kernel, Product] = {"plain": lambda x: plain_linear(x, own, bias, shape.transposed)}
        if (packed := self._packed(w, bias, products)) is not None:
            self.products["packed"] = packed
        self.seconds: dict[Kernel, float] = {}
        self.keeps: dict[str, bool] = {}
        self.rows: dict[str, list[int]] = {}
        self.few: dict[str, int] = {}

    def _packed(self, w: Tensor, bias: Tensor | None, products: Products) -> Product | None:
        """oneDNN's product, where it runs and gives what the plain one gives."""
        coarse = self.dtype == torch.bfloat16 or products == "bfloat16"
        try:
            packed = pack(w)

            def product(x: Tensor) -> Tensor:
                if products == "float32":
                    return packed_linear(x, packed, bias)
                with in_bfloat16():
                    return packed_linear(x, packed, bias)

            wanted = plain_linear(self.x, w, bias, False)
            close = (2e-2 if coarse else 1e-4) * float(wanted.abs().max())
            right = torch.allclose(product(self.x[None])[0], wanted, rtol=0, atol=close)
        except (RuntimeError, AttributeError, NotImplementedError):
            return None
        return product if right else None

    def verdict(self, also: Sequence[Kernel] = ()) -> Verdict:
        """Measure, then ask the faster kernel for its bits, and the other one where that one fails."""
        if "packed" not in self.products:
            self.seconds["plain"] = self._seconds()["plain"]
            self._ask("plain")
            return self._done("plain", also)
        self.seconds = self._seconds()
        plain, packed = self.seconds["plain"], self.seconds["packed"]
        # bfloat16 goes through oneDNN either way: packed weights save the packing, and take an activation along
        gain = FASTER if self.dtype == torch.float32 else 1 / DEARER
        first: Kernel = "packed" if plain > gain * packed else "plain"
        other: Kernel = "plain" if first == "packed" else "packed"
        faster: Kernel = "packed" if packed < plain else "plain"
        if self._ask(first):
            return self._done(first, also)
        if self._ask(other) and self.seconds[other] <= DEARER * self.seconds[faster]:
            return self._done(other, also)
        return self._done(faster, also)

    def _done(self, kernel: Kernel, also: Sequence[Kernel]) -> Verdict:
        for asked in {*also, kernel} - set(self.keeps):
            self._ask(asked)
        return Verdict(kernel, self.keeps, {k: float(s) for k, s in self.seconds.items()}, self.rows, self.few)

    def _ask(self, kernel: Kernel) -> bool:
        """Whether a kernel keeps the bits."""
        product = self.products.get(kernel)
        self.rows[kernel] = self._batches(kernel) if product is not None else []
        self.keeps[kernel] = product is not None and bits_hold(product, self.x, self.rows[kernel])
        self.few[kernel] = ROWS
        if product is not None and self.keeps[kernel]:
            self.few[kernel] = fewest_rows(product, self.x, self.whole // ROWS)
        return self.keeps[kernel]

    def _batches(self, kernel: Kernel) -> list[int]:
        """The larger batches; on a slow processor, or for a layer of many weights, the largest ones are cut."""
        sizes = batches(torch.get_num_threads())
        each = self.seconds[kernel] / self._timed
        affordable = max(int(max(PER_WEIGHT * self.weights, SHORT) / each), SURE)
        largest = max(sizes[0], min(affordable, int(MOST / 2 / self.weights)) // self.whole * self.whole)
        return sorted({min(size, largest) for size in sizes})

    @property
    def _timed(self) -> int:
        return max(self.whole, TIMED // self.whole * self.whole)

    def _seconds(self) -> dict[Kernel, float]:
        """The best of a few runs of each kernel, in turns: what the machine can do when nothing disturbs it."""
        x = self.x.repeat(self._timed // self.whole, 1)[None]
        best: dict[Kernel, float] = dict.fromkeys(self.products, float("inf"))
        threads = torch.get_num_threads()
        clock = time.thread_time if threads == 1 else time.process_time  # not the wall's: others may be at work
        for _ in range(REPEATS):
            for name, product in self.products.items():
                start = clock()
                product(x)
                best[name] = min(best[name], (clock() - start) / threads)
        return best


def _numbers(*sizes: int) -> list[Tensor]:
    """Some of the same random numbers, between -1 and 1, as often as they are needed."""
    pool = torch.rand(max(sizes), generator=torch.Generator().manual_seed(0)).mul_(2).sub_(1)
    return [pool[:size] for size in sizes]


def chosen(shape: Shape, dtype: torch.dtype, products: Products = "float32") -> Kernel:
    """The kernel to use: ``AFTERWORD_KERNELS``, else the probe's choice; always packed for bfloat16 products."""
    if products != "float32":
        return "packed"
    if (kernel := forced()) == "plain" or not torch.backends.mkldnn.is_available():
        return "plain"
    if kernel == "packed":
        return "packed" if packs(dtype, torch.get_num_threads(), setting()) else "plain"
    return choose(shape, dtype).kernel


def rows_of(shape: Shape, dtype: torch.dtype, products: Products = "float32") -> int:
    """The rows a thread to which a short forward is filled for the kernel in use: see `fewest_rows`."""
    if products != "float32" or not torch.backends.mkldnn.is_available():
        return ROWS
    kernel = chosen(shape, dtype)
    return choose(shape, dtype, also=(kernel,)).few.get(kernel, ROWS)


def filled(size: int, rows: int) -> int:
    """To a multiple of how many rows a product of ``size`` rows is filled: ``rows`` a thread if it is short."""
    threads = torch.get_num_threads()
    return (rows if size < SHORT_ROWS * threads else ROWS) * threads


_PACKS: dict[tuple[torch.dtype, int, str], bool] = {}


def packs(dtype: torch.dtype, threads: int, setting: str) -> bool:
    """Whether packed products run here, and are right."""
    if (dtype, threads, setting) not in _PACKS:
        with torch.no_grad():
            _PACKS[dtype, threads, setting] = "packed" in _Probe(Shape(64, 96), dtype, "float32").products
    return _PACKS[dtype, threads, setting]
