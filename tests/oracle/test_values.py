"""Vectors of the authors' code for what is read inside layers: AlignedWVA, value vectors, MoEE."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.oracle.table import relative
from tests.tiny import tiny_tokenizer
from transformers import AutoModel

from afterword import Encoder, classical, ensemble
from afterword.backbone.attention_taps import Matrices
from afterword.backbone.backbone import Backbone
from afterword.backbone.self_check import check
from afterword.post import parse_post
from afterword.text.batch import lay
from afterword.text.segments import Segment, TokenizedText
from afterword.text.tokenizer import Tokenizer

TOLERANCE = 2e-5


@pytest.fixture(scope="module")
def folder(shared: Path) -> Path:
    if not (shared / "oracle_methods").is_dir():
        pytest.skip(f"{shared / 'oracle_methods'} does not exist")
    return shared / "oracle_methods"


def loaded(path: Path) -> Backbone:
    """A model without a tokenizer of its own: texts are lists of token ids."""
    model = AutoModel.from_pretrained(path, attn_implementation="afterword", dtype=torch.float32)
    return check(model.eval(), Tokenizer(tiny_tokenizer("gpt2")))


@pytest.fixture(scope="module")
def llama(folder: Path) -> tuple[Backbone, dict[str, np.ndarray], list[list[int]]]:
    ids = json.loads((folder / "contrastive_prompting_ids.json").read_text())["normal"]
    return loaded(folder / "llama_tp"), dict(np.load(folder / "single_pass.npz")), ids


def test_aligned_values(llama: tuple[Backbone, dict[str, np.ndarray], list[list[int]]]) -> None:
    own, arrays, ids = llama
    whole = Encoder(own, classical("last", states="attention:all"))
    assert relative(whole.encode(ids[:2]), arrays["attention_sum"]) < TOLERANCE
    for i in range(2):
        layers = [Encoder(own, classical("last", states=f"attention:{k}")).encode([ids[i]])[0] for k in range(6)]
        assert relative(np.stack(layers), arrays[f"aligned/text{i}"]) < TOLERANCE
        words = [(t, t + 1) for t in range(len(ids[i]))]
        values = [Encoder(own, classical(states=f"values:{k}")).encode_words([ids[i]], [words])[0] for k in range(6)]
        assert relative(np.stack(values), arrays[f"values/text{i}"]) < TOLERANCE
        everything = Encoder(own, classical(states="values:all", add_special_tokens=False)).encode([ids[i]])[0]
        assert relative(everything, arrays[f"values/text{i}"].mean((0, 1))) < TOLERANCE


def test_the_last_tokens_attention(llama: tuple[Backbone, dict[str, np.ndarray], list[list[int]]]) -> None:
    own, arrays, ids = llama
    for i in range(2):
        batch = lay([TokenizedText((Segment(ids[i], ((0, len(ids[i])),)),))])
        with torch.no_grad():
            own.forward(batch, taps=[tap := Matrices()])
        found = np.stack([matrix[0, :, -1].numpy() for matrix in tap.parts[0]])
        assert relative(found, arrays[f"last_row/text{i}"]) < TOLERANCE


@pytest.fixture(scope="module")
def olmoe(folder: Path) -> tuple[Backbone, dict[str, np.ndarray], list[list[int]]]:
    ids = json.loads((folder / "moee_ids.json").read_text())
    return loaded(folder / "olmoe"), dict(np.load(folder / "moee.npz")), ids


@pytest.mark.parametrize(("states", "name"), [("last", "HS"), ("router", "RW")])
def test_moee(states: str, name: str, olmoe: tuple[Backbone, dict[str, np.ndarray], list[list[int]]]) -> None:
    own, arrays, ids = olmoe
    encoder = Encoder(own, classical("last", states=states))
    assert relative(encoder.encode(ids[:3]), arrays[name]) < TOLERANCE
    batch = replace(encoder, post=parse_post("standardise")).fit(ids)  # the authors' code does so in each batch
    assert relative(batch.encode(ids), arrays[f"{name}_batch"]) < TOLERANCE


def test_moee_as_one_vector(olmoe: tuple[Backbone, dict[str, np.ndarray], list[list[int]]]) -> None:
    """Concatenated; z-scored; and as the weighted sum of both similarities."""
    own, arrays, ids = olmoe
    members = [classical("last"), classical("last", states="router")]
    both = Encoder(own, ensemble(members, "concat"))
    assert relative(both.encode(ids[:3]), np.hstack([arrays["HS"], arrays["RW"]])) < TOLERANCE
    batch = replace(both, post=parse_post("standardise")).fit(ids)
    assert relative(batch.encode(ids), np.hstack([arrays["HS_batch"], arrays["RW_batch"]])) < TOLERANCE
    vectors = Encoder(own, ensemble(members, "concat", [1, 0.3], normalise=True)).encode(ids[:3])
    units = [arrays[name] / np.linalg.norm(arrays[name], axis=1, keepdims=True) for name in ("HS", "RW")]
    assert relative(vectors @ vectors.T, units[0] @ units[0].T + 0.3 * units[1] @ units[1].T) < TOLERANCE
    assert Encoder(own, ensemble("moee")).dimension == 32 + 24
