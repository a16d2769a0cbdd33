import math

import pytest
import torch
from torch import Tensor

from afterword.backbone import attention_kernels as fused
from afterword.backbone.attention_masks import Mask

N, P = 37, 5


def by_hand(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float, sinks: Tensor | None) -> tuple[Tensor, Tensor]:
    """Attention by the definition, in float64, and its log-sum-exp."""
    per = q.shape[1] // k.shape[1]
    s = (q.double() @ k.double().repeat_interleave(per, 1).mT * scale).masked_fill(~mask, -math.inf)
    if sinks is not None:
        s = torch.cat([s, sinks.double().view(1, -1, 1, 1).expand(*s.shape[:3], 1)], -1)
    return s.softmax(-1)[..., : k.shape[2]] @ v.double().repeat_interleave(per, 1), s.logsumexp(-1)


def inputs(width: int, keys: int = N) -> tuple[Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    return tuple(torch.randn(2, h, n, d, generator=g) for h, n, d in ((4, N, 16), (2, keys, 16), (2, keys, width)))  # type: ignore[return-value]


LOWER = torch.ones(N, N, dtype=torch.bool).tril()
BEHIND = torch.ones(N, N + P, dtype=torch.bool).tril(P)
MASKS = {
    "causal": (Mask(None, True, True), LOWER),
    "full": (Mask(None, False, False), torch.ones_like(LOWER)),
    "window": (Mask(LOWER.triu(-4), False, True), LOWER.triu(-4)),
    "behind": (Mask(BEHIND, False, True), BEHIND),
}


@pytest.mark.parametrize("kind", MASKS)
def test_sinks_come_from_the_fused_kernels_log_sum_exp(kind: str, monkeypatch: pytest.MonkeyPatch):
    mask, allowed = MASKS[kind]
    q, k, v = inputs(16, allowed.shape[1])
    sinks = torch.tensor([-2.0, 0.0, 1.5, 30.0])
    wanted, wanted_lse = by_hand(q, k, v, allowed, 0.3, sinks)
    plain, _ = fused.attention(q.requires_grad_(), k, v, mask, 0.3, sinks=sinks)
    torch.testing.assert_close(plain.double(), wanted, rtol=1e-5, atol=1e-6)
    monkeypatch.delattr(fused, "_unfused")
    with torch.no_grad():
        got, lse = fused.attention(q, k, v, mask, 0.3, sinks=sinks, want_lse=True)
        torch.testing.assert_close(got.double(), wanted, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(lse.double(), wanted_lse, rtol=1e-6, atol=1e-6)
        alone, _ = fused.attention(q[1:], k[1:], v[1:], mask, 0.3, sinks=sinks)
        assert (alone[0] - got[1]).abs().max() <= 1e-5 * got[1].abs().max()
        half, _ = fused.attention(*(x.bfloat16() for x in (q, k, v)), mask, 0.3, sinks=sinks.bfloat16())
        assert half.dtype == torch.bfloat16 and (half.double() - wanted).abs().max() < 2e-2


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("want_lse", [False, True])
def test_values_narrower_than_keys_go_through_the_fused_kernel(kind: str, want_lse: bool):
    mask, allowed = MASKS[kind]
    q, k, v = inputs(10, allowed.shape[1])
    wanted, wanted_lse = by_hand(q, k, v, allowed, 0.3, None)
    with torch.no_grad():
        got, lse = fused.attention(q, k, v, mask, 0.3, want_lse=want_lse)
        alone, _ = fused.attention(q[1:], k[1:], v[1:], mask, 0.3, want_lse=want_lse)
    torch.testing.assert_close(got.double(), wanted, rtol=1e-5, atol=1e-6)
    assert got.shape == (2, 4, N, 10) and torch.equal(alone[0], got[1])
    assert (lse is not None) == want_lse and (lse is None or torch.allclose(lse.double(), wanted_lse, atol=1e-5))


def test_no_dense_kernel_is_used_where_a_fused_one_is_to_be_had():
    q, k, v = inputs(10)
    with torch.no_grad(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        fused.attention(q, k, v, MASKS["causal"][0], 0.3)
        fused.attention(q, k, k, MASKS["window"][0], 0.3, sinks=torch.zeros(4))
    names = {event.name for event in profile.events()}
    assert "aten::_scaled_dot_product_flash_attention_for_cpu" in names
    assert not names & {"aten::_scaled_dot_product_attention_math", "aten::softmax", "aten::_softmax"}
