"""Which files are written, and what is in them beside what tests/cli/test_compare.py reads."""

from pathlib import Path

import pytest
from tests.plots.conftest import drawn as texts_of

from afterword.cli.compare import as_csv, check_csv, figures, targets
from afterword.errors import DataError
from afterword.tasks.published import published
from afterword.tasks.report import Row
from afterword.tasks.results import Result
from afterword.tasks.task import Scores


def row(name: str, model: str, task: str = "SLPWC", main: float = 0.5) -> Row:
    scores = {0: Scores(main, {"accuracy": main}, notes=("a note",))}
    return Row(name, {task: Result(task, "wordsense", "accuracy", (), "k", "r", scores, {})}, model)


def test_a_file_for_each_table():
    assert targets(Path("a.png"), ["sts"]) == {"sts": Path("a.png")}
    made = targets(Path("d/a.png"), ["sts", "../x y"])
    assert made == {"sts": Path("d/a-sts.png"), "../x y": Path("d/a-.._x_y.png")}


def test_word_senses_are_bars_by_model(tmp_path: Path):
    rows = [
        row(f"{model} {m}", model, main=0.4 + i / 10) for model in ("A", "B") for i, m in enumerate(("echo", "reba"))
    ]
    drawn = figures(rows, [])
    drawn["wordsense"](tmp_path / "a.svg")
    svg = (tmp_path / "a.svg").read_text()
    assert svg.count(">reba<") == 2 and ">A<" in svg and ">B<" in svg
    assert len([p for p in svg.split("<path d=") if "z" in p[:200] and "#0069a8" in p[:400]]) >= 2


def test_a_published_figure_is_of_the_whole_table(tmp_path: Path):
    table = published()["bellm-2"]
    few = type(table)(**{**vars(table), "rows": table.rows[:2]})
    figures([], [few])["bellm-2"](tmp_path / "a.svg")
    assert "BeLLM leads by 1.10 in C-STS: 49.74, SimCSE LLaMA 48.64" in " ".join(texts_of(tmp_path / "a.svg"))


def test_csv_holds_notes_and_runs_nothing():
    text = as_csv([row("=SUM(A1)", "m")], [], [published()["bellm-2"]])
    assert "evaluated,'=SUM(A1),,wordsense,SLPWC,accuracy,50.0,,,,,a note" in text
    assert "published,BeLLM,,bellm-2,C-STS,cosine_spearman,49.74,,,0.25,BeLLM," in text


def test_no_result_is_overwritten(tmp_path: Path):
    with pytest.raises(DataError, match="STS12"):
        check_csv(tmp_path / "STS12.json")
