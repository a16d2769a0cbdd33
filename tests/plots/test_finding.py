"""The sentence above a figure of scores."""

import pytest

from afterword.plots.finding import Series, finding, placed

STS = ("STS12", "STS13", "Avg.")


def series(name: str, *scores: float | None, **more: object) -> Series:
    return Series(name, scores, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("columns", "those", "told"),
    [
        (STS, [series("a", 1, 2, 1.5), series("b", 3, 4, 3.5)], "b leads by 2.00 in Avg.: 3.50, a 1.50"),
        (STS, [series("a", 1, 2, 1.5), series("b", 2, 1, 1.504)], "b and a are level in Avg.: 1.50"),
        (("X",), [series("a", 5.0, deviations=(0.6,)), series("b", 4.5)], "a leads by 0.50 in X: 5.00, b 4.50, within "
            "one standard deviation"),
        (("X",), [series("a", 5.0)], "a: 5.00 in X"),
        (("X", "Y"), [series("a", 5.0, 1.0)], "a on 2 tasks"),
        (("X", "Y", "Z"), [series("a", 5.0, 1.0, 3.0), series("b", 4.0, 2.0, 1.0)], "a leads in 2 of 3 columns"),
        (("X", "Y"), [series("a", 5.0, 1.0), series("b", 4.0, 2.0)], "a and b each lead in 1 of 2 columns"),
        (("X", "Y"), [series("a", 5.0, 1.0), series("b", 5.001, 2.0)], "b is first or level in 2 of 2 columns"),
        (("X", "Y"), [series("a", 5.0, 2.0), series("b", 5.0, 2.0)], "a and b are each first or level in 2 of 2 "
            "columns"),
        (("X",), [series("a", 1.0), series("p", 2.0, published=True), series("q", 1.5, published=True)],
            "p leads by 0.50 in X: 2.00, q 1.50; evaluated here: a, place 3 of 3"),
        (("X",), [series("r", 1.0, group="A"), series("r", 2.0, group="B")], "B r leads by 1.00 in X: 2.00, A r 1.00"),
    ],
)  # fmt: skip
def test_who_leads_and_by_how_much(columns: tuple[str, ...], those: list[Series], told: str):
    assert finding(columns, those) == told


def test_a_score_of_other_data_is_not_ranked():
    sample = series("sample", 99.0, marked=frozenset({0}))
    assert finding(("X",), [sample, series("a", 2.0), series("b", 1.0)]) == "a leads by 1.00 in X: 2.00, b 1.00"
    assert placed(0, [sample, series("none", None), series("nan", float("nan"))]) == []
