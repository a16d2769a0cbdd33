"""``afterword compare``: rows side by side, differences, published tables, files."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import Run

from afterword.cli.compare import near, read
from afterword.tasks.published import PublishedRow, published
from afterword.tasks.results import Result, write
from afterword.tasks.task import Scores

GOLD = np.arange(40.0)


def results(
    folder: Path, name: str, noise: float, tasks: tuple[str, ...] = ("STS12", "STSB"), model: str = "m"
) -> None:
    from scipy.stats import spearmanr

    for i, task in enumerate(tasks):
        similarity = GOLD + noise * np.random.default_rng(i).normal(size=40)
        main = float(spearmanr(GOLD, similarity).statistic)
        scores = Scores(main, {"cosine_spearman": main}, {"gold": GOLD, "similarity": similarity})
        about = {"name": name, "model": model}
        made = Result(task, "sts", "cosine_spearman", ("eng-Latn",), "k", "r", {0: scores}, about)
        write(folder / model / name / f"{task}.json", made)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    results(tmp_path / "out", "classical", 30)
    results(tmp_path / "out", "reba", 5)
    return tmp_path / "out"


def test_side_by_side(run: Run, folder: Path):
    ended = run("compare", folder, "--draws", 100)
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[0] == "sts, cosine_spearman, x 100" and lines[2].split() == "| sts | STS12 | STSB | Avg. |".split()
    assert "reba against classical, x 100" in lines
    (row,) = [line.split("|") for line in lines if line.startswith("| STS12 ")]
    a, b, difference = (float(cell) for cell in row[2:5])
    low, high = (float(x) for x in row[5].split("to"))
    assert difference == pytest.approx(b - a, abs=0.011) and 0 < low < difference < high
    assert lines[-1].startswith("mean difference +") and "paired t-test over 2 tasks: t = " in lines[-1]


def test_another_baseline_and_no_intervals(run: Run, folder: Path):
    ended = run("compare", folder, "--baseline", "reba", "--draws", 0)
    assert "classical against reba, x 100" in ended.out and " to " not in ended.out
    wrong = run("compare", folder, "--baseline", "x")
    assert wrong.code == 2 and "no results of 'x': there are classical, reba" in wrong.last


def test_runs_of_one_name_are_told_apart(run: Run, folder: Path, tmp_path: Path):
    results(tmp_path / "other", "reba", 8)
    ended = run("compare", folder / "m" / "reba", tmp_path / "other", "--draws", 0)
    assert f"{tmp_path / 'other'}: reba against {folder / 'm' / 'reba'}: reba, x 100" in ended.out
    results(tmp_path / "third", "reba", 8, model="n")
    assert "n reba against m reba" in run("compare", folder / "m" / "reba", tmp_path / "third", "--draws", 0).out


def test_published_rows(run: Run, folder: Path, tmp_path: Path):
    ended = run("compare", folder, "--published", "ditto-6", "--draws", 0, "--csv", tmp_path / "a.csv")
    lines = ended.out.splitlines()
    (paper,) = [line for line in lines if line.startswith("| BERT first-last Ditto ")]
    assert "64.77" in paper and "published" in paper
    (whitening,) = [line for line in lines if line.startswith("| BERT-whitening ")]
    assert "published, Su et al. (2021)" in whitening
    ours = [line for line in lines if line.endswith("evaluated here |")]
    assert len(ours) == 2 and all(line.split("|")[9].strip() == "-" for line in ours)
    with (tmp_path / "a.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {r["kind"] for r in rows} == {"evaluated", "difference", "published"}
    (row,) = [r for r in rows if r["name"] == "BERT-flow" and r["task"] == "STS12"]
    assert (row["table"], float(row["value"]), row["source"]) == ("ditto-6", 58.4, "Li et al. (2020)")
    assert len([r for r in rows if r["kind"] == "published"]) == 16 * 8


def test_of_all_tables_the_nearest_rows_are_shown(run: Run, folder: Path):
    ended = run("compare", folder, "--published", "all", "--draws", 0)
    tables = re.findall(r"\n\| ([a-z]+-[0-9.]+) ", ended.out)
    assert (
        tables and set(tables) < set(published()) and "bellm-4" not in tables
    )  # an average of tasks that are not there
    for key in tables:
        part = ended.out.partition(f"| {key} ")[2].partition("\n\n")[0]
        table, shown = published()[key], part.count(" published")
        assert part.count("evaluated here") >= 1 and 3 <= shown <= 6
        assert f"{shown} of {len(table.rows)} rows, the nearest in score; --published {key} shows all." in ended.out
    whole = run("compare", folder, "--published", "all", "--published", tables[0], "--draws", 0).out
    assert f"--published {tables[0]} shows all" not in whole
    assert whole.count(" published") > ended.out.count(" published")


def test_nearest_is_by_the_mean_difference_of_scores(folder: Path):
    table = published()["ditto-6"]
    rows = read([folder])
    (found,) = near(table, rows[:1])
    columns = [table.tasks.index(task) for task in ("STS12", "STSB")]
    ours = table.scores_of(rows[0].results)

    def distance(row: PublishedRow) -> float:
        return sum(abs(row.scores[c] - ours[c]) for c in columns)

    assert {r.name for r in found.rows} == {r.name for r in sorted(table.rows, key=distance)[:3]}
    assert near(published()["bellm-2"], rows) == []


def test_a_figure(run: Run, folder: Path, tmp_path: Path):
    pytest.importorskip("matplotlib")
    assert run("compare", folder, "--draws", 0, "--published", "bellm-1", "--plot", tmp_path / "a.svg").code == 0
    svg = (tmp_path / "a.svg").read_text()
    assert ">reba<" in svg and ">GloVe (avg.) (published)<" in svg
    assert run("compare", folder, "--draws", 0, "--plot", tmp_path / "b.png").code == 0
    wrong = run("compare", folder, "--plot", tmp_path / "b.txt")
    assert wrong.code == 2 and "is no figure" in wrong.last


def test_the_list_and_what_is_wrong(run: Run, folder: Path, tmp_path: Path):
    assert "ditto-6    Ditto, Table 6: STS" in run("compare", "--list").out
    for words, told in (
        ((), "give folders of results"),
        ((tmp_path / "no",), "does not exist"),
        ((folder, "--published", "x"), "no published table 'x'"),
    ):
        ended = run("compare", *words)
        assert ended.code == 2 and told in ended.last
    (folder / "m" / "reba" / "STSB.json").write_text("{}")
    broken = run("compare", folder)
    assert broken.code == 2 and "STSB.json is no whole result" in broken.last
