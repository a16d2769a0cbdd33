"""Products of the last layer for the tokens alone that are read: fewer of them, and the same bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.tiny import tiny
from torch import nn

from afterword import Encoder, Method, classical, prompt, reba
from afterword.backbone import skip_unread as unread
from afterword.backbone.linear_patching import Patch
from afterword.methods.states import OwnStates

TEXTS = [f"text {i}: " + "all that is told in it, " * (i % 6) for i in range(20)]
FAMILIES = ("llama", "gpt2", "bert", "gemma3_text", "opt", "distilbert", "modernbert", "mixtral", "albert")
WHOLE = 1 << 40


@pytest.fixture(scope="module", params=FAMILIES)
def encoder(request, tmp_path_factory) -> Encoder:
    return Encoder.load(tiny(request.param, tmp_path_factory.mktemp(request.param)), classical(pool="last"))


@pytest.fixture
def rows(monkeypatch) -> list[int]:
    """The rows of every product of a cut layer."""
    seen: list[int] = []
    product = unread.ReadRows.product

    def noted(self, of, x):
        seen.append(len(self.at))
        return product(self, of, x)

    monkeypatch.setattr(unread.ReadRows, "product", noted)
    return seen


def whole(monkeypatch, encoder: Encoder, **options) -> np.ndarray:
    with monkeypatch.context() as now:
        now.setattr("afterword.backbone.skip_unread.WORTH", WHOLE)
        return encoder.encode(TEXTS, **options)


@pytest.mark.parametrize("pool", ["last", "cls"])
@pytest.mark.parametrize("kernels", ["plain", "packed"])
def test_the_bits_are_those_of_a_forward_that_is_run_whole(encoder, monkeypatch, rows, pool: str, kernels: str) -> None:
    monkeypatch.setenv("AFTERWORD_KERNELS", kernels)
    chosen = Encoder(encoder.backbone, classical(pool=pool))
    wanted = whole(monkeypatch, chosen)
    rows.clear()
    found = chosen.encode(TEXTS)
    assert np.array_equal(found, wanted)
    kind = encoder.backbone.facts.kind
    assert ("albert" in kind or "mixtral" in kind) == (not rows), "a shared layer, and experts, are never cut"
    assert set(rows) <= {len(TEXTS)}
    assert np.array_equal(chosen.encode(TEXTS[3]), found[3])


def test_what_is_cut(tmp_path) -> None:
    encoder = Encoder.load(tiny("llama", tmp_path), classical(pool="last"))
    encoder.encode(TEXTS)
    names = {id(m): name for name, m in encoder.backbone.model.named_modules()}
    with torch.no_grad(), encoder.backbone.packed.fast() as packed:
        found = [names[id(m)].removeprefix("layers.2.") for m in packed.tail or ()]
    assert found == ["self_attn.q_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]


@pytest.mark.parametrize(
    "method", [classical(), classical(pool="last", states="layer:2"), reba()],
    ids=["mean", "an earlier state", "attention"],
)  # fmt: skip
def test_what_reads_more_is_run_whole(tmp_path, rows, method) -> None:
    Encoder.load(tiny("llama", tmp_path), method).encode(TEXTS)
    assert not rows


def test_a_hook_sees_every_row(tmp_path, rows) -> None:
    encoder = Encoder.load(tiny("llama", tmp_path), classical(pool="last"))
    wanted = encoder.encode(TEXTS)
    assert rows
    seen: list[torch.Tensor] = []
    handle = encoder.backbone.model.layers[-1].mlp.register_forward_hook(lambda m, x, out: seen.append(out))
    rows.clear()
    assert np.array_equal(encoder.encode(TEXTS), wanted) and not rows
    assert all((out[0].abs().sum(-1) > 0).all() for out in seen)
    handle.remove()
    encoder.encode(TEXTS)
    assert rows


def test_a_layer_that_looks_at_other_tokens_is_not_cut(tmp_path, rows, monkeypatch) -> None:
    """Behind the last attention, each token gets something of the one in front of it."""
    encoder = Encoder.load(tiny("llama", tmp_path), classical(pool="last"))

    class Shifted(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x) + 0.1 * self.inner(x).roll(1, -2)

    model = encoder.backbone.model
    model.layers[-1].mlp = Shifted(model.layers[-1].mlp)
    linears = [m for m in model.modules() if isinstance(m, nn.Linear)]
    run = encoder.backbone._last
    with torch.no_grad(), encoder.backbone.packed.fast() as packed:
        found = unread.find(
            lambda batch, cut: run(packed.filling, batch, cut),
            linears,
            encoder.backbone.modules[-1],
            300,
            torch.device("cpu"),
        )
    assert found == ()


def test_where_no_kernel_was_tried_all_rows_run(tmp_path, rows) -> None:
    encoder = Encoder.load(tiny("llama", tmp_path), classical(pool="last"), dtype="float64")
    assert encoder.encode(TEXTS).shape == (20, 64) and not rows


def test_the_layers_are_looked_for_once(tmp_path, monkeypatch) -> None:
    encoder, looked = Encoder.load(tiny("llama", tmp_path), classical(pool="last")), []
    find = unread.find
    monkeypatch.setattr("afterword.backbone.backbone.find", lambda *given: looked.append(1) or find(*given))
    for _ in range(3):
        encoder.encode(TEXTS)
    assert len(looked) == 1


def test_words_read_few_rows_too(tmp_path, rows, monkeypatch) -> None:
    encoder = Encoder.load(tiny("bert", tmp_path), classical())
    words = ["text"] * len(TEXTS)
    with monkeypatch.context() as now:
        now.setattr("afterword.backbone.skip_unread.WORTH", WHOLE)
        wanted = encoder.encode_words(TEXTS, words)
    rows.clear()
    assert np.array_equal(encoder.encode_words(TEXTS, words), wanted) and rows


def test_a_template_that_is_run_once_for_all(tmp_path, rows, monkeypatch) -> None:
    encoder = Encoder.load(tiny("llama", tmp_path), prompt())
    wanted = whole(monkeypatch, encoder)
    rows.clear()
    assert np.array_equal(encoder.encode(TEXTS), wanted) and rows


def test_trained_on_between(tmp_path, rows) -> None:
    """A step of training sees every row, and what was packed before is made anew."""
    encoder = Encoder.load(tiny("llama", tmp_path), classical(pool="last"))
    before = encoder.encode(TEXTS)
    rows.clear()
    model = encoder.backbone.model
    out = model(input_ids=torch.arange(40)[None] % 300).last_hidden_state
    out.square().sum().backward()
    assert not rows and all(p.grad is not None for p in model.layers[-1].parameters())
    with torch.no_grad():
        for p in model.parameters():
            p -= 1e-4 * p.grad.sign()
    after = encoder.encode(TEXTS)
    assert rows and not np.array_equal(before, after)
    assert np.array_equal(after[2], encoder.encode(TEXTS[2]))


def test_no_patch_is_left(tmp_path) -> None:
    encoder = Encoder.load(tiny("llama", tmp_path), classical(pool="last"))
    encoder.encode(TEXTS)
    assert unread.current_patch() is None and isinstance(Patch({}, "float32"), Patch)
    assert not any("_compiled_call_impl" in vars(m) and m._compiled_call_impl for m in encoder.backbone.model.modules())


def test_a_folder(tmp_path: Path, rows, monkeypatch) -> None:
    """A sentence-transformers folder that pools by cls."""
    encoder = Encoder.load(tiny("bert", tmp_path / "a"), classical(pool="cls"))
    encoder.save(tmp_path / "b")
    again = Encoder.load(tmp_path / "b")
    assert np.array_equal(again.encode(TEXTS), whole(monkeypatch, encoder)) and rows


class Unit(nn.Module):
    """Makes each output as long as any other, without an epsilon: of zeros it makes no number."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inner(x)
        return y / y.norm(dim=-1, keepdim=True)


