"""Promise 1 (right): a trainer's padded batch gives bidirectional layers the gradients of eager attention."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.eager import Eager
from tests.tiny import tiny
from torch import Tensor

from afterword import Encoder, bellm, classical

pytest.importorskip("sentence_transformers", reason="the extra train is not installed")
pytest.importorskip("peft", reason="the extra train is not installed")
pytest.importorskip("datasets", reason="the extra train is not installed")
from afterword.st import sentence_transformer
from afterword.train.losses import make_loss
from afterword.train.settings import Settings

ANCHORS = ["The bank of the river.", "dog", "a b", "Seven more words stand here than before."]
POSITIVES = ["A river has a bank, and the bank has grass.", "a dog!", "b", "Words"]
NO_DROPOUT = {
    "gpt2": {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
    "bert": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
}


def gradients(model: Any) -> dict[str, Tensor]:
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def ours(folder: Path, last: int, how: str) -> tuple[float, dict[str, Tensor]]:
    """Through the trainer's own features and loss."""
    method = bellm(last=last, template=None, pool_special_tokens=True) if last else classical("mean")
    model = sentence_transformer(Encoder.load(folder, method)).train()
    if how == "checkpointing":
        inner = model[0].model
        newer = hasattr(inner, "activation_checkpointing_enable")  # transformers renamed it
        switch = inner.activation_checkpointing_enable if newer else inner.gradient_checkpointing_enable
        switch({"use_reentrant": False})
    features = [model.preprocess(texts) for texts in (ANCHORS, POSITIVES)]
    assert all((f["attention_mask"] == 0).any() for f in features), "the batch is ragged"
    loss = make_loss(model, Settings())(features, None)
    loss.backward()
    return loss.item(), gradients(model[0].model)


def theirs(folder: Path, last: int) -> tuple[float, dict[str, Tensor]]:
    """A text at a time, no padding, eager attention, the loss written out."""
    eager = Eager(folder)
    eager.model.train()
    with eager.both_ways(eager.model, last):
        sides = [
            torch.stack(
                [eager.model(**eager.tokenizer(t, return_tensors="pt")).last_hidden_state[0].mean(0) for t in ts]
            )
            for ts in (ANCHORS, POSITIVES)
        ]
        a, b = (torch.nn.functional.normalize(side) for side in sides)
        loss = -(20 * a @ b.T).log_softmax(1).diagonal().mean()
        loss.backward()
    return loss.item(), gradients(eager.model)


def apart(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> float:
    """The largest difference, of the largest gradient of its tensor; small tensors count against the largest of all.

    A key's bias adds the same to all of a query's scores: its gradient is 0, and what is computed is rounding.
    """
    assert found.keys() == wanted.keys()
    wanted = {n: g for n, g in wanted.items() if not n.endswith("key.bias")}
    top = max(float(g.abs().max()) for g in wanted.values())
    return max(float((found[n] - g).abs().max()) / max(float(g.abs().max()), 1e-3 * top) for n, g in wanted.items())


@pytest.mark.parametrize("how", ["plain", "checkpointing"])
@pytest.mark.parametrize(("kind", "last"), [("llama", 2), ("mistral", 2), ("gpt2", 2), ("gemma2", 2), ("bert", 0)])
def test_gradients_are_eagers_and_not_the_causal_models(kind: str, last: int, how: str, tmp_path: Path):
    folder = tiny(kind, tmp_path, **NO_DROPOUT.get(kind, {}))
    loss, found = ours(folder, last, how)
    wanted_loss, wanted = theirs(folder, last)
    assert abs(loss - wanted_loss) <= 1e-5 * abs(wanted_loss)
    assert apart(found, wanted) < 1e-5
    if last:
        assert apart(found, ours(folder, 0, how)[1]) > 1e-3
        assert apart(theirs(folder, 0)[1], wanted) > 1e-3


@pytest.mark.parametrize(("kind", "last"), [("llama", 0), ("llama", 2), ("bert", 0)])
def test_under_autocast_gradients_are_as_close_to_float32_as_eagers(kind: str, last: int, tmp_path: Path):
    folder = tiny(kind, tmp_path, **NO_DROPOUT.get(kind, {}))
    exact = theirs(folder, last)[1]
    with torch.autocast("cpu", torch.bfloat16):
        found, wanted = ours(folder, last, "plain")[1], theirs(folder, last)[1]
    assert 0 < apart(found, exact) < 2 * apart(wanted, exact) < 2
