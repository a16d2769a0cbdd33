"""The tables of docs/results.md: what is run, and what stays on the page."""

import json
import sys
from pathlib import Path

import pytest
import results
from results import TABLES, Run, Shown, cells_of, encoder_of, lacking, replaced, wanted, written

from afterword.cli import main
from afterword.tasks.results import Result, Row, read_results
from afterword.tasks.task import Scores

ROOT = Path(__file__).parents[2]
PAGE = """# A page

<!-- table: sts -->

|                 |  STSB | SICKR |  Avg. |
|-----------------|------:|------:|------:|
| classical       | 10.00 | 20.00 | 15.00 |
| tfidf           | 11.00 | 21.00 | 16.00 |

<!-- end -->
"""
STS = Shown((Run("sts", ("m",), ("classical", "echo")), Run("sts", ("m",), ("tfidf",), (), "wikipedia")),
            ("STSB", "SICKR"), ("STSB", "SICKR"))  # fmt: skip


def row(name: str, model: str, **scores: float) -> Row:
    found = {
        task: Result(task, "sts", "cosine_spearman", "", {0: Scores(score, {}, {})}) for task, score in scores.items()
    }
    return Row(name, found, model)


def lines(page: str, name: str) -> list[str]:
    return list(dict.fromkeys(line for line, _ in cells_of(page, name)))


def test_a_line_that_was_not_run_keeps_its_figures():
    ran = [row("echo", "m", STSB=0.3, SICKR=0.4), row("tfidf", "m-wikipedia", STSB=0.5, SICKR=0.6)]
    page = replaced(PAGE, "sts", written(STS, ran, cells_of(PAGE, "sts")))
    found = cells_of(page, "sts")
    assert lines(page, "sts") == ["classical", "echo", "tfidf, Wikipedia"]
    assert found["classical", "Avg."] == "15.00" and found["echo", "Avg."] == "35.00"
    assert found["tfidf, Wikipedia", "STSB"] == "50.00"
    assert replaced(page, "sts", written(STS, [], cells_of(page, "sts"))) == page


def test_only_the_lines_that_the_page_lacks_are_run():
    assert [lacking(step, set(lines(PAGE, "sts"))).methods for step in STS.runs] == [("echo",), ("tfidf",)]
    assert lacking(STS.runs[1], {"tfidf, Wikipedia"}).methods == ()
    several = Run("sts", ("m", "n"), ("classical",), ("none", "centre"), "target")
    assert lacking(several, {"m: classical", "n: classical", "m: classical+centre"}) == several
    assert encoder_of(row("tfidf", "m-wikipedia")) == wanted(STS.runs[1])[0]


@pytest.mark.parametrize("name", TABLES)
def test_the_page_has_the_lines_of_the_recipe(name: str):
    page, shown = (ROOT / "docs/results.md").read_text("utf-8"), TABLES[name]
    pairs = [pair for step in shown.runs for pair in wanted(step)]
    models = {model for model, _ in pairs}
    short = len(models) == 1 or not (shown.columns or shown.metrics)
    known = list(dict.fromkeys(line if short else f"{model}: {line}" for model, line in pairs))
    found = lines(page, name)
    assert found and found == [line for line in known if line in found]


def test_the_recipe_runs_a_small_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    page, out, pairs = tmp_path / "page.md", tmp_path / "out", tmp_path / "en/sts/stsb.test.jsonl"
    page.write_text(PAGE)
    pairs.parent.mkdir(parents=True)
    scored = [{"sentence1": "A cat.", "sentence2": f"{i} dogs run.", "score": i} for i in range(5)]
    pairs.write_text("".join(json.dumps(pair) + "\n" for pair in scored))
    monkeypatch.setitem(TABLES, "sts", Shown((Run("STSB", ("afterword-mini",), ("classical",)),), ("STSB",)))
    monkeypatch.setattr(results.subprocess, "run", lambda command, check: main(command[3:]))
    given = ["--data", str(tmp_path), "--out", str(out), "--page", str(page), "--only", "sts"]
    monkeypatch.setattr(sys, "argv", ["results.py", *given])
    results.main()
    (found,) = read_results(out)
    assert encoder_of(found) == ("afterword-mini", "classical")
    assert cells_of(page.read_text(), "sts")["classical", "STSB"] == f"{100 * found.results['STSB'].main:.2f}"
