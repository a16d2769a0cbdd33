"""``afterword inspect``: facts as they were found, invariance as it was measured."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import Run

from afterword import Encoder, classical, parse_method
from afterword.cli.inspect import bits, invariance


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
    assert found["batch_invariance"] == {"texts": 6, "differing": 0, "largest": 0.0, "relative": 0.0, "bits": 0}
    for suggested in found["methods"]:
        vector = Encoder.load(folder, parse_method(suggested["method"])).encode("a text")
        assert np.isfinite(vector).all(), suggested


def test_a_page(run: Run, minilm: Path):
    page = run("inspect", "-m", minilm)
    assert (page.code, page.err) == (0, "")
    for told in (
        "6 x 12, width 384",
        "both ways",
        "[CLS] ... [SEP]",
        "flat: ",
        "from eager",
        "to the last bit",
        "normalise",
    ):
        assert told in page.out


def test_without_packed_linears(run: Run, gpt2: Path, monkeypatch: pytest.MonkeyPatch):
    from afterword import kernels

    monkeypatch.setenv("AFTERWORD_KERNELS", "plain")
    cached = [f for f in vars(kernels).values() if hasattr(f, "cache_clear")]
    for function in cached:
        function.cache_clear()
    try:
        assert "not used: AFTERWORD_KERNELS=plain" in run("inspect", "-m", gpt2).out
    finally:
        for function in cached:
            function.cache_clear()


def test_a_difference_is_measured(gpt2: Path):
    """A model that gives other last bits in a batch is not told to be the same."""
    encoder = Encoder.load(gpt2, classical())
    hooked = encoder.backbone.model.register_forward_hook(
        lambda _, __, out: setattr(
            out, "last_hidden_state", out.last_hidden_state * (1 + 1e-6 * out.last_hidden_state.shape[1])
        )
    )
    found = invariance(encoder)
    hooked.remove()
    assert found["differing"] >= 5 and 1e-7 < found["relative"] < 1e-2 and found["bits"] > 3


def test_bits():
    one = np.array([1.0, -1.0, 0.0, 0.0], np.float32)
    assert bits(one, one) == 0
    assert bits(one, np.array([1.0, -1.0, -0.0, 0.0], np.float32)) == 0
    assert bits(one, np.nextafter(one, np.float32(9))) == 1
    assert bits(np.float64([1.0]), np.float64([1.0 + 2**-48])) == 5
    assert bits(np.float32([-1e-45]), np.float32([1e-45])) == 2
