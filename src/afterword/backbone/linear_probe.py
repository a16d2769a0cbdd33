"""Choose the kernel of a linear layer: a fast one that gives a row the same bits in any batch.

Some kernels split a long sum if there are few rows (MKL on Intel, with two or more threads and wide layers), so the
same row has other last bits in a larger batch. Each shape of layer is therefore tried on this machine: some rows
alone, and the same rows among many. The verdict is kept on disk, by processor, version and setting.
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
from .filling import SHORT_ROWS
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
"""Sizes of the batches in which the same rows must have the same bits."""

FEW = (8, 16)  # rows per thread, fewer than `ROWS`, to a multiple of which a short forward may be padded

TIMED = 256  # rows of the product whose time is measured
REPEATS = 2
FASTER = 1.3  # packed weights take memory: if both kernels keep the bits, they must be at least this much faster
DEARER = 1.1  # a kernel that keeps the bits may take this much more time than one that does not
PER_WEIGHT = 4.1e-8  # seconds that the largest batch may take for each weight of the layer: 4,096 rows at 200 GFLOP/s
SHORT = 5e-3  # seconds that the largest batch may always take
SURE = 1024  # rows that are tried on any processor, however slow
MOST = 20e9  # the most operations of one product
FILE = "kernels.json"

Product = Callable[[Tensor], Tensor]
"""Rows (1, M, in) to rows (1, M, out)."""


class Shape(NamedTuple):
    """What the choice of a kernel depends on in a linear layer."""

    inputs: int
    outputs: int
    bias: bool = True
    transposed: bool = False

    def __str__(self) -> str:
        """Inputs and outputs, as "384 -> 1536"."""
        return f"{self.inputs} -> {self.outputs}"

    @property
    def name(self) -> str:
        """The whole shape, as "384 -> 1536 transposed without bias"."""
        return f"{self}{' transposed' if self.transposed else ''}{'' if self.bias else ' without bias'}"


@dataclass(frozen=True)
class Verdict:
    """What the probe measured for one shape, and the kernel that it chose.

    Attributes:
        kernel: "plain" or "packed".
        keeps: by kernel, whether a row has the same bits alone and in every batch; only for kernels that were tried.
        seconds: by kernel, CPU time per thread of one product of about `TIMED` rows.
        rows: by kernel, the sizes of the batches that were tried.
        few: by kernel, the rows per thread to a multiple of which a short forward must be padded to keep the bits.
    """

    kernel: Kernel
    keeps: dict[str, bool] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    rows: dict[str, list[int]] = field(default_factory=dict)
    few: dict[str, int] = field(default_factory=dict)

    @property
    def holds(self) -> bool | None:
        """Whether the chosen kernel keeps the bits; None if that was not tried."""
        return self.keeps.get(self.kernel)

    def joined(self, later: Verdict) -> Verdict:
        """This verdict, with what a later one found of kernels that were not tried here."""
        return Verdict(
            self.kernel, later.keeps | self.keeps, later.seconds | self.seconds, later.rows | self.rows,
            later.few | self.few,
        )  # fmt: skip


_VERDICTS: dict[str, Verdict] = {}
_LOCK = threading.Lock()


def choose(shape: Shape, dtype: torch.dtype, products: Products = "float32", also: Sequence[Kernel] = ()) -> Verdict:
    """The verdict on one shape of layer: measured once, then read from memory or disk.

    A kernel that was chosen stays chosen, as other kernels give other last bits: in this process, whatever is on disk,
    and on disk, whatever a process measures that began at the same time.

    Args:
        shape: of the layer.
        dtype: of its weight and its input.
        products: the precision in which float32 matrices are multiplied.
        also: kernels to try even if they are not chosen.
    """
    key = _key(shape, dtype, products)
    with _LOCK:
        if key not in _VERDICTS:
            _take_stored()
        verdict = _VERDICTS.get(key)
        if verdict is None or set(also) - set(verdict.keeps):
            with torch.no_grad():
                measured = _Probe(shape, dtype, products).verdict(also)
            first = verdict or dict(_stored()).get(key)
            verdict = measured if first is None else first.joined(measured)
            _VERDICTS[key] = verdict
            cache.add(FILE, {key: asdict(verdict)})
        return verdict


def keeps(shape: Shape, dtype: torch.dtype, kernel: Kernel, products: Products = "float32") -> bool:
    """Whether a kernel gives a row the same bits in any batch, for one shape; False if it cannot run."""
    return choose(shape, dtype, products, also=(kernel,)).keeps[kernel]


def batches(threads: int) -> list[int]:
    """The batch sizes to try: `BATCHES`, each rounded up as a forward is padded."""
    whole = ROWS * threads
    return sorted({-(-rows // whole) * whole for rows in BATCHES} - {whole})


def bits_hold(product: Product, rows: Tensor, many: Sequence[int]) -> bool:
    """Whether rows have the same bits alone and at every index of larger batches.

    Args:
        product: to try.
        rows: (M, in), M a multiple of `ROWS`, as in a forward of one text.
        many: sizes of larger batches, multiples of M, smallest first; the first difference ends the trial.
    """
    whole, shift = len(rows), len(rows) // 2 + 1  # so that copies do not begin where a kernel's blocks begin
    alone = _bits(product(rows[None])[0])
    for size in many:
        copies = rows.repeat(size // whole + 1, 1)[None, shift : shift + size].clone()  # begins where torch puts it
        out = _bits(product(copies)[0])
        first, last = out[: whole - shift], out[-shift:]
        inside = out[whole - shift : -shift].unflatten(0, (-1, whole)) if size > whole else out[:0]
        same = torch.equal(first, alone[shift:]) and torch.equal(last, alone[:shift])
        if not (same and bool((inside == alone).all())):
            return False
    return True


def fewest_rows(product: Product, rows: Tensor, threads: int) -> int:
    """The rows per thread to a multiple of which a short forward must be padded to get the bits of a longer one.

    Args:
        product: to try; it gives rows the same bits in every batch of a multiple of M.
        rows: (M, in), M = `ROWS` per thread.
        threads: of a product.

    Returns:
        8 or 16, if every multiple below `SHORT_ROWS` gives the same bits; else `ROWS`.
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


