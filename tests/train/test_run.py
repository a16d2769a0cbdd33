import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.tiny import tiny

from afterword import Encoder, bellm, classical

pytest.importorskip("sentence_transformers", reason="the extra train is not installed")
pytest.importorskip("peft", reason="the extra train is not installed")
from sentence_transformers import SentenceTransformer

from afterword.train import train

TEXTS = ["The bank of the river.", "A bank for my money and for the money of others!", "dog", "a b"]
PAIRS = [(f"the {a} is {b} today", f"{b} {a}") for a in ("cat", "dog", "sea", "sun") for b in ("red", "old", "far")]
ROWS = [{"anchor": a, "positive": b} for a, b in PAIRS]
DEV = [
    {"sentence1": a, "sentence2": PAIRS[(i + j) % len(PAIRS)][1], "score": float(j == 0)}
    for i, (a, _) in enumerate(PAIRS)
    for j in (0, 1)
]
BOTH = bellm(last=2, template=None)
SMALL: dict[str, Any] = {"batch_size": 6, "rank": 4, "learning_rate": 3e-3, "log_every": 1, "warmup": 0, "epochs": 6}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    for kind in ("bert", "gpt2", "llama"):
        tiny(kind, root / kind)
    return root


def losses(out: Path) -> list[float]:
    rows = [json.loads(line) for line in (out / "loss.jsonl").read_text().splitlines()]
    return [row["loss"] for row in rows if "loss" in row]


@pytest.mark.parametrize(("kind", "rank"), [("llama", 4), ("gpt2", 4), ("llama", 0)])
def test_it_learns_and_both_libraries_open_the_folder(kind: str, rank: int, models: Path, tmp_path: Path):
    encoder = train(models / kind, ROWS, tmp_path / "a", method=BOTH, **{**SMALL, "rank": rank})
    found = losses(tmp_path / "a")
    assert len(found) == 12 and np.mean(found[-3:]) < 0.7 * np.mean(found[:3])
    vectors = encoder.encode(TEXTS)
    assert np.array_equal(Encoder.load(tmp_path / "a").encode(TEXTS), vectors)
    other = SentenceTransformer(str(tmp_path / "a"), trust_remote_code=True, device="cpu")
    assert abs(other.encode(TEXTS) - vectors).max() <= 1e-6
    assert abs(Encoder.load(models / kind, BOTH).encode(TEXTS) - vectors).max() > 1e-2
    assert not (tmp_path / "a" / "checkpoints").exists()


def test_the_best_on_dev_is_kept(models: Path, tmp_path: Path):
    train(models / "llama", ROWS, tmp_path / "a", method=classical(), dev=DEV, every=2, **SMALL)
    rows = [json.loads(line) for line in (tmp_path / "a" / "loss.jsonl").read_text().splitlines()]
    scores = {row["step"]: row["eval_dev_spearman_cosine"] for row in rows if "eval_dev_spearman_cosine" in row}
    done = json.loads((tmp_path / "a" / "training.json").read_text())["finished"]
    assert list(scores) == [2, 4, 6, 8, 10, 12]
    assert done["best_dev"] == max(scores.values()) == scores[done["best_step"]]
