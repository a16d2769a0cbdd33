import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from torch import Tensor, nn

from afterword.backbone import attention_kernels as fused
from afterword.backbone.attention import attend
from afterword.backbone.attention_masks import FILLER, PackedGroup, Plan, Rule, running
from afterword.backbone.bidirectional import Sight
from afterword.errors import UnsupportedModel

N = 40


def rule_of(mask: Tensor, *runs: PackedGroup, **plan: Any) -> Rule:
    """A rule of one's own: any mask (n, n), by index."""
    return Rule(Plan(runs or (PackedGroup(0, 0, 1, len(mask)),), **plan), lambda b, h, q, k: mask[q, k])


def eager(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float, **special: Any) -> Tensor:
    """Attention by the definition, (H, n, d)."""
    per = len(q) // len(k)
    s = q @ k.repeat_interleave(per, 0).mT * scale
    if (cap := special.get("softcap")) is not None:
        s = torch.tanh(s / cap) * cap
    if (bias := special.get("position_bias")) is not None:
        s = s + bias[0, :, : s.shape[-1], : s.shape[-1]]
    s = s.masked_fill(~mask, -math.inf)
    if (sinks := special.get("s_aux")) is not None:
        s = torch.cat([s, sinks[:, None, None].expand(-1, s.shape[1], 1)], -1)
    return (s / special.get("tau", 1)).softmax(-1)[..., : len(mask)] @ v.repeat_interleave(per, 0)


class Keep:
    """A reader that keeps what a view says of every weight."""

    def __init__(self) -> None:
        self.seen: dict[int, tuple[Tensor, Tensor]] = {}

    def wants(self, layer: int) -> bool:
        return True

    def read(self, view: Any) -> None:
        n = view.length
        columns = torch.arange(n).expand(len(view.q), n)
        whole = slice(0, n), slice(0, view.heads)
        self.seen[view.group] = view.diagonal(), view.log_weights(columns, *whole).exp()


@pytest.mark.parametrize("special", ["", "softcap", "s_aux", "position_bias"])
@pytest.mark.parametrize("kind", ["causal", "full", "window"])
@pytest.mark.parametrize("tile", [1 << 21, 64])
def test_each_text_attends_to_itself_alone(kind: str, special: str, tile: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fused, "CELLS", tile)
    generator = torch.Generator().manual_seed(0)
    runs = (PackedGroup(0, 0, 2, 23), PackedGroup(1, 46, 1, 5), PackedGroup(2, 51, 3, 1), PackedGroup(FILLER, 54, 2, 1))
    q, k, v = (torch.randn(1, h, 56, 16, generator=generator) for h in (4, 2, 2))
    options = {
        "": {},
        "softcap": {"softcap": 0.7},
        "s_aux": {"s_aux": torch.randn(4, generator=generator)},
        "position_bias": {"position_bias": torch.randn(1, 4, 56, 56, generator=generator)},
    }[special]

    def mask_function(b: int, h: int, q: Tensor, k: Tensor) -> Tensor:
        return {"causal": k <= q, "full": k >= 0, "window": (k <= q) & (q - k < 3)}[kind]

    keep = Keep()
    with torch.no_grad():
        plan = Plan(runs, readers=(keep,))
        got, weights = attend(nn.Identity(), q, k, v, Rule(plan, mask_function), 0.3, **options)
    assert weights is None and got.shape == (1, 56, 4, 16) and FILLER not in keep.seen
    for group, start, count, n, _ in runs[:3]:
        i = torch.arange(n)
        mask = mask_function(0, 0, i[:, None], i[None]).expand(n, n)
        for g in range(count):
            part = slice(start + g * n, start + (g + 1) * n)
            wanted = eager(q[0, :, part], k[0, :, part], v[0, :, part], mask, 0.3, **options)
            torch.testing.assert_close(got[0, part].transpose(0, 1), wanted, rtol=1e-5, atol=1e-6)
            a = eager(q[0, :, part], k[0, :, part], torch.eye(n).expand(2, n, n), mask, 0.3, **options)
            diagonal, log_weights = keep.seen[group]
            torch.testing.assert_close(diagonal[g], a.diagonal(dim1=1, dim2=2), rtol=2e-6, atol=1e-6)
            torch.testing.assert_close(
                log_weights[g].tril() if kind == "causal" else log_weights[g], a, rtol=2e-6, atol=1e-6
            )