@pytest.mark.parametrize("where", ["mlp", "o_proj"])
def test_what_becomes_of_rows_that_nobody_reads_reaches_no_vector(tmp_path, rows, monkeypatch, where: str) -> None:
    encoder = Encoder.load(tiny("llama", tmp_path), classical(pool="last"))
    last = encoder.backbone.model.layers[-1]
    if where == "mlp":
        last.mlp = Unit(last.mlp)
    else:
        last.self_attn.o_proj = Unit(last.self_attn.o_proj)
    found = encoder.encode(TEXTS)
    assert rows and np.array_equal(found, whole(monkeypatch, encoder))
    assert np.array_equal(found[5], encoder.encode(TEXTS[5]))


class Direction(OwnStates):
    """The last states at length 1, without an epsilon."""

    def __call__(self, last: torch.Tensor) -> torch.Tensor:
        return last / last.norm(dim=-1, keepdim=True)


def test_states_of_a_users_own_class_get_every_row(tmp_path, rows) -> None:
    last = classical(pool="last")
    encoder = Encoder.load(tiny("llama", tmp_path), Method(states=Direction(), weigh=last.weigh))
    found = encoder.encode(TEXTS)
    assert not rows and np.isfinite(found).all() and np.array_equal(found[3], encoder.encode(TEXTS[3]))
    both = encoder.encode_many(TEXTS, {"own": encoder.method, "last": last})
    assert np.array_equal(both["own"], found) and np.isfinite(both["last"]).all()


def test_the_users_random_numbers_stay_as_they_are(tmp_path, rows) -> None:
    encoder = Encoder.load(tiny("llama", tmp_path), classical(pool="last"))
    torch.manual_seed(0)
    wanted = torch.rand(3)
    torch.manual_seed(0)
    encoder.encode(TEXTS)
    assert rows and torch.equal(torch.rand(3), wanted)
