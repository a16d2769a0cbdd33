"""Tables: averages as published ones have them, undefined and missing scores told apart."""

import csv
import io
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from afterword.errors import DataError, MissingDataset
from afterword.tasks.report import Row, as_csv, markdown, named, read_results, tables
from afterword.tasks.results import Result, write
from afterword.tasks.task import Scores

NOTES = {"r": ("all equal",)}


def result(task: str, *mains: float, group: str = "sts", metric: str = "cosine_spearman") -> Result:
    scores = {seed: Scores(m, {metric: m}) for seed, m in enumerate(mains)}
    return Result(task, group, metric, ("eng-Latn",), "k", "r", scores, {"model": "m", "name": "n"})


def row(name: str, *found: Result) -> Row:
    return Row(name, {r.task: r for r in found}, "m")


def test_an_average_is_of_rounded_scores():
    (table,) = tables([row("x", result("A", 0.72374), result("B", 0.80596))])
    assert table.columns == ("A", "B", "Avg.") and table.rows[0][1] == (
        pytest.approx(72.374),
        pytest.approx(80.596),
        76.48,
    )


def test_results_that_name_no_model_are_read(tmp_path: Path):
    """Written from Python: `Evaluation` asks for no name."""
    one = result("A", 0.5)
    (tmp_path / "n").mkdir()
    write(tmp_path / "n" / "A.json", replace(one, about={"name": "n"}))
    (read,) = read_results(tmp_path)
    assert (read.name, read.model) == ("n", "") and "A" in markdown(tables([read]))


def test_a_page():
    rows = [
        row("first", result("A", 0.5), result("B", 0.25), result("C", 0.9, 0.8, group="transfer", metric="accuracy")),
        row("second", result("A", math.nan), result("B", 0.125)),
        row("third", result("B", 1.0)),
    ]
    assert markdown(tables(rows)).splitlines() == [
        "sts, cosine_spearman, x 100",
        "",
        "| sts    |     A |      B |  Avg. |",
        "|--------|------:|-------:|------:|",
        "| first  | 50.00 |  25.00 | 37.50 |",
        "| second |   nan |  12.50 |     - |",
        "| third  |     - | 100.00 |     - |",
        "",
        "- no average of second: A is undefined",
        "",
        "transfer, accuracy, x 100",
        "",
        "| transfer |            C |",
        "|----------|-------------:|",
        "| first    | 85.00 ± 7.07 |",
    ]


def test_the_deviation_of_an_average_is_over_seeds():
    (table,) = tables([row("x", result("A", 0.5, 0.7), result("B", 0.6, 0.6), result("C", 0.1))])
    # averages over tasks: (0.5 + 0.6 + 0.1) / 3 and (0.7 + 0.6 + 0.1) / 3
    assert table.rows[0][2][-1] == pytest.approx(100 * (1.4 - 1.2) / 3 / math.sqrt(2))


def test_every_score_is_a_line_of_the_table_for_programs():
    lines = list(csv.DictReader(io.StringIO(as_csv([row("x,y", result("A", 0.5), result("C", 0.9, 0.8, group="t"))]))))
    assert [(r["encoder"], r["task"], float(r["score"]), r["seeds"]) for r in lines] == [
        ("x,y", "A", 0.5, "1"), ("x,y", "C", pytest.approx(0.85), "2"),
    ]  # fmt: skip
    assert lines[0]["deviation"] == "" and float(lines[1]["deviation"]) == pytest.approx(0.1 / math.sqrt(2))


def test_results_are_found_in_the_order_of_the_tasks(tmp_path: Path):
    for task in ("SICKR", "STS12", "mine", "STSB"):
        write(tmp_path / "m" / "n" / f"{task}.json", result(task, 0.5))
    (found,) = read_results(tmp_path)
    assert (found.name, found.model, [*found.results]) == ("n", "m", ["STS12", "STSB", "SICKR", "mine"])
    with pytest.raises(MissingDataset, match="does not exist"):
        read_results(tmp_path / "no")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no results"):
        read_results(tmp_path / "empty")


def test_two_folders_of_one_name_are_told_apart(tmp_path: Path):
    for folder in ("a", "b"):
        write(tmp_path / folder / "n" / "STS12.json", result("STS12", 0.5))
    assert [r.name for r in read_results(tmp_path)] == ["a/n: n", "b/n: n"]


def test_no_average_over_two_metrics_or_one_task_twice():
    (table,) = tables([row("x", result("A", 0.5), result("B", 0.5, metric="accuracy"))])
    assert table.columns == ("A", "B")
    assert table.notes == ("no average: the metrics are cosine_spearman and accuracy",)
    (table,) = tables([row("x", result("A", 0.5), result("A:k=1", 0.7))])
    assert table.columns == ("A", "A:k=1") and table.notes == ("no average: A appears more than once",)


def test_an_undefined_score_leaves_no_average_and_a_note_says_so():
    found = [row(name, result("A", 0.5), result("const", math.nan)) for name in ("x", "y")]
    (table,) = tables(found)
    assert [scores[-1] for _, scores, _ in table.rows] == [None, None]
    assert table.notes == ("no average: const is undefined",)


def test_notes_stand_under_the_table():
    """N7: what is to be said of a score is said where the score is."""
    some = Result("B", "sts", "m", (), "k", "other", {0: Scores(0.5, {"m": 0.5}, notes=("undefined: why",))}, {})
    all_of_it = [replace(result("A", 0.5), scores={0: Scores(0.5, {}, notes=("a sample",))}) for _ in range(2)]
    rows = [row("x", all_of_it[0], result("B", 0.5)), row("y", all_of_it[1], replace(some, metric="cosine_spearman"))]
    (table,) = tables(rows)
    assert table.notes == (
        "A: a sample",
        "B, y: undefined: why",
        "B: the rows are of different data, and cannot be compared",
    )
    assert markdown([table]).endswith("|\n\n- A: a sample\n- B, y: undefined: why\n- " + table.notes[2] + "\n")


HOSTILE = "a|b\\|c\nd\x1b[31m<b>![x](http://y)"


def test_hostile_names_are_one_harmless_line():
    (table,) = tables([row(HOSTILE, result(f"t{HOSTILE}", 0.5, group=HOSTILE, metric=HOSTILE))])
    page = markdown([table])
    assert [*map(len, (page.splitlines(), page.split("\x1b"), page.split("<b>")))] == [5, 1, 1]
    cell = re.escape(r"a\|b\\\|c d\x1b\[31m&lt;b>!\[x](http://y)")
    assert re.fullmatch(rf"\| {cell} +\| +50.00 \|", page.splitlines()[4])
    lines = as_csv([row(f"={HOSTILE}", result("t", 0.5))]).splitlines()
    assert len(lines) == 2 and lines[1].startswith("m,'=a|b") and "\x1b" not in lines[1]


def test_a_damaged_file_is_named_and_left_out(tmp_path: Path):
    write(tmp_path / "STS12.json", result("STS12", 0.5))
    (tmp_path / "bad.json").write_text("[" * 100_000)
    with pytest.raises(DataError, match=r"bad\.json"):
        read_results(tmp_path)
    damaged: list[DataError] = []
    (found,) = read_results(tmp_path, damaged.append)
    assert [*found.results] == ["STS12"] and "bad.json" in str(damaged[0])


def test_several_models_are_told_apart():
    rows = [Row("x", {}, "a"), Row("x", {}, "b")]
    assert [r.name for r in named(rows)] == ["a x", "b x"] and [r.name for r in named(rows[:1])] == ["x"]
