"""Attention that is read in pieces against the full matrices, and taps against the papers' formulas."""

import math

import pytest
import torch
from torch import Tensor

from afterword.backbone import attention_taps as taps
from afterword.backbone.attention_taps import Diagonals, MatrixView, MaxOverHeads, ScoreView

G, H, K, D, N = 2, 4, 2, 16, 30
CASES = ["full", "causal", "window", "softcap", "bias", "sinks"]


def make(case: str, n: int, dtype: torch.dtype = torch.float32) -> tuple[ScoreView, Tensor]:
    """A view of scores, and the matrix (G, H, n, n) that it must agree with."""
    g = torch.Generator().manual_seed(n)
    q, k = (torch.randn(G, h, n, D, generator=g).to(dtype) for h in (H, K))
    lower = torch.ones(n, n, dtype=torch.bool).tril()
    window = lower & ~lower.tril(-3)
    mask = {"full": torch.ones_like(lower), "window": window}.get(case, lower)
    bias = torch.randn(1, H, n, n, generator=g).to(dtype) if case == "bias" else None
    cap = 0.8 if case == "softcap" else None
    sinks = torch.randn(H, generator=g).to(dtype) if case == "sinks" else None
    s = q.double() @ k.double().repeat_interleave(H // K, 1).mT * 0.3
    s = s if cap is None else torch.tanh(s / cap) * cap
    s = (s if bias is None else s + bias).masked_fill(~mask, -math.inf)
    if sinks is not None:
        s = torch.cat([s, sinks.double().view(1, H, 1, 1).expand(G, H, n, 1)], -1)
    view = ScoreView(1, 0, case != "full", q, k, 0.3, mask if case == "window" else None, bias, cap, sinks)
    return view, s.softmax(-1)[..., :n]


@pytest.mark.parametrize("tile", [64, 5])
@pytest.mark.parametrize("n", [1, 7, 70])
@pytest.mark.parametrize("case", CASES)
def test_every_piece_is_a_piece_of_the_matrix(case: str, n: int, tile: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(taps, "TILE", tile)
    view, a = make(case, n)
    matrix = MatrixView(1, 0, case != "full", a)
    assert (view.heads, view.length) == (matrix.heads, matrix.length) == (H, n)
    torch.testing.assert_close(view.diagonal().double(), matrix.diagonal(), rtol=1e-5, atol=1e-7)
    columns = torch.randint(n, (G, 3), generator=torch.Generator().manual_seed(1))
    run = slice(n // 3, n // 3 + 1 + n // 2)
    seen = torch.ones(n, n, dtype=torch.bool).tril() if view.causal else torch.ones(n, n, dtype=torch.bool)
    for rows in (slice(0, n), slice(n // 2, n)):
        for heads in (slice(0, H), slice(1, 3), slice(3, 4)):
            k = torch.arange(n)[rows]
            for at, visible in ((columns, seen[k][:, columns].transpose(0, 1)[:, None]), (run, seen[k][:, run])):
                got, wanted = (v.log_weights(at, rows, heads).exp() for v in (view, matrix))
                torch.testing.assert_close((got * visible).double(), wanted, rtol=1e-5, atol=1e-7)
            visible = seen[columns][..., k].mT[:, None]
            got, wanted = (v.log_weights(rows, columns, heads).mT.exp() for v in (view, matrix))
            torch.testing.assert_close((got * visible).double(), wanted, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("case", CASES)
def test_float64_is_read_in_float64_and_half_precision_in_float32(case: str):
    view, a = make(case, 9, torch.float64)
    torch.testing.assert_close(view.diagonal(), a.diagonal(dim1=2, dim2=3), rtol=1e-13, atol=1e-15)
    view, a = make(case, 9, torch.bfloat16)
    assert view.diagonal().dtype == torch.float32
    torch.testing.assert_close(view.diagonal().double(), a.diagonal(dim1=2, dim2=3), rtol=1e-5, atol=1e-6)


def layers(kinds: str, n: int = N) -> list[MatrixView]:
    """Random attention of several layers: c is causal, b bidirectional."""
    g = torch.Generator().manual_seed(5)
    made = []
    for i, kind in enumerate(kinds):
        s = torch.randn(G, H, n, n, generator=g, dtype=torch.float64) * 2
        if kind == "c":
            s = s.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -torch.inf)
        made.append(MatrixView(i, 0, kind == "c", s.softmax(-1)))
    return made


def literal(views: list[MatrixView], columns: Tensor, triangle: str) -> Tensor:
    """Algorithm 1: the maximum over layers and heads of (A + A^T) / 2, rows of the wanted tokens (G, C, n)."""
    new = torch.stack([((v.matrix + v.matrix.mT) / 2).amax(1) for v in views]).amax(0)
    new = new if triangle == "full" else new.triu()
    return torch.stack([new[g, columns[g]] for g in range(G)])


@pytest.mark.parametrize("rows", [256, 7])
@pytest.mark.parametrize("triangle", ["upper", "full"])
@pytest.mark.parametrize("kinds", ["c", "b", "ccb", "bcc", "cbcb"])
@pytest.mark.parametrize("which", ["one", "few", "run", "scattered"])
def test_max_over_heads_is_algorithm_1(which: str, kinds: str, triangle: str, rows: int, monkeypatch):
    monkeypatch.setattr(taps, "ROWS", rows)
    g = torch.Generator().manual_seed(1)
    columns = {
        "one": torch.tensor([[4], [29]]),
        "few": torch.tensor([[0, 3, 29], [7, 8, 9]]),
        "run": torch.arange(2, 20).expand(G, -1),
        "scattered": torch.stack([torch.randperm(N, generator=g)[:15].sort().values for _ in range(G)]),
    }[which]
    tap, made = MaxOverHeads([columns], triangle), layers(kinds)
    for view in made:
        assert tap.wants(view.layer)
        tap.read(view)
    torch.testing.assert_close(tap.result(0), literal(made, columns, triangle), rtol=1e-13, atol=1e-15)


def test_diagonals():
    made = layers("cb")
    layer, every = Diagonals(1), Diagonals()
    for view in made:
        for tap in (layer, every):
            if tap.wants(view.layer):
                tap.read(view)
    wanted = torch.stack([v.matrix.diagonal(dim1=2, dim2=3) for v in made], 1)
    assert torch.equal(layer.result(0), wanted[:, 1:])
    assert torch.equal(every.result(0), wanted)


@pytest.mark.parametrize("kind", ["scores", "matrix"])
@pytest.mark.parametrize("triangle", ["upper", "full"])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [3, 99])
def test_gradients_are_algorithm_1s_where_a_window_hides_tokens(kind: str, triangle: str, causal: bool, window: int):
    g, n = torch.Generator().manual_seed(3), 8
    q, k = (torch.randn(G, H, n, 4, generator=g, dtype=torch.float64, requires_grad=True) for _ in range(2))
    i = torch.arange(n)
    seen = (i[:, None] - i).abs() < window
    seen = seen & (i <= i[:, None]) if causal else seen
    matrix = MatrixView(0, 0, causal, (q @ k.mT / 2).masked_fill(~seen, -torch.inf).softmax(-1))
    columns = i.expand(G, -1)
    tap = MaxOverHeads([columns], triangle)
    tap.read(matrix if kind == "matrix" else ScoreView(0, 0, causal, q, k, 0.5, seen))
    weigh = torch.randn(G, n, n, generator=g, dtype=torch.float64)
    made = torch.autograd.grad((tap.result(0) * weigh).sum(), (q, k), retain_graph=True)
    wanted = torch.autograd.grad((literal([matrix], columns, triangle) * weigh).sum(), (q, k))
    torch.testing.assert_close(made, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("size", [1e3, 1e9])
@pytest.mark.parametrize("causal", [True, False])
def test_no_weight_is_more_than_1_however_large_the_scores(causal: bool, size: float):
    g = torch.Generator().manual_seed(0)
    q, k = (torch.randn(G, H, N, 8, generator=g) * size**0.5 for _ in range(2))
    view, columns = ScoreView(0, 0, causal, q, k, 1.0), torch.arange(N).expand(G, N)
    for triangle in ("upper", "full"):
        for tap in (MaxOverHeads([columns], triangle), MaxOverHeads([columns[:, 3:5]], triangle), Diagonals()):
            tap.read(view)
            assert tap.result(0).isfinite().all() and tap.result(0).min() >= 0 and tap.result(0).max() <= 1