def circumstances(dtype: torch.dtype, products: Products = "float32") -> str:
    """All that the choice of a kernel depends on besides the shape: processor, torch, threads, types and settings."""
    name = str(dtype).removeprefix("torch.") + (f" products={products}" if products != "float32" else "")
    threads = f"{torch.get_num_threads()} threads"
    return " | ".join((_machine(), f"torch {torch.__version__}", threads, name, setting()))


def _key(shape: Shape, dtype: torch.dtype, products: Products) -> str:
    return f"{circumstances(dtype, products)} | {shape.name}"


_MACHINE: list[str] = []


def _machine() -> str:
    if not _MACHINE:
        _MACHINE.append(processor())
    return _MACHINE[0]


def _take_stored() -> None:
    """Take over the verdicts on disk that this process does not have."""
    for key, verdict in _stored():
        _VERDICTS.setdefault(key, verdict)


def _stored() -> Iterator[tuple[str, Verdict]]:
    """The verdicts on disk, without entries that are not valid."""
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
    """Measures the kernels for one shape on this machine."""

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
        """oneDNN's product with packed weights; None if it does not run, or its results are wrong."""
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
        """Measure the time, then try the bits of the faster kernel, and of the other one if that fails."""
        if "packed" not in self.products:
            self.seconds["plain"] = self._seconds()["plain"]
            self._try("plain")
            return self._done("plain", also)
        self.seconds = self._seconds()
        plain, packed = self.seconds["plain"], self.seconds["packed"]
        # both kernels use oneDNN for bfloat16: packed weights save the packing, and can be fused with an activation
        gain = FASTER if self.dtype == torch.float32 else 1 / DEARER
        first: Kernel = "packed" if plain > gain * packed else "plain"
        other: Kernel = "plain" if first == "packed" else "packed"
        faster: Kernel = "packed" if packed < plain else "plain"
        if self._try(first):
            return self._done(first, also)
        if self._try(other) and self.seconds[other] <= DEARER * self.seconds[faster]:
            return self._done(other, also)
        return self._done(faster, also)

    def _done(self, kernel: Kernel, also: Sequence[Kernel]) -> Verdict:
        for untried in {*also, kernel} - set(self.keeps):
            self._try(untried)
        return Verdict(kernel, self.keeps, {k: float(s) for k, s in self.seconds.items()}, self.rows, self.few)

    def _try(self, kernel: Kernel) -> bool:
        """Try whether a kernel keeps the bits."""
        product = self.products.get(kernel)
        self.rows[kernel] = self._batches(kernel) if product is not None else []
        self.keeps[kernel] = (
            product is not None
            and not (kernel == "plain" and self.unaligned)
            and bits_hold(product, self.x, self.rows[kernel])
        )
        self.few[kernel] = ROWS
        if product is not None and self.keeps[kernel]:
            self.few[kernel] = fewest_rows(product, self.x, self.whole // ROWS)
        return self.keeps[kernel]

    def _batches(self, kernel: Kernel) -> list[int]:
        """The sizes of larger batches; the largest are reduced on a slow processor, or for a layer of many weights."""
        sizes = batches(torch.get_num_threads())
        each = self.seconds[kernel] / self._timed
        affordable = max(int(max(PER_WEIGHT * self.weights, SHORT) / each), SURE)
        largest = max(sizes[0], min(affordable, int(MOST / 2 / self.weights)) // self.whole * self.whole)
        return sorted({min(size, largest) for size in sizes})

    @property
    def unaligned(self) -> bool:
        """Whether rows do not all begin at multiples of 16 bytes, on which MKL's bits depend."""
        return any(size * self.dtype.itemsize % 16 for size in self.shape[:2])

    @property
    def _timed(self) -> int:
        return max(self.whole, TIMED // self.whole * self.whole)

    def _seconds(self) -> dict[Kernel, float]:
        """The shortest time of a few runs of each kernel, in turns, since other processes may disturb some."""
        x = self.x.repeat(self._timed // self.whole, 1)[None]
        best: dict[Kernel, float] = dict.fromkeys(self.products, float("inf"))
        threads = torch.get_num_threads()
        clock = time.thread_time if threads == 1 else time.process_time  # CPU time: other processes may run
        for _ in range(REPEATS):
            for name, product in self.products.items():
                start = clock()
                product(x)
                best[name] = min(best[name], (clock() - start) / threads)
        return best


def _numbers(*sizes: int) -> list[Tensor]:
    """Parts of these sizes of one sequence of random numbers between -1 and 1."""
    pool = torch.rand(max(sizes), generator=torch.Generator().manual_seed(0)).mul_(2).sub_(1)
    return [pool[:size] for size in sizes]


def choose_kernel(
    shape: Shape, dtype: torch.dtype, products: Products = "float32", given: Kernel | None = None
) -> Kernel:
    """The kernel to use: ``AFTERWORD_KERNELS``, else the given one, else the probe's choice.

    It is always packed for bfloat16 products, and plain where packed weights do not run.
    """
    if products != "float32":
        return "packed"
    kernel = forced() or given
    if kernel == "plain" or not torch.backends.mkldnn.is_available():
        return "plain"
    if kernel == "packed":
        return "packed" if packs(dtype, torch.get_num_threads(), setting()) else "plain"
    return choose(shape, dtype).kernel


def rows_of(shape: Shape, dtype: torch.dtype, kernel: Kernel, products: Products = "float32") -> int:
    """The rows per thread to which a short forward is padded for the kernel in use: see `fewest_rows`."""
    if products != "float32" or not torch.backends.mkldnn.is_available():
        return ROWS
    return choose(shape, dtype, also=(kernel,)).few.get(kernel, ROWS)


_PACKS: dict[tuple[torch.dtype, int, str], bool] = {}


def packs(dtype: torch.dtype, threads: int, setting: str) -> bool:
    """Whether products with packed weights run on this machine, and give correct results."""
    if (dtype, threads, setting) not in _PACKS:
        with torch.no_grad():
            _PACKS[dtype, threads, setting] = "packed" in _Probe(Shape(64, 96), dtype, "float32").products
    return _PACKS[dtype, threads, setting]
