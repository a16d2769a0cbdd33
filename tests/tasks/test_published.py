"""Every published number stands in its paper, in the row that it is said to be of."""

import json
import re
from importlib.resources import files
from pathlib import Path

import pytest

from afterword.errors import InputError
from afterword.tasks.catalogue import TASKS
from afterword.tasks.published import chosen, published
from afterword.tasks.results import Result, Row
from afterword.tasks.task import Scores

RAW = json.loads((files("afterword.tasks") / "published.json").read_text("utf-8"))
PRINTED = {"bellm": "{:.2f}", "ditto": "{:.2f}", "reba": "{:.4f}"}
CATEGORIES = "Classification|Clustering|Pair Classification|Reranking|Retrieval|STS|Total average"


@pytest.fixture(scope="module")
def papers(shared: Path) -> dict[str, str]:
    return {name: (shared / "papers" / f"{name}.txt").read_text("utf-8", "replace") for name in PRINTED}


def caption(paper: str, text: str, table: str) -> int:
    """Where a table's caption begins."""
    return min(m.start() for m in re.finditer(rf"^{re.escape(table)}: ", text, flags=re.M))


@pytest.mark.parametrize(
    "key", [t["id"] for t in RAW if t["id"] not in ("reba-3", "reba-4", "reba-5", "bellm-5.4", "ditto-2", "llms-1")]
)
def test_each_row_is_one_line_of_its_table(key: str, papers: dict[str, str]):
    table, paper = published()[key], key.partition("-")[0]
    text = papers[paper]
    # BeLLM and ReBA print captions below their tables, Ditto above
    at = caption(paper, text, table.table)
    near = text[at : at + 6000] if paper == "ditto" else text[max(0, at - 6000) : at]
    lines = [re.findall(r"(?:^|[\t ])(\d+\.\d+)(?=$|[\t ])", line) for line in near.splitlines()]
    for row in table.rows:
        numbers = [PRINTED[paper].format(s) for s in row.scores]
        found = [i for i, line in enumerate(lines) if _scores(line, row.deviations) == numbers]
        assert found, (row.name, numbers)
        word = re.split(r"[ ,(+-]", row.name)[-1 if paper == "bellm" and "+" in row.name else 0]
        around = " ".join(_around(near.splitlines(), i) for i in found).replace("AngIE", "AnglE")
        assert word.lower() in around.lower(), row.name


def _scores(numbers: list[str], deviations: tuple[float | None, ...]) -> list[str]:
    return numbers[::2] if any(deviations) else numbers


def _around(lines: list[str], i: int) -> str:
    """A line, and the model's name that may stand above a group of them."""
    return " ".join(lines[max(0, i - 6) : i + 1])


@pytest.mark.parametrize("key", ["reba-3", "reba-4", "reba-5"])
def test_the_columns_of_c_mteb_are_lines_of_the_appendix(key: str, papers: dict[str, str]):
    table, text = published()[key], papers["reba"]
    at = caption("reba", text, table.table)
    before = text[:at]
    lines = re.findall(rf"^(?:{CATEGORIES}) (\S+) ((?:0\.\d{{4}} ?)+)$", before, flags=re.M)[-32:]
    assert [name for name, _ in lines[:-1]] == [column.heading for column in table.columns[:-1]]
    for i, (_, numbers) in enumerate(lines):
        assert [f"{row.scores[i]:.4f}" for row in table.rows] == numbers.split()


def test_the_two_that_are_no_plain_rows(papers: dict[str, str]):
    captions = [row.scores[0] for row in published()["bellm-5.4"].rows]
    assert "obtains {}%, {}%, and {}%, respectively".format(*captions) in papers["bellm"]
    found = {row.name: f"{row.scores[0]:.2f}" for row in published()["ditto-2"].rows}
    models = ("BERT", "RoBERTa", "ELECTRA")
    for line in ("First-last avg.", "Last manual prompt", "First-last Ditto"):
        numbers = re.search(rf"^{line}.*?\t([\d.]+)\t([\d.]+)\t([\d.]+)$", papers["ditto"], flags=re.M)
        assert numbers is not None
        assert [found[f"{m} {line[0].lower() + line[1:]}"] for m in models] == list(numbers.groups())


@pytest.mark.parametrize("table", published().values(), ids=list(published()))
def test_a_table_is_whole(table):
    n = len(table.columns)
    assert table.rows and table.scale in (1, 100) and all(column.members for column in table.columns)
    assert all(len(row.scores) == n == len(row.deviations) for row in table.rows)
    assert all(0 <= s <= table.scale for row in table.rows for s in row.scores)
    if table.id in ("bellm-1", "bellm-3", "bellm-5.4", "ditto-6"):
        assert table.tasks <= {task.name for task in TASKS}


