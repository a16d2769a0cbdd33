from pathlib import Path

import pytest
import torch
from tests.train.conftest import BOTH, DEV, ROWS

from afterword import Encoder, bellm, classical, prompt
from afterword.errors import DataError, InputError, MethodError
from afterword.train.prepare import check, load, precision
from afterword.train.rows import TrainingRows
from afterword.train.settings import Settings

WORDS = "red old far big sad hot dry new low wet raw mad shy icy".split() * 3


def test_the_methods_weights_and_layers_are_as_the_settings_say(models: Path):
    encoder = load(models / "llama", Settings(method=BOTH), device="cpu")
    assert encoder.method == BOTH and encoder.backbone.dtype == torch.float32
    half = Encoder.load(models / "llama", classical(), dtype=torch.bfloat16)
    assert load(half, Settings()).backbone.model is half.backbone.model
    assert half.backbone.dtype == torch.float32
    grown = [load(half, Settings(method=BOTH, added=2, fresh=True, seed=s)) for s in (1, 1, 2)]
    assert {g.backbone.facts.layers for g in grown} == {5}
    new = [g.backbone.stack.layers[-1].state_dict()["mlp.up_proj.weight"] for g in grown]
    assert torch.equal(new[0], new[1]) and not torch.equal(new[0], new[2])
    with pytest.raises(MethodError, match="bert is bidirectional already"):
        load(models / "bert", Settings(method=BOTH), device="cpu")


def test_the_turning_point_is_found_on_dev(models: Path):
    pairs = [{"sentence1": f"a {w}", "sentence2": f"the {w * (i % 3)}", "score": i % 5} for i, w in enumerate(WORDS)]
    found = load(models / "llama", Settings(method=bellm(last="auto")), TrainingRows.read(pairs), device="cpu").method
    assert found.sight.last in (1, 2, 3) and found == bellm(last=found.sight.last)
    with pytest.raises(MethodError, match="needs pairs to find the number with"):
        load(models / "llama", Settings(method=bellm(last="auto")), device="cpu")


def test_rows_that_cannot_be_used(models: Path):
    plain = Encoder.load(models / "llama", classical())
    asked = Encoder.load(models / "llama", prompt("{condition}: {text}"))
    rows, dev = TrainingRows.read(ROWS), TrainingRows.read(DEV)
    given = TrainingRows.read([{"sentence1": "a", "sentence2": "b", "condition": "c", "label": i} for i in range(6)])
    scored = Settings(loss="cosent", batch_size=6)
    check(Settings(batch_size=36), plain, rows, dev)
    check(scored, asked, given, given)
    with pytest.raises(DataError, match="row holds 36 rows, fewer than a batch of 37"):
        check(Settings(batch_size=37), plain, rows, None)
    with pytest.raises(DataError, match=r"row holds conditions: use a method whose template holds \{condition\}"):
        check(scored, plain, given, None)
    with pytest.raises(DataError, match=r"scored pairs, and the method's template holds \{condition\}"):
        check(scored, asked, given, dev)
    with pytest.raises(DataError, match="row holds pairs, and dev is scored pairs"):
        check(Settings(batch_size=6), plain, rows, rows)
    same = TrainingRows.read([{**row, "score": 3} for row in DEV])
    with pytest.raises(DataError, match="row holds one score, 3, for all pairs: nothing ranks them"):
        check(Settings(batch_size=6), plain, rows, same)
    with pytest.raises(InputError, match="prompts name the column 'query': row holds anchor, positive"):
        check(Settings(batch_size=6, prompts={"query": "find: "}), plain, rows, None)
    with pytest.raises(MethodError, match="states='static' read no layer, and LoRA adapts layers only: give rank 0"):
        check(Settings(batch_size=6), Encoder.load(models / "llama", classical(states="static")), rows, None)


def test_a_batch_is_that_of_all_processes(models: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(DataError, match="fewer than a batch of 40"):
        check(Settings(batch_size=10), Encoder.load(models / "llama", classical()), TrainingRows.read(ROWS), None)


def test_products_are_in_float32_on_a_cpu():
    assert precision(torch.device("cpu")) == "float32"
