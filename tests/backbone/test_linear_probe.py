"""The probe of bits and speed, with real products that keep the bits and real ones that do not."""

from dataclasses import asdict

import pytest
import torch
from torch import Tensor

from afterword.backbone import linear_probe as probe
from afterword.backbone import linear_probe_cache as cache
from afterword.backbone.linear_probe import Shape, Verdict, batches, bits_hold, choose, choose_kernel, fewest_rows

SHAPE = Shape(96, 64)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    """Nothing that was measured before is known."""
    monkeypatch.setenv("AFTERWORD_CACHE", str(tmp_path))
    monkeypatch.delenv("AFTERWORD_KERNELS", raising=False)
    monkeypatch.setattr(probe, "_VERDICTS", {})


def numbers(rows: int, width: int = 96) -> Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(1))


def steady(weight: Tensor):
    """A product that adds a row's terms in one order, wherever the row stands."""
    return lambda x: (x[..., None, :].double() * weight.double()).sum(-1).float()


def split_for_few(weight: Tensor, few: int):
    """What MKL does on Intel with several threads: where rows are few, long sums are made in parts."""
    half = weight.shape[1] // 2

    def product(x: Tensor) -> Tensor:
        if x.shape[-2] <= few:
            return x[..., :half] @ weight[:, :half].T + x[..., half:] @ weight[:, half:].T
        return x @ weight.T

    return product


def by_place(weight: Tensor):
    """The last rows of a large batch go another way."""

    def product(x: Tensor) -> Tensor:
        out = x @ weight.T
        if x.shape[-2] > 200:
            out[..., -7:, :] = split_for_few(weight, 10**6)(x[..., -7:, :])
        return out

    return product


@pytest.mark.parametrize("rows", [32, 64])
def test_a_product_that_depends_on_the_batch_is_seen(rows):
    weight, x = numbers(64), numbers(rows)
    many = [rows * 2, rows * 8]
    assert bits_hold(steady(weight), x, many)
    assert not bits_hold(split_for_few(weight, rows), x, many)
    assert not bits_hold(split_for_few(weight, rows * 2), x, many)  # the same alone and in the first batch
    assert bits_hold(split_for_few(weight, rows * 2), x, many[:1])
    assert not bits_hold(by_place(weight), x, many)


def test_rows_begin_where_a_forward_s_do():
    """torch puts each tensor at a multiple of 64 bytes, on which MKL's bits may depend."""
    starts = []
    bits_hold(lambda x: starts.append(x.data_ptr() % 64) or x, numbers(32, 7), [64, 256])
    assert starts == [0, 0, 0]


def test_rows_are_filled_as_a_forward_s_are():
    assert batches(1) == [64, 256, 1024, 4096]
    assert batches(2) == [256, 1024, 4096]
    assert batches(3) == [288, 1056, 4128]


class Planted(probe._Probe):
    """A probe of two products whose speed is given."""

    def __init__(self, plain, packed, seconds: dict[str, float], shape: Shape = SHAPE) -> None:
        super().__init__(shape, torch.float32, "float32")
        self.products = {"plain": plain, "packed": packed} if packed else {"plain": plain}
        self.given = seconds

    def _seconds(self):
        return dict(self.given)


GOOD, BAD = steady(numbers(64)), split_for_few(numbers(64), 64)


