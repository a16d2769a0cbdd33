import pytest
import torch
from torch import Tensor

from afterword.backbone import attention_taps as taps
from afterword.backbone.attention_taps import Diagonal, Diagonals, MaxOverHeads
from afterword.backbone.attention_views import MatrixView, ScoreView

G, H, N = 2, 3, 30


def layers(kinds: str, n: int = N, dtype: torch.dtype = torch.float64) -> list[MatrixView]:
    """Random attention of several layers: c sees backwards, b both ways."""
    g = torch.Generator().manual_seed(5)
    views = []
    for i, kind in enumerate(kinds):
        s = torch.randn(G, H, n, n, generator=g, dtype=dtype) * 2
        if kind == "c":
            s = s.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -torch.inf)
        views.append(MatrixView(i, 0, kind == "c", s.softmax(-1)))
    return views


def literal(views: list[MatrixView], columns: Tensor, triangle: str) -> Tensor:
    """Algorithm 1, whole: the maximum over layers and heads of (A + A^T) / 2, rows of the wanted tokens (G, C, n)."""
    new = torch.stack([((v.matrix + v.matrix.mT) / 2).amax(1) for v in views]).amax(0)
    new = new if triangle == "full" else new.triu()
    return torch.stack([new[g, columns[g]] for g in range(G)])


@pytest.mark.parametrize("rows", [256, 7])
@pytest.mark.parametrize("triangle", ["upper", "full"])
@pytest.mark.parametrize("kinds", ["c", "b", "ccc", "bb", "ccb", "bcc", "cbcb"])
@pytest.mark.parametrize("which", ["one", "few", "run", "scattered"])
def test_max_over_heads_is_algorithm_1(
    which: str, kinds: str, triangle: str, rows: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(taps, "ROWS", rows)
    g = torch.Generator().manual_seed(1)
    columns = {
        "one": torch.tensor([[4], [29]]),
        "few": torch.tensor([[0, 3, 29], [7, 8, 9]]),
        "run": torch.arange(2, 20).expand(G, -1),
        "scattered": torch.stack([torch.randperm(N, generator=g)[:15].sort().values for _ in range(G)]),
    }[which]
    tap = MaxOverHeads([columns], triangle)
    views = layers(kinds)
    for view in views:
        assert tap.wants(view.layer)
        tap.read(view)
    torch.testing.assert_close(tap.result(0), literal(views, columns, triangle), rtol=1e-13, atol=1e-15)


def test_only_the_layer_asked_for_is_read():
    columns = torch.tensor([[2], [3]])
    tap, views = MaxOverHeads([columns], layer=1), layers("ccc")
    assert [tap.wants(i) for i in range(3)] == [False, True, False]
    tap.read(views[1])
    torch.testing.assert_close(tap.result(0), literal(views[1:2], columns, "upper"))


def test_half_of_a_causal_matrix_needs_no_symmetrising():
    """(A + A^T) / 2 of a causal A is A / 2 off the diagonal and A on it, to the last bit."""
    a = layers("c")[0].matrix
    low, on = a.tril(-1), torch.diag_embed(a.diagonal(dim1=2, dim2=3))
    assert torch.equal((a + a.mT) / 2, (low + low.mT) / 2 + on)


def test_diagonals():
    views = layers("cb")
    one, every, whole = Diagonal(1, 2), Diagonal(1, None), Diagonals()
    for view in views:
        for tap in (one, every, whole):
            if tap.wants(view.layer):
                tap.read(view)
    wanted = torch.stack([v.matrix.diagonal(dim1=2, dim2=3) for v in views], 1)
    assert torch.equal(one.result(0), wanted[:, 1, 2])
    assert torch.equal(every.result(0), wanted[:, 1])
    assert torch.equal(whole.result(0), wanted)


def test_groups_are_read_apart():
    short, long = layers("c", 4), layers("c", 9)
    tap = MaxOverHeads([torch.tensor([[1], [2]]), torch.tensor([[3], [8]])])
    tap.read(MatrixView(0, 1, True, long[0].matrix))
    tap.read(MatrixView(0, 0, True, short[0].matrix))
    assert tap.result(0).shape == (G, 1, 4) and tap.result(1).shape == (G, 1, 9)
    torch.testing.assert_close(tap.result(1), literal(long, torch.tensor([[3], [8]]), "upper"))


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
    matrix = (q @ k.mT / 2).masked_fill(~seen, -torch.inf).softmax(-1)
    plain, columns = MatrixView(0, 0, causal, matrix), i.expand(G, -1)
    tap = MaxOverHeads([columns], triangle)
    tap.read(plain if kind == "matrix" else ScoreView(0, 0, causal, q, k, 0.5, seen))
    weigh = torch.randn(G, n, n, generator=g, dtype=torch.float64)
    made = torch.autograd.grad((tap.result(0) * weigh).sum(), (q, k), retain_graph=True)
    wanted = torch.autograd.grad((literal([plain], columns, triangle) * weigh).sum(), (q, k))
    torch.testing.assert_close(made, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("size", [1e3, 1e6, 1e9])
@pytest.mark.parametrize("causal", [True, False])
def test_no_weight_is_more_than_1_however_large_the_scores(causal: bool, size: float):
    g = torch.Generator().manual_seed(0)
    q, k = (torch.randn(G, H, N, 8, generator=g) * size**0.5 for _ in range(2))
    view = ScoreView(0, 0, causal, q, k, 1.0)
    columns = torch.arange(N).expand(G, N)
    for triangle in ("upper", "full"):
        whole, few = (MaxOverHeads([c], triangle) for c in (columns, columns[:, 3:5]))
        diagonal = Diagonals()
        for tap in (whole, few, diagonal):
            tap.read(view)
            assert tap.result(0).isfinite().all() and tap.result(0).min() >= 0 and tap.result(0).max() <= 1
