import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.tiny import ENCODERS, tiny

from afterword import Encoder, classical, ditto, ensemble, reba
from afterword.post import Dense, Normalise, Truncate

KINDS = ["bert", "gpt2", "llama", "roberta", "t5", "modernbert", "albert"]
METHODS = {"classical": classical(), "reba": reba(), "ditto": ditto("1-2")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny("bert", tmp_path_factory.mktemp("model") / "bert")


@pytest.fixture
def encoder(folder: Path) -> Encoder:
    return Encoder.load(folder, classical())


@pytest.mark.parametrize(
    ("kind", "name"),
    [(k, m) for k in KINDS for m in METHODS if m != "ditto" or k in ENCODERS],  # of a decoder, Ditto warns
)
def test_it_stays_when_an_encoder_is_saved_and_loaded(tmp_path: Path, kind: str, name: str):
    model = Encoder.load(tiny(kind, tmp_path / "model"), METHODS[name], max_length=20)
    encoder = Encoder(model.backbone, model.method, (Truncate(8), Normalise()), 20, {"query": "q: ", "passage": "p: "})
    encoder.save(tmp_path / "saved")
    again = Encoder.load(tmp_path / "saved")
    assert again.fingerprint == encoder.fingerprint and again.identity == encoder.identity
    again.save(tmp_path / "again")
    assert Encoder.load(tmp_path / "again").fingerprint == encoder.fingerprint


@pytest.mark.soak
def test_it_stays_in_another_process(folder: Path, encoder: Encoder):
    """In `make test` the fresh process of tests/files/test_write_encoder.py says its fingerprint."""
    code = f"from afterword import Encoder, classical; print(Encoder.load({str(folder)!r}, classical()).fingerprint)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == encoder.fingerprint


def test_a_made_up_pooler_does_not_count(tmp_path: Path, folder: Path):
    from safetensors.torch import load_file, save_file

    bare = tmp_path / "bare"
    bare.mkdir()
    for item in folder.iterdir():
        (bare / item.name).write_bytes(item.read_bytes())
    weights = {k: v for k, v in load_file(folder / "model.safetensors").items() if "pooler" not in k}
    save_file(weights, bare / "model.safetensors", {"format": "pt"})
    names = {Encoder.load(path, classical()).fingerprint for path in (folder, bare, bare)}
    assert len(names) == 1


def test_every_part_counts(encoder: Encoder):
    def like(**changes: object) -> Encoder:
        return replace(encoder, **changes)

    weight = torch.eye(4, 64)
    others = [
        like(method=classical("cls")),
        like(method=reba()),
        like(method=reba(columns="content")),
        like(method=ensemble([classical(), reba()])),
        like(method=ensemble([reba(), classical()])),
        like(method=ensemble([classical(), reba()], "concat")),
        like(method=ensemble([classical(), reba()], weights=[1, 2])),
        like(method=ensemble([classical(), reba()], normalise=True)),
        like(post=(Normalise(),)),
        like(post=(Truncate(3),)),
        like(post=(Truncate(4),)),
        like(post=(Dense(weight),)),
        like(post=(Dense(weight * 2),)),
        like(post=(Dense(weight, torch.zeros(4)),)),
        like(post=(Dense(weight, None, "Tanh"),)),
        like(prompts={"query": "q: "}),
        like(prompts={"query": "Q: "}),
        like(prompts={"query": "q: "}, default_prompt_name="query"),
        like(max_length=17),
    ]
    for names in ([e.fingerprint for e in (encoder, *others)], [e.identity for e in (encoder, *others)]):
        assert len(set(names)) == len(names)
    assert like().fingerprint == encoder.fingerprint
    same = [ensemble([classical(), reba()], weights=weights) for weights in (None, [1, 1], [3, 3])]
    assert len({like(method=method).identity for method in same}) == 1


@pytest.mark.parametrize("name", ["embeddings.LayerNorm.bias", "encoder.layer.2.attention.self.key.weight"])
def test_one_changed_weight_counts(folder: Path, encoder: Encoder, name: str):
    other = Encoder.load(folder, classical())
    with torch.no_grad():
        other.backbone.model.get_parameter(name).view(-1)[0] += 1e-3
    assert other.fingerprint != encoder.fingerprint


def test_a_setting_that_is_no_weight_counts(tmp_path: Path):
    names = set()
    for eps in (1e-12, 1e-5):
        path = tiny("bert", tmp_path / str(eps), layer_norm_eps=eps)
        names.add(Encoder.load(path, classical()).fingerprint)
    assert len(names) == 2


def test_the_hubs_commit_counts_and_is_kept(tmp_path: Path, folder: Path, encoder: Encoder):
    other = Encoder.load(folder, classical())
    other.backbone.model.config._commit_hash = "0" * 40
    assert other.revision == "0" * 40 and other.fingerprint != encoder.fingerprint
    assert other.identity == encoder.identity
    other.save(tmp_path / "saved")
    again = Encoder.load(tmp_path / "saved")
    assert again.revision == "0" * 40 and again.fingerprint == other.fingerprint