@pytest.mark.parametrize(
    ("plain", "packed", "seconds", "kernel", "holds"),
    [
        (GOOD, GOOD, (2.0, 1.0), "packed", True),  # both keep the bits: the faster one
        (GOOD, GOOD, (1.2, 1.0), "plain", True),  # which packed weights must be by enough
        (BAD, GOOD, (1.0, 1.05), "packed", True),  # the bits are worth a little
        (BAD, GOOD, (1.0, 1.2), "plain", False),  # but not more
        (BAD, GOOD, (9.0, 1.0), "packed", True),
        (GOOD, BAD, (1.2, 1.0), "plain", True),
        (GOOD, BAD, (1.5, 1.0), "packed", False),
        (BAD, BAD, (1.2, 1.0), "packed", False),
        (BAD, BAD, (1.0, 1.2), "plain", False),
        (BAD, None, (1.0, None), "plain", False),
        (GOOD, None, (1.0, None), "plain", True),
    ],
)
def test_what_keeps_the_bits_wins_unless_it_is_dear(plain, packed, seconds, kernel, holds):
    given = {k: s for k, s in zip(("plain", "packed"), seconds, strict=True) if s is not None}
    found = Planted(plain, packed, given).verdict()
    assert (found.kernel, found.holds) == (kernel, holds)
    assert found.seconds == given


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [SHAPE, Shape(96, 64, transposed=True), Shape(96, 64, bias=False)])
def test_of_this_machine(shape, threads):
    """What a verdict says of a kernel is what that kernel does, measured apart from the probe."""
    torch.set_num_threads(threads)
    found = choose(shape, torch.float32, also=("plain", "packed"))
    assert set(found.keeps) == {"plain", "packed"}
    made = probe._Probe(shape, torch.float32, "float32")
    for kernel, product in made.products.items():
        alone, large = product(made.x[None])[0], product(made.x.repeat(9, 1)[None])[0]
        same = all(torch.equal(part, alone) for part in large.split(len(alone)))
        assert same or not found.keeps[kernel]
        assert found.rows[kernel][:-1] == batches(threads)[: len(found.rows[kernel]) - 1]
        assert 1024 <= found.rows[kernel][-1] <= 4096


