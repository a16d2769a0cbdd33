"""Tables: averages as published ones have them, undefined and missing scores told apart."""

import csv
import io
import math
from pathlib import Path

import pytest

from afterword.errors import DataError, MissingDataset
from afterword.tasks.report import Row, as_csv, markdown, read_results, tables
from afterword.tasks.results import Result, write
from afterword.tasks.task import Scores


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


def test_no_average_over_two_metrics_or_one_task_twice():
    (table,) = tables([row("x", result("A", 0.5), result("B", 0.5, metric="accuracy"))])
    assert table.columns == ("A", "B")
    assert table.notes == ("no average: the metrics are cosine_spearman and accuracy",)
    (table,) = tables([row("x", result("A", 0.5), result("A:k=1", 0.7))])
    assert table.columns == ("A", "A:k=1") and table.notes == ("no average: A appears more than once",)


def test_a_damaged_file_is_named_and_left_out(tmp_path: Path):
    write(tmp_path / "STS12.json", result("STS12", 0.5))
    (tmp_path / "bad.json").write_text("[" * 100_000)
    with pytest.raises(DataError, match=r"bad\.json"):
        read_results(tmp_path)
    damaged: list[DataError] = []
    (found,) = read_results(tmp_path, damaged.append)
    assert [*found.results] == ["STS12"] and "bad.json" in str(damaged[0])
