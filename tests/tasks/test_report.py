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


def encoder(result: Result, identity: str, **settings: object) -> Result:
    about = {**result.about, "encoder": f"print {identity}", "identity": identity, "settings": settings, "fit": None}
    return replace(result, about=about)


def test_a_row_is_of_one_encoder(tmp_path: Path):
    """N1: two folders of one name, or another length, in one folder of results: no average across."""
    write(tmp_path / "m" / "n" / "STS12.json", encoder(result("STS12", 0.5), "a", max_length=256, weights="1234"))
    write(tmp_path / "m" / "n" / "STS16.json", encoder(result("STS16", 0.3), "b", max_length=6, weights="1234"))
    rows = read_results(tmp_path)
    assert [(r.name, [*r.results]) for r in rows] == [
        ("n (max_length 256)", ["STS12"]),
        ("n (max_length 6)", ["STS16"]),
    ]
    (table,) = tables(rows)
    assert [scores for _, scores, _ in table.rows] == [(50.0, None, None), (None, 30.0, None)]
    wanted = "m/n holds results of 2 encoders, which differ in max_length"
    assert table.notes == tuple(f"n (max_length {size}): {wanted}" for size in (256, 6))
    assert "| n (max_length 6)   |     - | 30.00 |    - |" in markdown([table])
    assert [r["encoder"] for r in csv.DictReader(io.StringIO(as_csv(rows)))] == [r.name for r in rows]


def test_old_results_are_told_apart_by_their_fingerprints(tmp_path: Path):
    """Without an identity nothing says what differs; a fingerprint that a newer result has too is that encoder's."""
    old = {"model": "m", "name": "n"}
    for task, fingerprint in {"STS12": "aaaa1111", "STS13": "aaaa1111", "STS14": "bbbb2222"}.items():
        write(tmp_path / f"{task}.json", replace(result(task, 0.5), about={**old, "encoder": fingerprint}))
    newer = {**old, "encoder": "bbbb2222", "identity": "cccc3333"}
    write(tmp_path / "STS15.json", replace(result("STS15", 0.5), about=newer))
    rows = read_results(tmp_path)
    assert [[*r.results] for r in rows] == [["STS12", "STS13"], ["STS14", "STS15"]]
    assert [r.name for r in rows] == ["n (encoder aaaa1111)", "n (encoder bbbb2222)"]
    assert "differ in other libraries or another encoder" in rows[0].notes[0]


def test_library_versions_do_not_split_a_row(tmp_path: Path):
    for i, task in enumerate(("STS12", "STS13")):
        one = encoder(result(task, 0.5), "a", max_length=6)
        write(tmp_path / f"{task}.json", replace(one, about={**one.about, "encoder": f"fingerprint {i}"}))
    (row,) = read_results(tmp_path)
    assert [*row.results] == ["STS12", "STS13"] and row.notes == ()


def test_an_own_file_does_not_stand_as_an_official_task(tmp_path: Path):
    """N3: results that an older version kept for a file STS12.jsonl."""
    write(tmp_path / "STS12.json", result("STS12", 0.9, group="pairs"))
    (row,) = read_results(tmp_path)
    assert [*row.results] == ["STS12 (pairs)"] and row.results["STS12 (pairs)"].task == "STS12 (pairs)"


def test_two_files_of_one_task_are_refused(tmp_path: Path):
    for name in ("STS12", "STS12 copy"):
        write(tmp_path / "n" / f"{name}.json", result("STS12", 0.5))
    with pytest.raises(DataError, match="n holds two results of STS12: remove one of the files"):
        read_results(tmp_path)


def test_two_folders_of_one_name_are_told_apart(tmp_path: Path):
    for folder in ("a", "b"):
        write(tmp_path / folder / "n" / "STS12.json", result("STS12", 0.5))
    assert [r.name for r in read_results(tmp_path)] == ["a/n: n", "b/n: n"]


def test_no_average_over_two_metrics_or_one_task_twice():
    (table,) = tables([row("x", result("A", 0.5), result("B", 0.5, metric="accuracy"))])
    assert table.columns == ("A", "B")
    assert table.notes == ("no average: the metrics are cosine_spearman and accuracy",)
    (table,) = tables([row("x", result("A", 0.5), result("A:k=1", 0.7))])
    assert table.columns == ("A", "A:k=1") and table.notes == ("no average: A is there more than once",)


def test_files_of_equal_bytes_count_once_in_an_average():
    def own(task: str, main: float, data: str) -> Result:
        made = result(task, main, main + 0.1, group="pairs")
        return replace(made, about={**made.about, "data": data})

    p, q, other = own("p", 0.5, "1"), own("q", 0.5, "1"), own("r", 0.2, "2")
    (table,) = tables([row("x", p, q, other)])
    assert table.columns == ("p", "q", "r", "Avg.") and table.rows[0][1][-1] == 40.0  # of 55 and 25, not 55 twice
    assert table.notes == ("q holds the same rows as p: they count once in the average",)
    assert tables([row("x", p, q)])[0].notes == ("no average: all hold the same rows as p",)


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


def test_methods_that_shared_a_pass_are_told():
    """N7: which ran beside each other decides a score's last digits."""
    shared = [replace(result("A", 0.5), about={"shared_pass": ["x", "y"]}) for _ in range(2)]
    (table,) = tables([row("x", shared[0]), row("y", shared[1]), row("z", result("A", 0.5))])
    assert table.notes == ("x, y ran in one forward pass: alone, their last digits may differ",)


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
    with pytest.raises(DataError, match=r"bad\.json is no whole result"):
        read_results(tmp_path)
    damaged: list[DataError] = []
    (found,) = read_results(tmp_path, damaged.append)
    assert [*found.results] == ["STS12"] and "bad.json" in str(damaged[0])


def test_several_models_are_told_apart():
    rows = [Row("x", {}, "a"), Row("x", {}, "b")]
    assert [r.name for r in named(rows)] == ["a x", "b x"] and [r.name for r in named(rows[:1])] == ["x"]
