"""The mean of several trainings that differ in their seed alone, as one row with standard deviations."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..errors import InputError
from .report import Row
from .results import Result
from .same_encoder import differences, encoder_of


def average(name: str, runs: Sequence[Sequence[Row]]) -> list[Row]:
    """One row for each method of several runs: its results have a score for every run in place of seeds.

    So the main score is the mean over runs, and `Result.deviation` the sample standard deviation over them, as BeLLM's
    tables have them (section 5.1: "the average scores in five runs").

    Args:
        name: name of the mean.
        runs: for every run its rows, one per method.

    Raises:
        InputError: there are fewer than two runs, or they differ in more than the seed of their training: in methods,
            tasks, data, options, settings, or not at all.
    """
    if len(runs) < 2:
        raise InputError(f"{name}: the mean of 1 run has no deviation: give 2 or more folders")
    methods = [[row.name for row in rows] for rows in runs]
    if any(found != methods[0] for found in methods):
        found = next(found for found in methods if found != methods[0])
        raise InputError(
            f"{name}: a run has {', '.join(methods[0])}, another {', '.join(found)}: give the same methods"
        )
    rows = [_average(name, members) for members in zip(*runs, strict=True)]
    return [replace(row, name=name if len(rows) == 1 else f"{name} {row.name}") for row in rows]


def _average(name: str, rows: Sequence[Row]) -> Row:
    first, *others = rows
    for other in others:
        if missing := sorted(set(first.results) ^ set(other.results)):
            raise InputError(f"{name}: only some of the runs have {missing[0]}: evaluate all on the same --tasks")
        for task in first.results:
            if told := _differ(first.results[task], other.results[task]):
                raise InputError(
                    f"{name}: the runs of {task} differ in {told}: only trainings of other seeds have a mean"
                )
    encoders = [encoder_of(next(iter(row.results.values())).about) for row in rows]
    if len(set(encoders)) < len(encoders):
        raise InputError(f"{name}: two of the runs are of one encoder, and it would count twice: give each run once")
    results = {task: _merge([row.results[task] for row in rows]) for task in first.results}
    return Row(first.name, results, name, first.folder, (_note(rows), *first.notes))


def _differ(a: Result, b: Result) -> str:
    """What two results differ in beside weights and seed; "" = nothing."""
    found = [key for key in ("name", "method", "post", "fit", "options") if a.about.get(key) != b.about.get(key)]
    found += [key for key in differences(a.about, b.about) if key != "weights"]
    found += ["metric"] if a.metric != b.metric else []
    found += ["data"] if a.revision != b.revision else []
    one, other = _training(a.about), _training(b.about)
    found += [f"the training's {key}" for key in {**one, **other} if one.get(key) != other.get(key)]
    return ", ".join(dict.fromkeys(found))


def _training(about: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the training but for its seed, with the data that it was trained on."""
    told = about.get("training")
    if not isinstance(told, Mapping):
        return {}
    settings = told.get("settings")
    rest = {key: value for key, value in told.items() if key != "settings"}
    return {**rest, **{key: json.dumps(v) for key, v in dict(settings or {}).items() if key != "seed"}}


def _merge(results: Sequence[Result]) -> Result:
    return replace(results[0], scores={i: r.mean for i, r in enumerate(results)})


def _note(rows: Sequence[Row]) -> str:
    """How many trainings, and of which seeds."""
    abouts = [next(iter(row.results.values())).about for row in rows]
    seeds = [about["training"]["settings"]["seed"] for about in abouts if _training(about)]
    if len(seeds) < len(abouts):
        return f"mean ± standard deviation of {len(rows)} encoders; their results do not say how they were trained"
    return f"mean ± standard deviation of {len(rows)} trainings, seeds {', '.join(map(str, seeds))}"
