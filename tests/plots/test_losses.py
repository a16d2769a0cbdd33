"""The loss of a training run."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.plots.conftest import drawn

from afterword.plots.losses import draw_losses, smoothed
from afterword.train.callbacks import SCORE

PEARSON = SCORE.replace("spearman", "pearson")


def picture(folder: Path, *rows: Mapping[str, float]) -> list[str]:
    (folder / "loss.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    draw_losses(folder / "loss.jsonl", folder / "a.svg", SCORE, "my run")
    return drawn(folder / "a.svg")


def test_losses_alone(tmp_path: Path):
    shown = picture(tmp_path, *({"loss": 3.0 - i, "step": i + 1} for i in range(3)))
    assert {"my run: loss 3 to 1 in 3 steps", "loss", "step"} <= set(shown) and "dev score × 100" not in shown


def test_scores_have_a_panel_of_their_own_and_each_its_name(tmp_path: Path):
    losses = [{"loss": 3.0 - i / 20, "step": i + 1} for i in range(40)]
    scores = [{SCORE: 0.67, PEARSON: 0.6, "step": 20}, {SCORE: 0.65, PEARSON: 0.61, "step": 40}]
    shown = picture(tmp_path, *losses, *scores)
    assert {"dev score × 100", "Spearman", "Pearson", "pale: as logged; line: running mean"} <= set(shown)
    assert "dev 67.00 at best, step 20" in " ".join(shown)
    assert (tmp_path / "a.svg").read_text().count('id="best"') == 1


def test_a_run_shorter_than_its_log_is_a_figure_too(tmp_path: Path):
    assert "mean of 4 steps: 1.25" in picture(tmp_path, {"train_loss": 1.25, "step": 4})
    assert "my run" in picture(tmp_path, {"loss": 2.0, "step": 1})
    assert "my run" in picture(tmp_path)


def test_the_running_mean():
    assert smoothed([1.0, 5.0]) == [1.0, 5.0]
    assert smoothed([0.0, 3.0] * 10) == pytest.approx([1.5, *[1.0, 2.0] * 9, 1.5])
