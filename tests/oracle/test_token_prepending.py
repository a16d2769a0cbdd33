"""The vectors of Token Prepending's own code (fuyuchenIfyw/token_prepending@cc41b58), through the public API."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.oracle.table import relative
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from afterword import Encoder, prompt
from afterword.methods import Method, token_prepending
from afterword.papers.measurement import sweep

PST = 32000
NAMES: dict[str, Callable[..., Method]] = {
    "vanilla": lambda t, s, p: prompt(t, p, s),
    "tp_1_2": lambda t, s, p: token_prepending(t, 1, 2, s, pool=p),
    "tp_1_4": lambda t, s, p: token_prepending(t, 1, 4, s, pool=p),
    "tp_1_6": lambda t, s, p: token_prepending(t, 1, 6, s, pool=p),
}


@pytest.fixture(scope="module")
def model(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    """The authors' tiny llama, with a tokenizer whose word "w7" is token 7 and that knows <PST>."""
    folder = tmp_path_factory.mktemp("llama_tp") / "model"
    shutil.copytree(shared / "oracle_methods" / "llama_tp", folder)
    words = {"w0": 0, "<s>": 1, **{f"w{i}": i for i in range(2, PST)}, "<PST>": PST}
    backend = Tokenizer(models.WordLevel(words, unk_token="w0"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>").save_pretrained(folder)
    return Encoder.load(folder)


@pytest.fixture(scope="module")
def rows(shared: Path) -> list[list[int]]:
    found: list[list[int]] = json.loads((shared / "oracle_methods" / "token_prepending_ids.json").read_text())
    assert all(row[0] == 1 and row.index(PST) == 5 for row in found)
    return found


def spelled(ids: list[int]) -> str:
    return " ".join(f"w{i}" for i in ids)


@pytest.mark.parametrize("name", NAMES)
def test_every_layer_at_the_last_token(name: str, model: Encoder, rows: list[list[int]], shared: Path):
    """What stands in front of the placeholder is the condition: so all texts are in one batch, of ids or of words."""
    z = np.load(shared / "oracle_methods" / "token_prepending.npz")
    conditions, texts = [spelled(row[1:5]) for row in rows], [row[6:] for row in rows]
    made = [Encoder(model.backbone, NAMES[name]("{condition} <PST> {text}", f"layer:{k}", "last")) for k in range(7)]
    got = np.stack([encoder.encode(texts, conditions=conditions) for encoder in made], 1)
    assert relative(got, z[f"{name}/padded/last"]) < 2e-5
    for i in (0, 1):
        alone = np.concatenate([e.encode([texts[i]], conditions=[conditions[i]]) for e in made])
        assert relative(alone, z[f"{name}/text{i}/last"]) < 2e-5
        assert (alone == got[i]).all(), "alone and in a batch"
    words = made[5].encode([spelled(t) for t in texts], conditions=conditions)
    assert (words == got[:, 5]).all(), "texts of words are those of their ids"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("i", [0, 1])
def test_every_token_of_the_last_layer(name: str, i: int, model: Encoder, rows: list[list[int]], shared: Path):
    wanted = np.load(shared / "oracle_methods" / "token_prepending.npz")[f"{name}/text{i}/final_layer"]
    encoder = Encoder(model.backbone, NAMES[name](spelled(rows[i][1:5]) + " <PST> {text}", "last", "mean"))
    text = rows[i][6:]
    assert relative(sweep(encoder, [text], list)[0].numpy(), wanted) < 2e-5
    own = encoder.encode_words([text], [[(j, j + 1) for j in range(len(text))]])[0]
    assert relative(own, wanted[6:]) < 2e-5
    tokens, weights = encoder.weights(text)
    assert tokens.index("<PST>") == 5 and weights[5] > 0
    assert relative(encoder.encode([text])[0], wanted[1:].mean(0)) < 2e-5
