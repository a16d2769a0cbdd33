import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import masking_utils as masks

from afterword.backbone import attention_masks as rules
from afterword.backbone.attention_masks import Mask, MaskCache, PackedGroup, Plan, Rule, current, identity, running
from afterword.errors import UnsupportedModel

N = 40
CPU = torch.device("cpu")


def rule_of(mask: Tensor, *runs: PackedGroup, **plan: Any) -> Rule:
    """A rule of one's own: any mask (n, n), by index."""
    return Rule(Plan(runs or (PackedGroup(0, 0, 1, len(mask)),), **plan), lambda b, h, q, k: mask[q, k])


def look(rule: Rule, n: int, both_ways: bool = False) -> Tensor:
    """What `Mask` says, as a mask."""
    mask = rule.mask(n, both_ways, CPU)
    if mask.allowed is not None:
        assert not mask.causal
        return mask.allowed
    return torch.ones(n, n, dtype=torch.bool).tril() if mask.causal else torch.ones(n, n, dtype=torch.bool)


@pytest.mark.parametrize("cells", [1 << 21, 100])
@pytest.mark.parametrize("both_ways", [False, True])
def test_what_a_rule_says_is_read_to_the_last_entry(both_ways: bool, cells: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rules, "CELLS", cells)
    lower, i = torch.ones(N, N, dtype=torch.bool).tril(), torch.arange(N)
    masks = {"causal": lower, "full": torch.ones_like(lower)}
    for w in (1, 2, N - 1, N, N + 1):
        masks[f"window {w}"] = lower & (i[:, None] - i < w)
        masks[f"chunk {w}"] = lower & (i[:, None] // w == i // w)
        masks[f"window both ways {w}"] = (i[:, None] - i).abs() < w
    for row, column in ((17, 5), (N - 1, 0), (23, 23 - 7), (3, 30)):
        for name in ("causal", "full"):
            odd = masks[name].clone()
            odd[row, column] ^= True
            masks[f"{name} but ({row}, {column})"] = odd
    for name, mask in masks.items():
        wanted = mask | mask.mT if both_ways else mask
        rule = rule_of(mask)
        assert torch.equal(look(rule, N, both_ways), wanted), name
        assert rule.mask(N, both_ways, CPU).backward == (not wanted.triu(1).any()), name


def test_a_rule_that_counts_from_the_start_of_all_texts_counts_from_each_ones_own():
    def chunks(b: int, h: int, q: Tensor, k: Tensor) -> Tensor:
        return (q // 4 == k // 4) & (k <= q)

    rule = Rule(Plan((PackedGroup(0, 0, 1, 6), PackedGroup(1, 6, 2, 5))), chunks)
    i = torch.arange(5)
    assert torch.equal(look(rule, 5), (i[:, None] // 4 == i // 4) & (i <= i[:, None]))


def test_plans_do_not_outlive_their_forward():
    outer, inner = Plan(()), Plan(())
    with running(outer):
        with running(inner):
            assert current() is inner
        assert current() is outer
        with pytest.raises(ZeroDivisionError), running(inner):
            _ = 1 / 0
        assert current() is outer
    assert current() is None


def test_layers_are_numbered_in_order_of_first_call():
    first, second, plan = nn.Identity(), nn.Identity(), Plan(())
    assert [plan.enter(m) for m in (first, second, second, first)] == [0, 1, 1, 0]
    shared = Plan((), layers=3)
    assert [shared.enter(first) for _ in range(6)] == [0, 1, 2, 0, 1, 2]


SAME = [
    lambda: masks.causal_mask_function,
    lambda: masks.bidirectional_mask_function,
    lambda: masks.sliding_window_causal_mask_function(6),
    lambda: masks.sliding_window_causal_mask_function(7),
    lambda: masks.sliding_window_bidirectional_mask_function(6),
    lambda: masks.and_masks(masks.causal_mask_function, masks.sliding_window_overlay(6)),
]


def test_transformers_rules_are_recognised_and_no_two_of_them_taken_for_one_another():
    first, again = [identity(make()) for make in SAME], [identity(make()) for make in SAME]
    assert None not in first and first == again
    apart = {key: make() for key, make in zip(first[:5], SAME, strict=False)}
    assert len(apart) == 5


THRESHOLD = 3


def test_what_may_change_behind_a_rules_back_is_not_recognised():
    window = torch.tensor(4)
    state = {"w": 4}

    def tensor(b: int, h: int, q: Tensor, k: Tensor) -> Tensor:
        return q - k < window

    def dictionary(b: int, h: int, q: Tensor, k: Tensor) -> Tensor:
        return q - k < state["w"]

    def constant(b: int, h: int, q: Tensor, k: Tensor) -> Tensor:
        return q - k < THRESHOLD

    def calls(b: int, h: int, q: Tensor, k: Tensor) -> Tensor:
        return masks.causal_mask_function(b, h, q, k) & any(q is k for _ in range(2))  # type: ignore[operator,no-any-return]

    assert identity(tensor) is identity(dictionary) is identity(MaskCache().find) is identity(nn.Identity()) is None
    before = identity(constant)
    globals()["THRESHOLD"] = 5
    assert before is not None and identity(constant) != before
    assert identity(calls) is None, "a function within a function"


def test_a_rule_is_worked_out_once_for_all_forwards_of_a_model(monkeypatch: pytest.MonkeyPatch):
    asked: list[tuple[int, int]] = []
    whole = Rule._build

    def counted(self: Rule, p: int, n: int, *rest: Any) -> Mask:
        asked.append((p, n))
        return whole(self, p, n, *rest)

    monkeypatch.setattr(Rule, "_build", counted)
    kept, window = MaskCache(), masks.sliding_window_causal_mask_function
    for _ in range(3):
        for width in (4, 5):
            rule, i = Rule(Plan((), masks=kept), window(width)), torch.arange(9)
            wanted = (i[:, None] - i < width) & (i <= i[:, None])
            for both_ways in (False, True):
                assert torch.equal(look(rule, 9, both_ways), wanted | wanted.mT if both_ways else wanted)
            rule.mask(3, False, CPU, p=2)
    assert sorted(asked) == [(0, 9)] * 4 + [(2, 5)] * 2 and len(kept) == 6


def test_a_mask_that_was_made_without_gradients_serves_a_training_step():
    kept = MaskCache()
    with torch.inference_mode():
        Rule(Plan((), masks=kept), masks.sliding_window_causal_mask_function(2)).mask(5, False, CPU)
    mask = Rule(Plan((), masks=kept), masks.sliding_window_causal_mask_function(2)).mask(5, False, CPU).allowed
    assert mask is not None and not mask.is_inference()


def test_masks_take_a_bounded_memory_and_are_not_copied():
    kept = MaskCache(limit=3000)
    for i in range(6):
        kept.keep(i, Mask(torch.zeros(20, 20, dtype=torch.bool), False, True))  # 400 bytes, and 256 for itself
    assert len(kept) == 4 and kept.find(1) is None
    assert kept.find(2) is not None
    kept.keep(6, Mask(torch.zeros(20, 20, dtype=torch.bool), False, True))
    assert kept.find(2) is not None and kept.find(3) is None, "the one not asked for longest goes"
    kept.keep(7, Mask(torch.zeros(80, 80, dtype=torch.bool), False, True))
    assert kept.find(7) is None and len(kept) == 4
    assert len(pickle.loads(pickle.dumps(kept))) == 0


def test_a_rule_may_be_looked_for_in_a_list_and_cut_only_whole():
    rule, other = (Rule(Plan(()), lambda b, h, q, k: k <= q) for _ in range(2))
    assert rule in [other, rule] and rule not in {other} and {rule: 1}[rule] == 1
    assert rule[:, :, :, :] is rule[..., :] is rule
    with pytest.raises(UnsupportedModel, match="cuts its attention mask"):
        rule[:, :, 1:]
