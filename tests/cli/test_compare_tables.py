"""What the tables of ``compare`` say: one test per metric with its sets, deviations, and what ours differ in."""

import math

from afterword.cli.compare import NO_TEST, difference_table, listed, paired_tests, published_table
from afterword.tasks.compare import compare
from afterword.tasks.published import published
from afterword.tasks.report import Row
from afterword.tasks.results import Result
from afterword.tasks.task import Scores


def result(task: str, group: str, metric: str, main: float, *notes: str, seeds: int = 1) -> Result:
    scores = {i: Scores(main + i / 100, {metric: main + i / 100}, notes=notes) for i in range(seeds)}
    return Result(task, group, metric, (), "k", "r", scores, {})


def row(name: str, add: float = 0.0) -> Row:
    found = [
        result("STSB", "sts", "cosine_spearman", 0.5 + add), result("SICKR", "sts", "cosine_spearman", 0.6 + 2 * add),
        result("STSB.raw", "sts-raw", "cosine_spearman", 0.5 + add), result("TREC", "transfer", "accuracy", 0.8 + add),
        result("MRPC", "transfer", "accuracy", 0.7 + 3 * add), result("Flickr30k", "captions", "strict_accuracy", 0.1),
    ]  # fmt: skip
    return Row(name, {r.task: r for r in found})


def test_a_line_per_metric_names_the_sets_it_counts():
    first, second = paired_tests(compare(row("a"), row("b", 0.01), draws=0))
    assert first.startswith(
        "sts, cosine_spearman: mean difference +1.50 over 2 sets (STSB, SICKR); paired t-test: t = "
    )
    assert second.startswith("transfer, accuracy: mean difference +2.00 over 2 sets (TREC, MRPC); paired t-test: t = ")
    one = Row("c", {"TREC": row("c").results["TREC"]})
    alone = compare(row("a"), one, draws=0)
    assert paired_tests(alone) == [NO_TEST] and difference_table(alone, None).endswith(NO_TEST)


def test_an_undefined_score_has_no_difference():
    def own(add: float) -> Row:
        found = [result("p", "pairs", "m", 0.5 + add), result("const", "pairs", "m", math.nan)]
        return Row(str(add), {r.task: r for r in found})

    text = difference_table(compare(own(0), own(0.1), draws=0), None)
    assert text.endswith(NO_TEST) and "+nan" not in text
    (line,) = [line for line in text.splitlines() if line.startswith("| const ")]
    assert line.split() == "| const | nan | nan | - | - |".split()


def test_deviations_of_the_paper_and_ours():
    mean = Row("mean", {t: result(t, "transfer", "accuracy", 0.9, seeds=3) for t in published()["bellm-3"].average})
    text = published_table(published()["bellm-3"], [mean], None)
    (ours,) = [line for line in text.splitlines() if line.startswith("| mean ")]
    (theirs,) = [line for line in text.splitlines() if line.startswith("| BeLLM ")]
    assert ours.count("91.00 ± 1.00") == 8 and "90.79 ± 0.28" in theirs and "91.35 ± 0.48" in theirs


def test_a_score_of_other_data_is_marked_and_the_note_stands_below():
    ours = Row("ours", {"CSTS": result("CSTS", "csts", "cosine_spearman", 0.3)})
    text = published_table(published()["bellm-2"], [ours], None)
    assert "| 30.00 (1) |" in " ".join(text.split())
    assert text.endswith("- (1) CSTS: the validation split: the papers' tables are of the test split (CSTS.test)")
    sample = Row("ours", {"TREC": result("TREC", "transfer", "accuracy", 0.5, "5,000 of 100,000 rows")})
    assert "- (1) TREC: 5,000 of 100,000 rows" in published_table(published()["bellm-3"], [sample], 60)


def test_every_table_is_listed():
    assert len(listed().splitlines()) == len(published())
