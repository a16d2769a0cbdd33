"""What the tables of ``compare`` say: one test per metric with its sets, deviations, and what ours differ in."""

import math

from afterword.cli.compare import NO_TEST, difference_table, published_table
from afterword.tasks.compare import compare
from afterword.tasks.published import published
from afterword.tasks.report import Row
from afterword.tasks.results import Result
from afterword.tasks.task import Scores


def result(task: str, group: str, metric: str, main: float, *notes: str, seeds: int = 1) -> Result:
    scores = {i: Scores(main + i / 100, {metric: main + i / 100}, notes=notes) for i in range(seeds)}
    return Result(task, group, metric, (), "k", "r", scores, {})


def test_an_undefined_score_has_no_difference():
    def own(add: float) -> Row:
        found = [result("p", "pairs", "m", 0.5 + add), result("const", "pairs", "m", math.nan)]
        return Row(str(add), {r.task: r for r in found})

    text = difference_table(compare(own(0), own(0.1), draws=0), None)
    assert text.endswith(NO_TEST) and "+nan" not in text
    (line,) = [line for line in text.splitlines() if line.startswith("| const ")]
    assert line.split() == "| const | nan | nan | - | - |".split()


def test_a_score_of_other_data_is_marked_and_the_note_stands_below():
    ours = Row("ours", {"CSTS": result("CSTS", "csts", "cosine_spearman", 0.3)})
    text = published_table(published()["bellm-2"], [ours], None)
    assert "| 30.00 (1) |" in " ".join(text.split())
    assert text.endswith("- (1) CSTS: the validation split: the papers' tables are of the test split (CSTS.test)")
    sample = Row("ours", {"TREC": result("TREC", "transfer", "accuracy", 0.5, "5,000 of 100,000 rows")})
    assert "- (1) TREC: 5,000 of 100,000 rows" in published_table(published()["bellm-3"], [sample], 60)
