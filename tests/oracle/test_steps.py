"""EmbedFilter and z-scores against what the authors' code gave, on random token ids."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.tiny import tiny_tokenizer

from afterword import Encoder, classical
from afterword.post import parse_post

LAST = classical("last", add_special_tokens=False)


@pytest.fixture(scope="module")
def arrays(shared: Path) -> Path:
    folder = shared / "oracle_methods"
    if not folder.is_dir():
        pytest.skip(f"{folder} does not exist")
    return folder


def load(model: Path, folder: Path) -> Encoder:
    shutil.copytree(model, folder)
    tiny_tokenizer().save_pretrained(folder)
    return Encoder.load(folder, LAST)


def near(found: np.ndarray, wanted: np.ndarray) -> bool:
    return bool(np.abs(found - wanted).max() <= 2e-5 * np.abs(wanted).max())


def test_embed_filter(arrays: Path, tmp_path: Path):
    told = np.load(arrays / "single_pass.npz")
    ids = json.loads((arrays / "contrastive_prompting_ids.json").read_text())["normal"]
    encoder = load(arrays / "llama_tp", tmp_path / "m")
    assert near(encoder.encode(ids), told["embfilter/last"])
    kinds = sorted({key.split("/")[0] for key in told.files if key.endswith("/projector")})
    assert len(kinds) >= 2
    for kind in kinds:
        made = replace(encoder, post=parse_post(f"embed_filter:spectrum={kind.removeprefix('embfilter_')}"))
        weight, found = made.post[0].weight.double().numpy(), made.encode(ids)  # type: ignore[attr-defined]
        assert near(weight.T @ weight, told[f"{kind}/projector"]) and near(found @ found.T, told[f"{kind}/gram"])


def test_standardise(arrays: Path, tmp_path: Path):
    told, ids = np.load(arrays / "moee.npz"), json.loads((arrays / "moee_ids.json").read_text())
    encoder = replace(load(arrays / "olmoe", tmp_path / "m"), post=parse_post("standardise")).fit(ids)
    assert near(replace(encoder, post=()).encode(ids)[:3], told["HS"])
    assert near(encoder.encode(ids), told["HS_batch"])