@pytest.mark.parametrize("special", ["", "softcap", "s_aux", "position_bias"])
@pytest.mark.parametrize("kind", ["causal", "full", "window", "chunk"])
@pytest.mark.parametrize("tile", [1 << 21, 64])
def test_what_is_run_once_stands_in_front_of_each_text(
    kind: str, special: str, tile: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(fused, "CELLS", tile)
    p, generator = 5, torch.Generator().manual_seed(0)
    shared, prefix = PackedGroup(FILLER, 0, 1, p), range(p)
    runs = (
        shared,
        PackedGroup(0, 5, 2, 18, prefix),
        PackedGroup(1, 41, 1, 12),
        PackedGroup(2, 53, 1, 4, prefix),
        PackedGroup(3, 57, 2, 1, prefix),
    )
    q, k, v = (torch.randn(1, h, 59, 16, generator=generator) for h in (4, 2, 2))
    options = {
        "": {},
        "softcap": {"softcap": 0.7},
        "s_aux": {"s_aux": torch.randn(4, generator=generator)},
        "position_bias": {"position_bias": torch.randn(1, 4, 59, 59, generator=generator)},
    }[special]

    def mask_function(b: int, h: int, q: Tensor, k: Tensor) -> Tensor:
        rules = {"causal": k <= q, "full": k >= 0, "window": (k <= q) & (q - k < 3)}
        return {**rules, "chunk": (k <= q) & (q // 4 == k // 4)}[kind]

    with torch.no_grad():
        got, _ = attend(nn.Identity(), q, k, v, Rule(Plan(runs), mask_function), 0.3, **options)
    for _, start, count, m, in_front in runs:
        i = torch.arange(len(in_front) + m)
        mask = mask_function(0, 0, i[:, None], i[None]).expand(len(i), len(i))
        for first in range(start, start + count * m, m):
            whole = [*in_front, *range(first, first + m)]
            wanted = eager(q[0][:, whole], k[0][:, whole], v[0][:, whole], mask, 0.3, **options)[:, -m:]
            torch.testing.assert_close(got[0, first : first + m].transpose(0, 1), wanted, rtol=1e-5, atol=1e-6)


def test_what_is_run_once_cannot_see_what_follows():
    rule = Rule(
        Plan((PackedGroup(FILLER, 0, 1, 2), PackedGroup(0, 2, 1, 3, range(2))), force_bidirectional=True),
        lambda b, h, q, k: k <= q,
    )
    with pytest.raises(UnsupportedModel, match="2 tokens are run once for many texts"):
        attend(nn.Identity(), *[torch.zeros(1, 1, 5, 4)] * 3, rule)


@examples(15)
@given(
    tau=st.floats(0.2, 3), n=st.integers(1, 12), seed=st.integers(0, 99),
    kinds=st.sets(st.sampled_from(["softcap", "s_aux", "position_bias"])), causal=st.booleans(), reads=st.booleans(),
)  # fmt: skip
def test_a_temperature_divides_what_the_softmax_reads(
    tau: float, n: int, seed: int, kinds: set[str], causal: bool, reads: bool
):
    """Whatever a score is made of: softmax(scores / tau), and so for what reads the attention."""
    g = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(1, h, n, 16, generator=g, dtype=torch.float64) for h in (4, 2, 2))
    special: dict[str, Any] = {
        "softcap": 0.7,
        "s_aux": torch.randn(4, generator=g, dtype=torch.float64),
        "position_bias": torch.randn(1, 4, n, n, generator=g, dtype=torch.float64),
    }
    options = {kind: special[kind] for kind in kinds}
    mask, keep = torch.ones(n, n, dtype=torch.bool), Keep()
    mask = mask.tril() if causal else mask
    with torch.no_grad():
        rule = rule_of(mask, sight=Sight(temperature=tau), readers=(keep,) if reads else ())
        got, _ = attend(nn.Identity(), q, k, v, rule, 0.3, **options)
    wanted = eager(q[0], k[0], v[0], mask, 0.3, tau=tau, **options)
    torch.testing.assert_close(got[0].transpose(0, 1), wanted, rtol=1e-10, atol=1e-12)
    if reads:
        a = eager(q[0], k[0], torch.eye(n, dtype=torch.float64).expand(2, n, n), mask, 0.3, tau=tau, **options)
        torch.testing.assert_close(keep.seen[0][1][0].tril(), a.tril(), rtol=1e-10, atol=1e-12)


def test_what_may_change_attention_and_is_not_known_is_refused():
    q = torch.zeros(1, 1, 2, 4)
    rule = rule_of(torch.ones(2, 2, dtype=torch.bool))
    attend(nn.Identity(), q, q, q, rule, sliding_window=3, use_cache=False, alibi=None)
    with pytest.raises(UnsupportedModel, match="Identity passes alibi"):
        attend(nn.Identity(), q, q, q, rule, alibi=torch.zeros(1))
    with pytest.raises(UnsupportedModel, match="does not hand on the mask"), running(rule.plan):
        attend(nn.Identity(), q, q, q, None)


def test_gradients_go_through_the_tiles_too(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fused, "CELLS", 64)
    q, k, v = (torch.randn(1, 2, N, 8, requires_grad=True) for _ in range(3))
    lower = torch.ones(N, N, dtype=torch.bool).tril()
    out, _ = attend(nn.Identity(), q, k, v, rule_of(lower), 0.4, softcap=0.5)
    wanted = eager(q[0], k[0], v[0], lower, 0.4, softcap=0.5)
    weights = torch.randn(wanted.shape)
    ours = torch.autograd.grad((out[0].transpose(0, 1) * weights).sum(), (q, k, v))
    theirs = torch.autograd.grad((wanted * weights).sum(), (q, k, v))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("special", [{}, {"softcap": 0.7}])
def test_attention_is_read_in_float32_under_autocast_and_in_half_precision(special: dict[str, Any]):
    g = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, N, 16, generator=g).bfloat16() for _ in range(3))
    rule, wanted = rule_of(torch.ones(N, N, dtype=torch.bool).tril()), Keep()
    with torch.no_grad():
        attend(
            nn.Identity(),
            q.double(),
            k.double(),
            v.double(),
            Rule(Plan(rule.plan.groups, readers=(wanted,)), rule.mask_function),
            **special,
        )
        for half in (q.dtype, torch.float32):
            limit = 2e-4 if half == q.dtype and not special else 1e-5  # the fused kernel's exp, in half precision
            keep = Keep()
            mask = Rule(Plan(rule.plan.groups, readers=(keep,)), rule.mask_function)
            with torch.autocast("cpu", torch.bfloat16, enabled=half == torch.float32):
                attend(nn.Identity(), q.to(half), k.to(half), v.to(half), mask, **special)
            assert keep.seen[0][0].dtype == torch.float32
            torch.testing.assert_close(keep.seen[0][0].double(), wanted.seen[0][0], rtol=limit, atol=limit / 10)
            torch.testing.assert_close(
                keep.seen[0][1].double().tril(), wanted.seen[0][1].tril(), rtol=limit, atol=limit / 10
            )
