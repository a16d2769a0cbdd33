"""``afterword inspect``: facts as they were found, invariance as it was measured."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.cli.conftest import Run

from afterword import Encoder, classical, parse_method
from afterword.backbone.linear_products import lacks_bfloat16
from afterword.cli.inspect import bits, invariance, kernel_line, measured


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
    same = {"texts": 24, "batch_tokens": [2048, 160, 24], "differing": 0, "largest": 0.0, "relative": 0.0, "bits": 0}
    assert found["batch_invariance"] == same
    assert found["products"] == "float32"
    for row in found["kernels"]:
        assert row["keeps_bits"][row["kernel"]] and row["largest_batch"][row["kernel"]] >= 1024
        assert row["seconds"][row["kernel"]] > 0 and row["layers"] >= 1
    for suggested in found["methods"]:
        vector = Encoder.load(folder, parse_method(suggested["method"])).encode("a text")
        assert np.isfinite(vector).all(), suggested


def test_a_page(run: Run, minilm: Path):
    page = run("inspect", "-m", minilm)
    assert (page.code, page.err) == (0, "")
    for told in (
        "6 x 12, width 384",
        "direction       bidirectional",
        "[CLS] ... [SEP]",
        "execution       unpadded (flat):",
        "flat: ",
        "from eager",
        "to the last bit",
        "normalise",
        "384 -> 1536 (6x):",
        "the same bits alone and among up to",
    ):
        assert told in unwrapped(page.out) or told in page.out


def unwrapped(page: str) -> str:
    """The words of a page, which breaks its lines between them."""
    return " ".join(page.split())


def test_a_narrow_page_breaks_between_words(run: Run, gpt2: Path, monkeypatch: pytest.MonkeyPatch):
    wide = run("inspect", "-m", gpt2)
    monkeypatch.setenv("COLUMNS", "60")
    narrow = run("inspect", "-m", gpt2)
    assert wide.err == narrow.err == ""  # no advice on methods: it is on the page
    assert max(map(len, narrow.out.splitlines())) <= 60 < max(map(len, wide.out.splitlines()))

    def words(page: str) -> set[str]:
        return {word for word in page.split() if word.isalpha()}

    assert words(narrow.out) == words(wide.out)


def test_forced_kernels(run: Run, gpt2: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AFTERWORD_KERNELS", "plain")
    assert "not used: AFTERWORD_KERNELS=plain" in run("inspect", "-m", gpt2).out
    monkeypatch.setenv("AFTERWORD_KERNELS", "packed")
    rows = json.loads(run("inspect", "-m", gpt2, "--json").out)["kernels"]
    wanted = "packed" if torch.backends.mkldnn.is_available() else "plain"
    assert rows and all(row["kernel"] == wanted and wanted in row["keeps_bits"] for row in rows)


def test_no_more_is_said_than_holds(run: Run, gpt2: Path):
    """bfloat16 depends on the batch on some processors: no difference in a few texts is no promise."""
    page = unwrapped(run("inspect", "-m", gpt2, "--dtype", "bfloat16").out)
    assert "the same to the last bit" not in page
    assert "texts differ in a batch" in page or "bfloat16 on cpu promises no more than that" in page
    row = {"layer": "9 -> 3", "layers": 2, "kernel": "plain", "keeps_bits": {"plain": False, "packed": True},
           "largest_batch": {"plain": 64, "packed": 64}, "seconds": {"plain": 1.0, "packed": 1.5}}  # fmt: skip
    told = "9 -> 3 (2x): plain, a row's bits depend on its batch; packed keeps them and is slower"
    assert kernel_line(row) == f"{told}; packed has 0.67 x the speed of plain"
    same = {"texts": 2, "batch_tokens": [8], "differing": 0}
    found = {"batch_invariance": same, "dtype": "float32", "device": "cpu", "products": "float32", "kernels": [row]}
    assert "the kernel promises no more than that" in measured(found | {"experts": False})
    assert "experts promise no more than that" in measured(found | {"experts": True})


def test_products_that_the_processor_lacks(run: Run, gpt2: Path):
    ended = run("inspect", "-m", gpt2, "--products", "bfloat16")
    if lacks_bfloat16() is None:
        assert ended.code == 0 and "float32, products in bfloat16" in ended.out
    else:
        assert ended.code == 2 and ended.err.count("\n") == 1 and "neither AMX nor AVX512-BF16" in ended.err


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
    assert found["differing"] >= 20 and 1e-7 < found["relative"] < 1e-2 and found["bits"] > 3


def test_bits():
    one = np.array([1.0, -1.0, 0.0, 0.0], np.float32)
    assert bits(one, one) == 0
    assert bits(one, np.array([1.0, -1.0, -0.0, 0.0], np.float32)) == 0
    assert bits(one, np.nextafter(one, np.float32(9))) == 1
    assert bits(np.float64([1.0]), np.float64([1.0 + 2**-48])) == 5
    assert bits(np.float32([-1e-45]), np.float32([1e-45])) == 2