def test_an_answer_is_found_once(monkeypatch):
    first = choose(SHAPE, torch.float32)
    assert list(cache.read(probe.FILE).values()) == [asdict(first)]

    def again(*_: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(probe, "_Probe", again)
    assert choose(SHAPE, torch.float32) is first
    monkeypatch.setattr(probe, "_VERDICTS", {})
    assert choose(SHAPE, torch.float32) == first  # from the disk
    torch.set_num_threads(2)
    with pytest.raises(AssertionError, match="measured again"):
        choose(SHAPE, torch.float32)


def another(verdict: Verdict) -> Verdict:
    """The other kernel's verdict, as a process may measure it at the same time."""
    kernel = "packed" if verdict.kernel == "plain" else "plain"
    return Verdict(kernel, {kernel: True}, {kernel: 1e-5}, {kernel: [64]}, {kernel: 8})


def test_a_chosen_kernel_stays_chosen_whatever_others_measure():
    """The other kernel has other last bits: two loads of one model would differ."""
    first, key = choose(SHAPE, torch.float32), probe._key(SHAPE, torch.float32, "float32")
    cache.add(probe.FILE, {key: asdict(another(first))})
    choose(Shape(32, 16), torch.float32)  # what is on disk is read again
    assert choose(SHAPE, torch.float32) is first
    both = choose(SHAPE, torch.float32, also=(another(first).kernel,))
    assert both.kernel == first.kernel and both.keeps.keys() == {"plain", "packed"}


def test_of_two_processes_that_measure_at_once_the_first_is_right(monkeypatch):
    key = probe._key(SHAPE, torch.float32, "float32")

    class Late(probe._Probe):
        def verdict(self, also=()):
            found = super().verdict(also)
            cache.add(probe.FILE, {key: asdict(another(found))})
            self.__class__.found = found
            return found

    monkeypatch.setattr(probe, "_Probe", Late)
    chosen = choose(SHAPE, torch.float32)
    assert chosen.kernel == another(Late.found).kernel != Late.found.kernel
    assert cache.read(probe.FILE)[key]["kernel"] == chosen.kernel


def test_another_setting_asks_again():
    key = probe._key(SHAPE, torch.float32, "float32")
    before = torch.backends.mkldnn.matmul.fp32_precision
    try:
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"
        other = probe._key(SHAPE, torch.float32, "float32")
    finally:
        torch.backends.mkldnn.matmul.fp32_precision = before
    keys = {
        key, other, probe._key(SHAPE, torch.bfloat16, "float32"), probe._key(SHAPE, torch.float32, "bfloat16"),
        probe._key(Shape(96, 64, transposed=True), torch.float32, "float32"),
        probe._key(Shape(96, 64, bias=False), torch.float32, "float32"),
    }  # fmt: skip
    torch.set_num_threads(2)
    assert len(keys | {probe._key(SHAPE, torch.float32, "float32")}) == 7


@pytest.mark.parametrize(
    "wrong",
    [
        1, None, {}, {"kernel": "fast"}, {"kernel": "packed", "keeps": [], "seconds": {}, "rows": {}},
        {"kernel": ["plain"], "keeps": {}, "seconds": {}, "rows": {}},
        {"kernel": "plain", "keeps": {"plain": "yes"}, "seconds": {}, "rows": {}},
        {"kernel": "plain", "keeps": {}, "seconds": {"plain": None}, "rows": {"plain": 3}},
        {"kernel": "plain", "keeps": {"else": True}, "seconds": {}, "rows": {}},
    ],
)  # fmt: skip
def test_nonsense_on_the_disk_is_measured_again(wrong):
    cache.add(probe.FILE, {probe._key(SHAPE, torch.float32, "float32"): wrong})
    found = choose(SHAPE, torch.float32)
    assert isinstance(found, Verdict) and found.holds is not None
    assert list(cache.read(probe.FILE).values()) == [asdict(found)]


def test_a_kernel_can_be_forced(monkeypatch):
    monkeypatch.setenv("AFTERWORD_KERNELS", "plain")
    assert choose_kernel(SHAPE, torch.float32) == "plain"
    monkeypatch.setenv("AFTERWORD_KERNELS", "packed")
    assert choose_kernel(SHAPE, torch.float32) == ("packed" if torch.backends.mkldnn.is_available() else "plain")
    assert not cache.read(probe.FILE)


@pytest.mark.parametrize(("other", "rows"), [(0, 8), (8, 16), (24, 16), (48, 32), (72, 16), (96, 32)])
def test_a_short_forward_is_filled_no_further_than_its_bits_ask(other, rows):
    """A product that goes another way at one number of rows, which is a multiple of 8, of 16, or of neither."""
    weight, x = numbers(64), numbers(32)

    def product(x: Tensor) -> Tensor:
        return split_for_few(weight, other)(x) if x.shape[-2] == other else steady(weight)(x)

    assert fewest_rows(product, x, threads=1) == rows


def test_the_fewest_rows_are_kept_with_the_verdict(tmp_path, monkeypatch):
    found = Planted(GOOD, GOOD, {"plain": 2.0, "packed": 1.0}).verdict()
    assert found.few == {"packed": 8}
    assert probe._read(asdict(found)) == found
    assert probe._read(asdict(found) | {"few": {"packed": 9}}) is None
    assert Planted(BAD, None, {"plain": 1.0}).verdict().few == {"plain": 32}


@pytest.mark.parametrize(
    ("threads", "shape", "trusted"), [(3, (36, 77), False), (3, (36, 80), True), (1, (36, 77), False)]
)
def test_plain_products_of_odd_widths_are_not_trusted(threads, shape, trusted):
    """Where a row begins depends on its place then, and the sizes that are tried do not show all places."""
    torch.set_num_threads(threads)
    tried = []
    made = Planted(GOOD, GOOD, {"plain": 1.0, "packed": 2.0}, Shape(*shape))
    made.products["plain"] = lambda x: tried.append(1) or steady(numbers(64))(x)
    made.x = numbers(32 * threads)
    made.seconds = {"plain": 1.0}
    made._try("plain")
    assert bool(tried) == made.keeps["plain"] == trusted
