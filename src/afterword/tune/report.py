"""What tuning found, as files: JSON with everything, tables for a spreadsheet, the encoder itself."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from ..encoder import Encoder
from ..files.atomic import placed
from ..methods import ditto
from ..methods.serialize import to_json
from .heads import HeadMap, head_map, spelled_head
from .noise import Bootstrap
from .tuning import Tuned

SHOWN = 10
"""Recipes that are told of with an interval."""


def best(tuned: Tuned) -> list[int]:
    """The recipes to tell of: the best on the half that ranks, what was chosen and the default."""
    rank = np.nan_to_num(tuned.choice.rank, nan=-2)
    first = [int(i) for i in np.argsort(-rank, kind="stable")[:SHOWN]]
    extra = {tuned.choice.simplest, tuned.choice.chosen, tuned.choice.default} - set(first)
    return first + sorted(extra, key=lambda i: -rank[i])


def as_json(tuned: Tuned, tests: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Everything that was found, as plain data; scores that are undefined are null."""
    choice, (first, second) = tuned.choice, tuned.split
    bootstrap = Bootstrap(tuned.gold[second], tuned.seed)
    shown = {i: bootstrap.interval(tuned.cosines[i, second]) for i in best(tuned)}

    def row(i: int) -> dict[str, Any]:
        recipe = tuned.recipes[i]
        return {
            "method": recipe.spec, "post": recipe.post, "level": recipe.level,
            "rank": _number(choice.rank[i]), "confirm": _number(choice.confirm[i]),
        }  # fmt: skip

    def told(i: int) -> dict[str, Any]:
        return {**row(i), "confirm_95": [_number(x) for x in shown[i]]}

    return {
        "afterword": version("afterword"),
        "seed": tuned.seed,
        "pairs": len(tuned.gold),
        "tried": len(tuned.recipes),
        "undefined": int(np.isnan(choice.rank).sum()),
        "improved": choice.improved,
        "chosen": {**told(choice.chosen), "as": to_json(tuned.recipes[choice.chosen].method)},
        "default": told(choice.default),
        "leader": told(choice.leader),
        "simplest": {**told(choice.simplest), "gain_95": [_number(x) for x in choice.gain]},
        "best": [told(i) for i in best(tuned)],
        "heads": None if (heads := head_map(tuned)) is None else heads_json(heads),
        "tests": list(tests),
        "notes": tuned.notes,
        "recipes": [row(i) for i in range(len(tuned.recipes))],
        "split": {"rank": first.tolist(), "confirm": second.tolist()},
    }


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def save(tuned: Tuned, folder: Path, tests: Sequence[Mapping[str, Any]] = ()) -> None:
    """Write the chosen encoder, and beside it tune.json, recipes.csv and heads.csv; all of it or nothing.

    Args:
        tuned: what was found.
        folder: made if it is not there.
        tests: what the chosen and the default gave on other pairs.
    """
    with placed(folder) as half:
        tuned.chosen.save(half)
        found = as_json(tuned, tests)
        (half / "tune.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        columns = ("method", "post", "level", "rank", "confirm")
        _table(half / "recipes.csv", columns, ([row[c] for c in columns] for row in found["recipes"]))
        if heads := head_map(tuned):
            _heads(half / "heads.csv", heads)


def save_head(encoder: Encoder, heads: HeadMap, texts: int, folder: Path) -> dict[str, Any]:
    """Write the encoder of the head that tf-idf chooses, and beside it tune.json and heads.csv; what was found."""
    found = {"afterword": version("afterword"), "texts": texts, "heads": heads_json(heads)}
    with placed(folder) as half:
        replace(encoder, method=ditto(heads.label_free)).save(half)
        (half / "tune.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        _heads(half / "heads.csv", heads)
    return found


def heads_json(heads: HeadMap) -> dict[str, Any]:
    """The map as plain data; heads are spelled from 1, rows are layers."""
    found: dict[str, Any] = {
        "label_free": spelled_head(heads.label_free),
        "tfidf": [[_number(x) for x in row] for row in heads.correlation],
    }
    if heads.scores is None:
        return found
    return found | {
        "states": "first_last",
        "best": spelled_head(heads.best),
        "best_score": _number(heads.scores[heads.best]),
        "label_free_score": _number(heads.scores[heads.label_free]),
        "label_free_place": heads.place,
        "agreement": _number(heads.agreement),
        "scores": [[_number(x) for x in row] for row in heads.scores],
    }


def _heads(path: Path, heads: HeadMap) -> None:
    """Layer and head from 1, score, correlation with tf-idf."""
    layers, count = heads.correlation.shape
    scores = np.full((layers, count), np.nan) if heads.scores is None else heads.scores
    rows = ((i + 1, j + 1, scores[i, j], heads.correlation[i, j]) for i in range(layers) for j in range(count))
    _table(path, ("layer", "head", "spearman", "tfidf"), rows)


def _table(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)