def result(task: str, **metrics: float) -> Result:
    return Result(task, "sts", "cosine_spearman", "r", {0: Scores(0.9, metrics)})


def ours(results: dict[str, Result]) -> Row:
    return Row("ours", results, "m")


def test_our_scores_stand_under_the_papers_metric():
    atec = ours({"ATEC": result("ATEC", cosine_spearman=0.9, cosine_pearson=0.25)})
    table = published()["reba-3"]
    scores = dict(zip([column.heading for column in table.columns], table.line(atec).scores, strict=True))
    assert scores["ATEC"] == 0.25 and scores["Total average"] is None
    names = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSB", "SICKR")
    seven = ours({name: result(name, cosine_spearman=0.5 + i / 1000) for i, name in enumerate(names)})
    assert published()["bellm-1"].line(seven).scores[-1] == published()["bellm-4"].line(seven).scores[0] == 50.3


def test_deviations_are_over_seeds():
    seeds = {i: Scores(0.5, {"accuracy": x}) for i, x in enumerate((0.5, 0.7))}
    names = ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC")
    one = {name: Result(name, "transfer", "accuracy", "r", {0: Scores(0.5, {"accuracy": 0.5})}) for name in names}
    line = published()["bellm-3"].line(ours({**one, "MR": Result("MR", "transfer", "accuracy", "r", seeds)}))
    assert line.deviations[0] == pytest.approx(20 / 2**0.5) and line.deviations[1] is None
    assert line.deviations[-1] == pytest.approx(20 / 7 / 2**0.5), "of the average, where CR ... MRPC are constant"


def test_tables_are_chosen_by_name_or_by_task():
    assert [t.id for t in chosen(["ditto-6", "bellm-1"], [])] == ["ditto-6", "bellm-1"]
    assert len(chosen(["all"], [])) == len(published())
    captions = ours({"Flickr30k": result("Flickr30k", strict_accuracy=0.5)})
    assert [t.id for t in chosen(["all"], [captions])] == ["bellm-5.4"]
    with pytest.raises(InputError, match="'x'"):
        chosen(["x"], [])


def test_c_mteb_by_mteb_itself_has_a_row_in_table_2_and_goes_before_a_sample():
    """From the figures of the paper's Table 3 come the averages of its Table 2."""
    single, averages = published()["reba-3"], published()["reba-2"]
    printed = next(row for row in single.rows if row.name == "GPT-2 ReBA, last pooling").scores
    figures = {c.members[0]: s for c, s in zip(single.columns, printed, strict=True) if len(c.members) == 1}
    theirs = {f"{task}.mteb": result(f"{task}.mteb", **{metric: score}) for (task, metric), score in figures.items()}
    samples = {task: result(task, **{metric: 0.0}) for task, metric in figures}
    found = averages.line(ours({**samples, **theirs})).scores
    headings = [column.heading for column in averages.columns]
    table_2 = next(row for row in averages.rows if row.name == "GPT-2 ReBA-2, last pooling").scores
    near = [c for c, a, b in zip(headings, found, table_2, strict=True) if a == pytest.approx(b, abs=1.1e-4)]
    assert near == ["Clas.", "P. Cls.", "Clus.", "STS", "Rera.", "Total Average"]  # Retr.: the note says 0.3701
    assert found[headings.index("Retr.")] == pytest.approx(0.3701, abs=1e-4)
    assert single.line(ours({**samples, **theirs})).scores[:-1] == printed[:-1]
    some = {task: r for task, r in theirs.items() if task != "PAWSX.mteb"}
    assert [s is None for s in averages.line(ours(some)).scores] == [c in ("STS", "Total Average") for c in headings]


def row(main: float, *notes: str) -> Row:
    scores = {0: Scores(main, {"cosine_spearman": main}, notes=notes)}
    return ours({"STS12": Result("STS12", "sts", "cosine_spearman", "r", scores, {})})


def test_ours_first_then_the_papers_with_their_deviations():
    first, *others = published()["bellm-1"].lines([row(0.5, "a remark"), Row("nothing here", {})])
    assert first.ours and first.scores == (50.0, *[None] * 7)
    assert first.notes == (("STS12: a remark",), *[()] * 7)
    assert [line.name for line in others] == [r.name for r in published()["bellm-1"].rows]
    assert others[-1].deviations[-1] == 0.52 and others[0].deviations == (None,) * 8
