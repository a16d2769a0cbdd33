"""``afterword inspect``: the facts about a model, in JSON and on a short page."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import Run

from afterword import Encoder, classical, parse_method


@pytest.mark.parametrize("name", ["gpt2", "bert", "llama_gqa", "roberta"])
def test_facts(run: Run, oracle: Path, name: str):
    folder = oracle / "models" / name
    ended = run("inspect", "-m", folder, "--json", "--method", "classical")
    assert (ended.code, ended.err) == (0, "")
    found, facts = json.loads(ended.out), Encoder.load(folder, classical()).backbone.facts
    for key in ("kind", "layers", "heads", "width", "causal", "way", "attention"):
        assert found[key] == getattr(facts, key)
    assert found["self_check"] == facts.checks and "from eager" in found["self_check"]["flat"]
    assert found["causal"] == (name in ("gpt2", "llama_gqa"))
    for suggested in found["methods"]:
        vector = Encoder.load(folder, parse_method(suggested["method"])).encode("a text")
        assert np.isfinite(vector).all(), suggested


@pytest.mark.parametrize("model", ["minilm", "afterword-mini"])
def test_the_page_has_at_most_fifteen_lines(run: Run, model: str, request: pytest.FixtureRequest):
    name = request.getfixturevalue("minilm") if model == "minilm" else model
    page = run("inspect", "-m", name)
    assert (page.code, page.err) == (0, "")
    assert len(page.out.splitlines()) <= 15
    for shown in ("M parameters", "6 of", "from eager", "linear layers", "--method classical"):
        assert shown in page.out
