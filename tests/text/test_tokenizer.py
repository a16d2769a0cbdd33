"""Ids and offsets as the tokenizer's own, and no state shared with another library."""

import json
import shutil

import numpy as np
import pytest
import torch
from tests.tiny import tiny, tiny_tokenizer

from afterword import Encoder, classical
from afterword.backbone.loading import load_backbone
from afterword.errors import InputError
from afterword.text.tokenizer import Tokenizer


@pytest.fixture(params=["llama", "bert"])
def hf(request: pytest.FixtureRequest):
    return tiny_tokenizer(request.param)


def test_prefix_and_suffix_are_what_it_puts_around(hf) -> None:
    own = Tokenizer(hf)
    assert own.prefix + own.ids(["a b"])[0] + own.suffix == hf("a b")["input_ids"]
    assert own.prefix + own.suffix


def test_another_librarys_padding_does_not_reach_us(hf) -> None:
    own = Tokenizer(hf)
    before = own.ids(["a", "a longer text"])
    hf(["a", "a longer text"], padding=True, truncation=True, max_length=4)
    hf.backend_tokenizer.enable_padding(length=50)
    assert own.ids(["a", "a longer text"]) == before


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory):
    return tiny("bert", tmp_path_factory.mktemp("tokens"))


def alone(encoder: Encoder, text: str):
    """The mean over the model run alone on what its own tokenizer gives."""
    model, given = encoder.backbone.model, encoder.backbone.tokenizer.hf(text, return_tensors="pt")
    implementation = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        with torch.no_grad():
            return model(**given).last_hidden_state[0].mean(0).numpy()
    finally:
        model.set_attn_implementation(implementation)


def test_special_tokens_are_split_where_the_folder_says_so(folder, tmp_path) -> None:
    shutil.copytree(folder, tmp_path / "split")
    config = json.loads((tmp_path / "split" / "tokenizer_config.json").read_text())
    config["split_special_tokens"] = True
    (tmp_path / "split" / "tokenizer_config.json").write_text(json.dumps(config))
    encoder, plain = (Encoder(load_backbone(f), classical()) for f in (tmp_path / "split", folder))
    for text in ("[MASK] of", "<pad> b", "a </s>"):
        assert np.abs(encoder.encode(text) - alone(encoder, text)).max() < 2e-5
        assert np.abs(encoder.encode(text) - plain.encode(text)).max() > 0.01
    assert encoder.fingerprint != plain.fingerprint


def test_tokens_added_after_load_reach_the_vectors(folder, tmp_path) -> None:
    encoder = Encoder(load_backbone(folder), classical())
    before, name = encoder.encode("say hello"), encoder.fingerprint
    encoder.backbone.tokenizer.hf.add_tokens([*(f"<{i}>" for i in range(265, 300)), "hello"])  # the table has 300 rows
    encoder.backbone.tokenizer.renew()
    for method in (encoder.encode, encoder.weights, lambda text: encoder.encode_words(text, ["hello"])):
        with pytest.raises(InputError, match="'hello', token 300"):
            method("say hello")
    assert encoder.encode("say").any()
    encoder.backbone.model.resize_token_embeddings(301, mean_resizing=False)
    after = encoder.encode("say hello")
    assert np.abs(after - alone(encoder, "say hello")).max() < 2e-5 and np.abs(after - before).max() > 0.01
    assert encoder.fingerprint != name
    encoder.save(tmp_path / "saved")
    assert np.array_equal(Encoder.load(tmp_path / "saved").encode("say hello"), after)
