"""Tiny models and rows that they learn from in a second."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.tiny import tiny

from afterword import bellm

NEEDED = ("sentence_transformers", "peft", "accelerate", "datasets")
collect_ignore_glob = [] if all(map(find_spec, NEEDED)) else ["test_*.py"]  # the extra train is not installed

TEXTS = ["The bank of the river.", "A bank for my money and for the money of others!", "dog", "a b"]
PAIRS = [(f"the {a} is {b} today", f"{b} {a}") for a in ("cat", "dog", "sea", "sun") for b in ("red", "old", "far")]
ROWS = [{"anchor": f"{a} {i}", "positive": f"{b} {i}"} for i in range(3) for a, b in PAIRS]
DEV = [
    {"sentence1": a, "sentence2": PAIRS[(i + j) % len(PAIRS)][1], "score": float(j == 0)}
    for i, (a, _) in enumerate(PAIRS)
    for j in (0, 1)
]
REPEATED = [{**row, "anchor": ROWS[i // 2]["anchor"]} for i, row in enumerate(ROWS)]
BINARY = [{"sentence1": r["anchor"], "sentence2": r["positive"], "score": i % 2} for i, r in enumerate(ROWS)]
BOTH = bellm(last=2, template=None)
SMALL: dict[str, Any] = {
    "method": BOTH, "batch_size": 6, "rank": 4, "learning_rate": 3e-3, "log_every": 1, "warmup": 0, "epochs": 2,
}  # fmt: skip


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    for kind in ("bert", "gpt2", "llama", "bloom"):
        tiny(kind, root / kind)
    return root


def curve(out: Path, name: str = "loss") -> dict[int, float]:
    """What a run wrote of its losses, by step."""
    rows = [json.loads(line) for line in (out / "loss.jsonl").read_text().splitlines()]
    return {row["step"]: row[name] for row in rows if name in row}
