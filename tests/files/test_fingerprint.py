"""Fingerprints and identities: they stay when an encoder is saved, and change with every part."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.tiny import tiny

from afterword import Encoder, classical, ditto, ensemble, reba
from afterword.post import Dense, Normalise, Truncate


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny("bert", tmp_path_factory.mktemp("model") / "bert")


@pytest.fixture
def encoder(folder: Path) -> Encoder:
    return Encoder.load(folder, classical())


@pytest.mark.parametrize("kind", ["bert", "gpt2", "llama", "roberta", "t5", "modernbert", "albert"])
def test_it_stays_when_an_encoder_is_saved_and_loaded(tmp_path: Path, kind: str):
    model = Encoder.load(tiny(kind, tmp_path / "model"), classical(), max_length=20)
    for method in (classical(), ditto("1-2") if kind == "bert" else reba()):
        post, prompts = (Truncate(8), Normalise()), {"query": "q: ", "passage": "p: "}
        encoder = Encoder(model.backbone, method, post, 20, prompts)
        encoder.save(tmp_path / "saved", overwrite=True)
        again = Encoder.load(tmp_path / "saved")
        assert again.fingerprint == encoder.fingerprint and again.identity == encoder.identity


def test_a_random_pooler_does_not_count(tmp_path: Path, folder: Path):
    bare = tmp_path / "bare"
    bare.mkdir()
    for item in folder.iterdir():
        (bare / item.name).write_bytes(item.read_bytes())
    weights = {k: v for k, v in load_file(folder / "model.safetensors").items() if "pooler" not in k}
    save_file(weights, bare / "model.safetensors", {"format": "pt"})
    assert len({Encoder.load(path, classical()).fingerprint for path in (folder, bare, bare)}) == 1


def test_every_part_counts(encoder: Encoder, folder: Path, tmp_path: Path):
    changed = Encoder.load(folder, classical())
    with torch.no_grad():
        changed.backbone.model.get_parameter("embeddings.LayerNorm.bias")[0] += 1e-3
    both, weight = [classical(), reba()], torch.eye(4, 64)
    changes: list[dict[str, object]] = [
        {"backbone": changed.backbone},
        {"backbone": Encoder.load(tiny("bert", tmp_path / "eps", layer_norm_eps=1e-5), classical()).backbone},
        {"method": classical("cls")},
        {"method": reba()},
        {"method": reba(columns="content")},
        {"method": ensemble(both)},
        {"method": ensemble(both[::-1])},
        {"method": ensemble(both, "concat")},
        {"method": ensemble(both, weights=[1, 2])},
        {"method": ensemble(both, normalise=True)},
        {"post": (Normalise(),)},
        {"post": (Truncate(3),)},
        {"post": (Truncate(4),)},
        {"post": (Dense(weight),)},
        {"post": (Dense(weight * 2),)},
        {"post": (Dense(weight, torch.zeros(4)),)},
        {"post": (Dense(weight, None, "Tanh"),)},
        {"prompts": {"query": "q: "}},
        {"prompts": {"query": "Q: "}},
        {"prompts": {"query": "q: "}, "default_prompt_name": "query"},
        {"max_length": 17},
    ]
    others = [encoder, *(replace(encoder, **change) for change in changes)]
    for names in ([e.fingerprint for e in others], [e.identity for e in others]):
        assert len(set(names)) == len(names)
    assert replace(encoder).fingerprint == encoder.fingerprint
    same = [ensemble(both, weights=weights) for weights in (None, [1, 1], [3, 3])]
    assert len({replace(encoder, method=method).identity for method in same}) == 1


def test_the_hubs_commit_counts_and_is_kept(tmp_path: Path, folder: Path, encoder: Encoder):
    other = Encoder.load(folder, classical())
    other.backbone.model.config._commit_hash = "0" * 40
    assert other.revision == "0" * 40 and other.fingerprint != encoder.fingerprint
    assert other.identity == encoder.identity
    other.save(tmp_path / "saved")
    again = Encoder.load(tmp_path / "saved")
    assert again.revision == "0" * 40 and again.fingerprint == other.fingerprint
