"""The authors' both-ways layers attend to padding, so that a text's vector depends on its batch. Ours does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.eager import Eager
from tests.oracle.table import relative

FILE, PAD = "vectors/llama_gqa__bellm_billm016__float32.npz", 0


@pytest.mark.parametrize(("name", "last"), [("last1", 1), ("last2", 2), ("all", 4)])
def test_the_difference_to_the_authors_padded_batch_is_the_padding(oracle: Path, name: str, last: int):
    found = np.load(oracle / FILE)
    unpadded, padded = found[f"prompt/{name}"], found[f"authors_padded_right/{name}"]
    ids = json.loads((oracle / "input_ids.json").read_text())["llama_gqa"]["bellm_prompt"]
    ours = last_tokens(oracle / "models" / "llama_gqa", ids, last, leak=False)
    theirs = last_tokens(oracle / "models" / "llama_gqa", ids, last, leak=True)
    assert relative(ours, unpadded) < 2e-5  # and so do the package's: test_oracle.py
    assert relative(theirs, padded) < 2e-5
    longest = max(range(len(ids)), key=lambda i: len(ids[i]))
    differs = np.abs(padded - unpadded).max(1) > 0.05
    assert differs.sum() == len(ids) - 1 and not differs[longest]  # the longest text has no padding


def last_tokens(model: Path, ids: list[list[int]], last: int, leak: bool) -> np.ndarray:
    """States of the last tokens (T, D) of one right-padded batch, padding open or closed to the last layers."""
    eager, n = Eager(model), max(map(len, ids))
    tokens = torch.tensor([row + [PAD] * (n - len(row)) for row in ids])
    real = torch.tensor([[1] * len(row) + [0] * (n - len(row)) for row in ids])
    hidden = torch.where(real.bool(), 0.0, torch.finfo(torch.float32).min)[:, None, None]

    def open_up(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        mask = torch.zeros_like(kwargs["attention_mask"])
        return args, {**kwargs, "attention_mask": mask if leak else mask + hidden}

    for layer in eager.attention_layers(eager.model)[-last:]:
        layer.register_forward_pre_hook(open_up, with_kwargs=True)
    with torch.no_grad():
        states = eager.model(input_ids=tokens, attention_mask=real).last_hidden_state
    return states[torch.arange(len(ids)), real.sum(1) - 1].numpy()
