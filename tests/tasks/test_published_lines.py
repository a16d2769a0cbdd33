"""Our lines of a published table."""

from afterword.tasks.pairs import DIFFERENT_DATA
from afterword.tasks.published import lines, published
from afterword.tasks.report import Row
from afterword.tasks.results import Result
from afterword.tasks.task import Scores


def row(main: float, *notes: str) -> Row:
    scores = {0: Scores(main, {"cosine_spearman": main}, notes=notes)}
    return Row("ours", {"STS12": Result("STS12", "sts", "cosine_spearman", (), "k", "r", scores, {})})


def test_ours_first_then_the_papers_with_their_deviations():
    first, *others = lines(published()["bellm-1"], [row(0.5, "a sample"), Row("nothing here", {})])
    assert first.ours and first.scores == (50.0, *[None] * 7)
    assert first.note(0) == ("a sample",) and not any(first.note(k) for k in range(1, 8))
    assert [line.name for line in others] == [r.name for r in published()["bellm-1"].rows]
    assert others[-1].deviations[-1] == 0.52 and others[0].deviations == (None,) * 8 and not others[0].note(0)


def test_scores_of_other_data_are_told_from_remarks():
    sample, remark = (
        lines(published()["bellm-1"], [row(0.5, note)])[0] for note in (f"5 rows: {DIFFERENT_DATA}", "a remark")
    )
    assert sample.other == {0} and remark.other == set() and remark.note(0) == ("a remark",)
