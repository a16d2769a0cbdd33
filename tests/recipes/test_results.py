"""The tables of docs/results.md."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import results
from results import TABLES, Run, Table, replaced, written

from afterword.cli import main
from afterword.tasks.results import Result
from afterword.tasks.scores import spearman
from afterword.tasks.task import Scores

PAGE = Path(__file__).parents[2] / "docs/results.md"
EMPTY = "# A page\n\n<!-- table: sts -->\n\n<!-- end -->\n"
STS = Table(("STSB", "SICKR"), (Run("m", "sts", ("classical", "echo"), ("none", "whiten"), "target"),))


def result(task: str, n: int = 400) -> Result:
    rng = np.random.default_rng(0)
    gold = rng.normal(size=n)
    similarity = gold + rng.normal(size=n)
    items = {"gold": gold, "similarity": similarity}
    return Result(task, "sts", "cosine_spearman", "", {0: Scores(spearman(gold, similarity), {}, items)})


def test_a_row_without_results_is_left_out():
    found = {("m", "echo+whiten"): {"STSB": result("STSB"), "SICKR": result("SICKR")}}
    table = written(STS, found)
    assert "echo+whiten" in table and "classical" not in table
    assert written(STS, {}) == ""
    assert replaced(EMPTY, "sts", table).count("echo+whiten") == 1
    later = written(STS, {("m", "echo"): {"STSB": result("STSB")}}, table)
    cells = {line.split("|")[1].strip(): line.split("|")[2:4] for line in later.splitlines()}
    assert list(cells)[2:] == ["m: echo", "m: echo+whiten"] and cells["m: echo"][1].strip() == ""
    assert cells["m: echo+whiten"] == table.splitlines()[2].split("|")[2:4], "kept"


def test_the_interval_is_that_of_resampled_pairs():
    one = result("STSB")
    gold, similarity = one.items["gold"], one.items["similarity"]
    rng = np.random.default_rng(1)
    draws = [spearman(gold[at], similarity[at]) for at in rng.integers(0, 400, (500, 400))]
    low, high = np.quantile(draws, [0.025, 0.975])
    assert results.half_interval(one) == pytest.approx(100 * (high - low) / 2, rel=0.15)


@pytest.mark.parametrize("name", TABLES)
def test_the_page_has_a_place_for_each_table(name: str):
    assert "x" in replaced(PAGE.read_text("utf-8"), name, "x")


def test_the_recipe_runs_a_small_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    page, out, pairs = tmp_path / "page.md", tmp_path / "out", tmp_path / "en/sts/stsb.test.jsonl"
    page.write_text(EMPTY)
    pairs.parent.mkdir(parents=True)
    scored = [{"sentence1": "A cat.", "sentence2": f"{i} dogs run.", "score": i} for i in range(5)]
    pairs.write_text("".join(json.dumps(pair) + "\n" for pair in scored))
    monkeypatch.setitem(TABLES, "sts", Table(("STSB",), (Run("afterword-mini", "STSB", ("classical",)),)))
    monkeypatch.setattr(results.subprocess, "run", lambda command, check: main(command[3:]))
    given = ["--data", str(tmp_path), "--out", str(out), "--page", str(page), "--only", "sts"]
    monkeypatch.setattr(sys, "argv", ["results.py", *given])
    results.main()
    assert "| afterword-mini: classical |" in page.read_text()
