import math

import pytest
import torch
from torch import Tensor

from afterword.backbone import attention_views as views
from afterword.backbone.attention_views import MatrixView, ScoreView, wide

G, H, K, D = 2, 4, 2, 16
CASES = ["plain", "causal", "window", "softcap", "bias", "sinks"]


def make(case: str, n: int, dtype: torch.dtype = torch.float32) -> tuple[ScoreView, Tensor]:
    """A view of scores, and the matrix (G, H, n, n) that it must agree with."""
    g = torch.Generator().manual_seed(n)
    q, k = (torch.randn(G, h, n, D, generator=g).to(dtype) for h in (H, K))
    lower = torch.ones(n, n, dtype=torch.bool).tril()
    window = lower & ~lower.tril(-3)
    mask = {"plain": torch.ones_like(lower), "window": window}.get(case, lower)
    bias = torch.randn(1, H, n, n, generator=g).to(dtype) if case == "bias" else None
    cap = 0.8 if case == "softcap" else None
    sinks = torch.randn(H, generator=g).to(dtype) if case == "sinks" else None
    s = q.double() @ k.double().repeat_interleave(H // K, 1).mT * 0.3
    s = s if cap is None else torch.tanh(s / cap) * cap
    s = (s if bias is None else s + bias).masked_fill(~mask, -math.inf)
    if sinks is not None:
        s = torch.cat([s, sinks.double().view(1, H, 1, 1).expand(G, H, n, 1)], -1)
    own = mask if case == "window" else None
    view = ScoreView(1, 0, case != "plain", q, k, 0.3, own, bias, cap, sinks)
    return view, s.softmax(-1)[..., :n]


@pytest.mark.parametrize("tile", [64, 5])
@pytest.mark.parametrize("n", [1, 7, 70])
@pytest.mark.parametrize("case", CASES)
def test_every_piece_is_a_piece_of_the_matrix(case: str, n: int, tile: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(views, "TILE", tile)
    view, a = make(case, n)
    whole = MatrixView(1, 0, case != "plain", a)
    assert (view.heads, view.length) == (whole.heads, whole.length) == (H, n)
    torch.testing.assert_close(view.diagonal().double(), whole.diagonal(), rtol=1e-5, atol=1e-7)
    columns = torch.randint(n, (G, 3), generator=torch.Generator().manual_seed(1))
    below = torch.ones(n, n, dtype=torch.bool).tril() if view.causal else torch.ones(n, n, dtype=torch.bool)
    for rows in (slice(0, n), slice(n // 2, n)):
        for heads in (slice(0, H), slice(1, 3), slice(3, 4)):
            k = torch.arange(n)[rows]
            means = below[k][:, columns].transpose(0, 1)[:, None]
            got, wanted = view.log_weights(columns, rows, heads).exp(), whole.log_weights(columns, rows, heads).exp()
            torch.testing.assert_close((got * means).double(), wanted, rtol=1e-5, atol=1e-7)
            means = below[columns][..., k].mT[:, None]
            got, wanted = (
                view.log_weights_transposed(columns, rows, heads).exp(),
                whole.log_weights_transposed(columns, rows, heads).exp(),
            )
            torch.testing.assert_close((got * means).double(), wanted, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("case", CASES)
def test_a_run_of_columns_is_read_as_its_tokens_are(case: str):
    view, a = make(case, 20)
    for v in (view, MatrixView(1, 0, view.causal, a)):
        columns = torch.arange(4, 11).expand(G, 7)
        rows, heads = slice(10, 20), slice(1, 4)
        one, other = v.log_weights(slice(4, 11), rows, heads), v.log_weights(columns, rows, heads)
        torch.testing.assert_close(one.exp(), other.exp(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("case", CASES)
def test_float64_is_read_in_float64(case: str):
    view, a = make(case, 9, torch.float64)
    assert view.diagonal().dtype == torch.float64
    torch.testing.assert_close(view.diagonal(), a.diagonal(dim1=2, dim2=3), rtol=1e-13, atol=1e-15)


def test_half_precision_is_read_in_float32():
    view, a = make("causal", 9, torch.bfloat16)
    assert view.diagonal().dtype == torch.float32
    torch.testing.assert_close(view.diagonal().double(), a.diagonal(dim1=2, dim2=3), rtol=1e-5, atol=1e-6)
    assert wide(torch.ones(1, dtype=torch.float16)).dtype == torch.float32


def test_the_fused_kernels_sum_is_the_tiles_sum():
    view, _ = make("causal", 70)
    _, fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        view.q, view.k, view.k, 0.0, True, attn_mask=None, scale=view.scaling
    )
    torch.testing.assert_close(fused.float(), view.lse, rtol=1e-6, atol=1e-6)
