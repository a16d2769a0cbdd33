"""Which files are written, and what is in them beside what tests/cli/test_compare.py reads."""

from pathlib import Path

import pytest
from tests.papers.drawn import drawn as texts_of

from afterword.cli.compare import as_csv, check_csv, draw, figures, targets
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


def test_lines_stand_under_their_models(tmp_path: Path):
    rows = [
        row(f"{model} {m}", model, main=0.4 + i / 10) for model in ("A", "B") for i, m in enumerate(("echo", "reba"))
    ]
    draw({"wordsense": tmp_path / "a.svg"}, figures(rows, []), dark=False)
    texts = texts_of(tmp_path / "a.svg")
    assert texts.count("reba") == 2 == texts.count("40.00") and {"A", "B", "accuracy × 100"} <= set(texts)


def test_a_single_encoder_has_a_line_per_task(tmp_path: Path):
    one = row("reba", "m", "SLPWC").results | row("reba", "m", "WSD", 0.6).results
    draw({"wordsense": tmp_path / "a.svg"}, figures([Row("reba", one, "m")], []), dark=False)
    assert {"reba", "SLPWC", "WSD", "50.00", "60.00"} <= set(texts_of(tmp_path / "a.svg"))


def test_a_published_figure_is_of_the_whole_table(tmp_path: Path):
    table = published()["bellm-2"]
    few = type(table)(**{**vars(table), "rows": table.rows[:2]})
    draw({"bellm-2": tmp_path / "a.svg"}, figures([], [few]), dark=False)
    assert {"49.74 ±0.25", "48.64", "BeLLM", "C-STS"} <= {t.replace("−", "-") for t in texts_of(tmp_path / "a.svg")}


def test_csv_holds_notes():
    text = as_csv([row("reba", "m")], [], [published()["bellm-2"]])
    assert "evaluated,reba,,wordsense,SLPWC,accuracy,50.0,,,,,a note" in text
    assert "published,BeLLM,,bellm-2,C-STS,cosine_spearman,49.74,,,0.25,BeLLM," in text


def test_no_result_is_overwritten(tmp_path: Path):
    with pytest.raises(DataError, match="STS12"):
        check_csv(tmp_path / "STS12.json")
