"""The loss of a training run."""

import json
from pathlib import Path
from xml.etree import ElementTree

from afterword.plots.losses import draw_losses
from afterword.train.callbacks import SCORE


def texts(path: Path) -> str:
    return " ".join("".join(e.itertext()) for e in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text"))


def test_losses_and_scores_are_drawn(tmp_path: Path):
    rows = [{"loss": 3.0 - i, "step": i} for i in range(3)]
    (tmp_path / "loss.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    draw_losses(tmp_path / "loss.jsonl", tmp_path / "a.svg", SCORE, "my run")
    assert "my run" in texts(tmp_path / "a.svg") and "dev" not in texts(tmp_path / "a.svg")
    with (tmp_path / "loss.jsonl").open("a") as file:
        file.write(json.dumps({SCORE: 0.6789, "step": 2}) + "\n" + json.dumps({SCORE: 0.7, "step": 3}) + "\n")
    draw_losses(tmp_path / "loss.jsonl", tmp_path / "b.svg", SCORE)
    assert "dev: Spearman" in texts(tmp_path / "b.svg")
