"""Trainings that differ in their seed alone have a mean; any others are refused by what differs."""

from statistics import fmean, stdev
from typing import Any

import pytest

from afterword.errors import InputError
from afterword.tasks.average import average
from afterword.tasks.report import Row
from afterword.tasks.results import Result
from afterword.tasks.task import Scores

MAINS = (0.5, 0.6, 0.4)


def run(i: int, task: str = "STSB", method: str = "bellm", metric: str = "m", revision: str = "r", **about: Any) -> Row:
    training = {"settings": {"seed": i, "rank": 32}, "data": "d", "weights": "w"}
    told = {"name": method, "encoder": f"e{i}", "settings": {"max_length": 9, "weights": f"w{i}"}, "training": training}
    scores = {s: Scores(MAINS[i] + s / 100, {metric: MAINS[i] + s / 100}) for s in range(2)}
    return Row(method, {task: Result(task, "sts", metric, (), "k", revision, scores, {**told, **about})})


def test_mean_and_deviation_are_those_over_trainings():
    (made,) = average("bellm", [[run(i)] for i in range(3)])
    found = made.results["STSB"]
    assert (made.name, made.model) == ("bellm", "bellm")
    assert found.main == pytest.approx(fmean(m + 0.005 for m in MAINS)) and found.deviation == pytest.approx(
        stdev(MAINS)
    )
    assert found.metric_named("m") == pytest.approx(found.main)
    assert made.notes == ("mean ± standard deviation of 3 trainings, seeds 0, 1, 2",)


def test_each_method_has_its_mean():
    made = average("x", [[run(i, method=m) for m in ("a", "b")] for i in range(2)])
    assert [row.name for row in made] == ["x a", "x b"]


def trained(**changes: Any) -> dict[str, Any]:
    return {"training": {"settings": {"seed": 1, "rank": 32, **changes}, "data": "d", "weights": "w"}}


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (run(1, method="other"), "a run has bellm, another other"),
        (run(1, task="SICKR"), "only some of the runs have SICKR"),
        (run(1, metric="n"), "differ in metric"),
        (run(1, revision="s"), "differ in data"),
        (run(1, options={"folds": 5}), "differ in options"),
        (run(1, settings={"max_length": 6, "weights": "w1"}), "differ in max_length"),
        (run(1, **trained(rank=8)), "differ in the training's rank"),
        (run(0), "it would count twice"),
    ],
)
def test_what_differs_in_more_has_no_mean(other: Row, told: str):
    with pytest.raises(InputError, match=told):
        average("x", [[run(0)], [other]])


def test_one_run_has_no_deviation():
    with pytest.raises(InputError, match="the mean of 1 run has no deviation"):
        average("x", [[run(0)]])
