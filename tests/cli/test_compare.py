"""``afterword compare``: rows side by side, differences, published tables, files."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import Run

from afterword.cli.compare import read
from afterword.tasks.published import PublishedRow, near, published
from afterword.tasks.results import Result, write
from afterword.tasks.task import Scores

GOLD = np.arange(40.0)


def results(
    folder: Path, name: str, noise: float, tasks: tuple[str, ...] = ("STS12", "STSB"), model: str = "m", **about: str
) -> None:
    from scipy.stats import spearmanr

    for i, task in enumerate(tasks):
        similarity = GOLD + noise * np.random.default_rng(i).normal(size=40)
        main = float(spearmanr(GOLD, similarity).statistic)
        scores = Scores(main, {"cosine_spearman": main}, {"gold": GOLD, "similarity": similarity})
        told = {"name": name, "model": model, **about}
        made = Result(task, "sts", "cosine_spearman", ("eng-Latn",), "k", "r", {0: scores}, told)
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
    assert lines[-1].startswith("sts, cosine_spearman: mean difference +")
    assert "over 2 sets (STS12, STSB); paired t-test: t = " in lines[-1]


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
    assert {r["kind"] for r in rows} == {"evaluated", "difference", "mean difference", "published"}
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


def test_that_no_published_table_fits_is_told(run: Run, folder: Path, tmp_path: Path):
    results(tmp_path / "own", "classical", 30, tasks=("mine",))
    ended = run("compare", tmp_path / "own", "--published", "all", "--draws", 0)
    assert ended.code == 0 and ended.err == "no published table has a column for these results: --list names them all\n"
    assert run("compare", folder, "--published", "all", "--draws", 0).err == ""


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


def test_every_table_is_a_figure(run: Run, folder: Path, tmp_path: Path):
    asked = ("--draws", 0, "--published", "bellm-4", "--published", "ditto-2", "--dark")
    ended = run("compare", folder, *asked, "--plot", tmp_path / "a.svg")
    names = {"sts", "bellm-4", "ditto-2"}
    assert ended.code == 0
    assert {p.name for p in tmp_path.glob("*.svg")} == {f"a-{n}{dark}.svg" for n in names for dark in ("", "-dark")}
    assert ended.err.splitlines()[0] == f"sts: {tmp_path / 'a-sts.svg'} and {tmp_path / 'a-sts-dark.svg'}"
    assert ">reba<" in (tmp_path / "a-sts.svg").read_text()
    assert ">ELECTRA first-last Ditto<" in (tmp_path / "a-ditto-2.svg").read_text()
    one = run("compare", folder, "--draws", 0, "--plot", tmp_path / "b.svg")
    assert one.err == f"sts: {tmp_path / 'b.svg'}\n" and (tmp_path / "b.svg").exists()


def test_the_papers_tables_alone(run: Run, tmp_path: Path):
    ended = run("compare", "--published", "all", "--csv", tmp_path / "a.csv")
    assert ended.code == 0 and set(re.findall(r"^\| ([a-z]+-[0-9.]+) ", ended.out, flags=re.M)) == set(published())
    assert "86.26 ± 0.52" in ended.out and "evaluated here" not in ended.out
    ended = run("compare", "--published", "bellm-2", "--plot", tmp_path / "a.svg")
    assert ended.code == 0 and (tmp_path / "a.svg").exists()


def test_what_cannot_be_written_is_told_before_the_work(run: Run, folder: Path, tmp_path: Path):
    (tmp_path / "figure-bellm-1.svg").mkdir()
    result = folder / "m" / "reba" / "STSB.json"
    for words, told in (
        (("--plot", tmp_path / "b.txt"), "b.txt"),
        (("--plot", tmp_path / "no" / "b.svg"), "no"),
        (("--plot", tmp_path / "figure.svg", "--published", "bellm-1"), "figure-bellm-1.svg"),
        (("--csv", "."), "folder"),
        (("--csv", result), "may be a result"),
        (("--dark",), "--plot"),
    ):
        ended = run("compare", folder, *words)
        assert (ended.code, ended.out) == (2, "") and len(ended.err.splitlines()) == 1 and told in ended.last, words
    assert not (tmp_path / "figure-sts.svg").exists()


def test_hostile_names_are_one_line_of_the_table(run: Run, folder: Path, tmp_path: Path):
    results(tmp_path / "bad", "safe", 9, model="m")
    for path in (tmp_path / "bad").rglob("*.json"):
        path.write_text(path.read_text().replace('"name": "safe"', '"name": "a|b\\n\\u001b[31m<b>$x$"'))
    (tmp_path / "empty").mkdir()
    asked = ("--draws", 0, "--published", "bellm-1", "--csv", tmp_path / "a.csv")
    ended = run("compare", folder, tmp_path / "bad", *asked)
    assert ended.code == 0 and "\x1b" not in ended.out + ended.err + (tmp_path / "a.csv").read_text()
    assert len([line for line in ended.out.splitlines() if "a\\|b" in line]) == 3  # sts, its header, bellm-1
    assert run("compare", tmp_path / "bad", "--plot", tmp_path / "a.svg").code == 0
    assert "$x$" in (tmp_path / "a.svg").read_text()
    assert "holds no results" in run("compare", tmp_path / "empty").last


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
    assert broken.code == 2 and "STSB.json" in broken.last
