"""The result of tuning, as files (JSON, CSV tables, the encoder itself) and as text to print."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

from ..encoder import Encoder
from ..errors import plural
from ..files.atomic import atomic_folder
from ..methods import ditto
from ..methods.serialize import to_json
from ..tasks.scores import Bootstrap
from .heads import HeadMap, head_map, spelled_head
from .layers import CRITERIA, LayerTable
from .tuning import Tuned

SHOWN = 10
"""Number of best recipes that are reported with an interval."""


def best(tuned: Tuned) -> list[int]:
    """Indices of the recipes to report: the best on the half that ranks, the chosen one and the default."""
    rank = np.nan_to_num(tuned.choice.rank, nan=-2)
    first = [int(i) for i in np.argsort(-rank, kind="stable")[:SHOWN]]
    extra = {tuned.choice.simplest, tuned.choice.chosen, tuned.choice.default} - set(first)
    return first + sorted(extra, key=lambda i: -rank[i])


def as_json(tuned: Tuned, tests: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """The whole result as plain data; undefined scores are null."""
    choice, (first, second) = tuned.choice, tuned.split
    bootstrap = Bootstrap(tuned.gold[second], tuned.seed)
    shown = {i: bootstrap.interval(tuned.cosines[i, second]) for i in best(tuned)}

    def row(i: int) -> dict[str, Any]:
        recipe = tuned.recipes[i]
        return {
            "method": recipe.spec, "post": recipe.post, "level": recipe.level,
            "rank": _number(choice.rank[i]), "confirm": _number(choice.confirm[i]),
        }  # fmt: skip

    def with_interval(i: int) -> dict[str, Any]:
        return {**row(i), "confirm_95": [_number(x) for x in shown[i]]}

    return {
        "afterword": version("afterword"),
        "seed": tuned.seed,
        "pairs": len(tuned.gold),
        "tried": len(tuned.recipes),
        "undefined": int((np.isnan(choice.rank) | np.isnan(choice.confirm)).sum()),
        "improved": choice.improved,
        "chosen": {**with_interval(choice.chosen), "as": to_json(tuned.recipes[choice.chosen].method)},
        "default": with_interval(choice.default),
        "leader": with_interval(choice.leader),
        "simplest": {**with_interval(choice.simplest), "gain_95": [_number(x) for x in choice.gain]},
        "best": [with_interval(i) for i in best(tuned)],
        "heads": None if (heads := head_map(tuned)) is None else heads_json(heads),
        "tests": list(tests),
        "notes": tuned.notes,
        "recipes": [row(i) for i in range(len(tuned.recipes))],
        "split": {"rank": first.tolist(), "confirm": second.tolist()},
    }


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def save(tuned: Tuned, folder: Path, tests: Sequence[Mapping[str, Any]] = (), overwrite: bool = False) -> None:
    """Write the chosen encoder, and beside it tune.json, recipes.csv and heads.csv; all files or none.

    Args:
        tuned: the result of tuning.
        folder: created if it is missing.
        tests: scores of the chosen recipe and of the default on other pairs.
    """
    with atomic_folder(folder, overwrite) as half:
        tuned.chosen.save(half)
        result = as_json(tuned, tests)
        (half / "tune.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        columns = ("method", "post", "level", "rank", "confirm")
        _table(half / "recipes.csv", columns, ([row[c] for c in columns] for row in result["recipes"]))
        if heads := head_map(tuned):
            _heads(half / "heads.csv", heads)


def save_head(encoder: Encoder, heads: HeadMap, texts: int, folder: Path, overwrite: bool = False) -> dict[str, Any]:
    """Write a Ditto encoder with the head chosen by TF-IDF, beside it tune.json and heads.csv.

    Returns:
        The content of tune.json.
    """
    result = {"afterword": version("afterword"), "texts": texts, "heads": heads_json(heads)}
    with atomic_folder(folder, overwrite) as half:
        replace(encoder, method=ditto(heads.label_free)).save(half)
        (half / "tune.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        _heads(half / "heads.csv", heads)
    return result


def save_layer(encoder: Encoder, table: LayerTable, by: str, folder: Path, overwrite: bool = False) -> dict[str, Any]:
    """Write the encoder with the layer that a criterion chooses, and beside it tune.json.

    Returns:
        The content of tune.json.
    """
    chosen, states = table.encoder(encoder, by), table.states[table.chosen(by)]
    result = {
        "afterword": version("afterword"),
        "texts": table.texts,
        "criterion": by,
        "chosen": {"states": states, "as": to_json(chosen.method)},
        "by": {name: table.states[table.chosen(name)] for name in CRITERIA},
        "layers": [
            {"states": states, **{name: _number(values[k]) for name, values in table.measures.items()}}
            for k, states in enumerate(table.states)
        ],
    }
    with atomic_folder(folder, overwrite) as half:
        chosen.save(half)
        (half / "tune.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return result


def layers(report: Report) -> str:
    """The measures of every layer as a table, and which layer was chosen by what."""
    names = {name: name.replace("_", " ") for name in CRITERIA}
    lines = [f"{plural(report['texts'], 'text')}, no labels", "", "  ".join(["states  ", *names.values()])]
    for row in report["layers"]:
        cells = ["nan" if row[n] is None else f"{row[n]:.3f}" for n in names]
        lines.append(
            "  ".join([f"{row['states']:8}", *(f"{c:>{len(t)}}" for c, t in zip(cells, names.values(), strict=True))])
        )
    least = {1: "highest", -1: "lowest"}
    told = {name: f"{least[sign]} {what}" for name, (what, sign) in CRITERIA.items()}
    lines += ["", f"chosen: {report['chosen']['states']}, by the {told[report['criterion']]}"]
    lines += [f"the {told[n]} would choose {s}" for n, s in report["by"].items() if n != report["criterion"]]
    return "\n".join(lines)


def heads_json(heads: HeadMap) -> dict[str, Any]:
    """The map as plain data: heads are counted from 1, each row is a layer."""
    result: dict[str, Any] = {
        "label_free": spelled_head(heads.label_free),
        "tfidf": [[_number(x) for x in row] for row in heads.correlation],
    }
    if heads.scores is None:
        return result
    return result | {
        "states": "first_last",
        "best": spelled_head(heads.best),
        "best_score": _number(heads.scores[heads.best]),
        "label_free_score": _number(heads.scores[heads.label_free]),
        "label_free_place": heads.place,
        "agreement": _number(heads.agreement),
        "scores": [[_number(x) for x in row] for row in heads.scores],
    }


def _heads(path: Path, heads: HeadMap) -> None:
    """Write a table: layer and head from 1, score, correlation with TF-IDF."""
    layers, count = heads.correlation.shape
    scores = np.full((layers, count), np.nan) if heads.scores is None else heads.scores
    rows = ((i + 1, j + 1, scores[i, j], heads.correlation[i, j]) for i in range(layers) for j in range(count))
    _table(path, ("layer", "head", "spearman", "tfidf"), rows)


def _table(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)


Report = Mapping[str, Any]
"""The content of tune.json."""


def page(report: Report, heads: HeadMap | None, out: Path) -> str:
    """The result as text for the terminal."""
    parts = [chosen(report)] if "recipes" in report else []
    parts += [layers(report)] if "layers" in report else []
    parts += [grid(heads)] if heads is not None else []
    return "\n\n".join([*parts, f"saved in {out}"])


def chosen(report: Report) -> str:
    """The best recipes, which was chosen, and its scores on other pairs."""
    half = len(report["split"]["rank"])
    lines = [
        f"{report['tried']} recipes, {report['pairs']} pairs: {half} rank, {report['pairs'] - half} confirm "
        f"(seed {report['seed']}); Spearman x 100",
        "",
        "  rank  confirm (95 %)        level  recipe",
    ]
    marks = {key: _name(report[key]) for key in ("default", "simplest", "leader")}
    for row in report["best"]:
        notes = [key for key, name in marks.items() if name == _name(row)]
        note = f"  <- {', '.join(notes)}" if notes else ""
        lines.append(f"{_x100(row['rank'])}  {_interval(row)}  {row['level']:>5}  {_name(row)}{note}")
    if report["undefined"]:
        why = "their vectors are constant, or not finite"
        lines.append(f"{plural(report['undefined'], 'recipe')} without a score on one half or both: {why}")
    lines += ["", _verdict(report), *_noted(report["notes"])]
    if report["tests"]:
        lines += ["", "default  chosen  test"]
        lines += [
            f"{_x100(t['default']):>7}  {_x100(t['chosen'])}  {t['name']}, {t['pairs']} pairs" for t in report["tests"]
        ]
    return "\n".join(lines)


def _noted(notes: Sequence[str]) -> list[str]:
    """Recipes that could not be tried; of those that differ only in numbers, how many there are and the first one."""
    alike: dict[str, list[str]] = {}
    for note in notes:
        alike.setdefault(re.sub("[0-9]+", "#", note.partition(": ")[2]), []).append(note)
    return [
        fill(f"note: {plural(len(same), 'recipe')} not tried: {same[0]}" + (" ..." if same[1:] else ""), 110,
             subsequent_indent="      ", break_long_words=False, break_on_hyphens=False)
        for same in alike.values()
    ]  # fmt: skip


def _verdict(report: Report) -> str:
    simplest, default = report["simplest"], report["default"]
    low, high = (_x100(x).strip() for x in simplest["gain_95"])
    unscored = default["confirm"] is None
    if simplest["confirm"] is None and _name(simplest) != _name(default):
        return (
            f"chosen: {_name(default)}, the default: {_name(simplest)} ranked first, but has no score on the half "
            "that confirms"
        )
    if report["improved"]:
        than = f"which scores {low} to {high}" if unscored else f"better than the default by {low} to {high}"
        rest = "; the default's vectors are constant" if unscored else ""
        return f"chosen: {_name(simplest)}, {than} on the half that confirms{rest}"
    if _name(simplest) == _name(default):
        return f"chosen: {_name(default)}, the default: no recipe is better by more than noise on the half that ranks"
    return (
        f"chosen: {_name(default)}, the default: {_name(simplest)} ranked first, "
        f"but its {'score' if unscored else 'gain'} of {low} to {high} on the half that confirms is not sure"
    )


def grid(heads: HeadMap) -> str:
    """The map of heads as a table with a row per layer, and the head that TF-IDF chooses."""
    label_free = spelled_head(heads.label_free)
    by_tfidf = f"{label_free}, whose diagonal correlates with TF-IDF by {heads.correlation[heads.label_free]:.2f}"
    if heads.scores is None:
        return f"{_numbers(heads.correlation, 'correlation with TF-IDF x 100')}\n\nchosen: head {by_tfidf}"
    scores, best = heads.scores, spelled_head(heads.best)
    return (
        f"{_numbers(scores, 'Ditto on first_last, all pairs, Spearman x 100')}\n\n"
        f"best head: {best}, {_x100(scores[heads.best]).strip()}; chosen without labels: {by_tfidf}: "
        f"{_x100(scores[heads.label_free]).strip()}, place {heads.place} of {scores.size}\n"
        f"over heads, score and correlation with TF-IDF agree by {heads.agreement:.2f} (Spearman)"
    )


def _numbers(table: Any, title: str) -> str:
    """A table with a row per layer and a column per head, both counted from 1."""
    lines = [title, "layer  " + "".join(f"{f'head {j + 1}' if j == 0 else j + 1:>7}" for j in range(table.shape[1]))]
    return "\n".join(lines + [f"{i + 1:>5}  " + "".join(f"{_x100(x):>7}" for x in row) for i, row in enumerate(table)])


def _name(row: Mapping[str, Any]) -> str:
    """A recipe's method and step, as tables show them."""
    return str(row["method"]) if row["post"] == "none" else f"{row['method']} + {row['post']}"


def _interval(row: Mapping[str, Any]) -> str:
    if row["confirm"] is None:
        return f"{_x100(None)}{'':16}"
    low, high = row["confirm_95"]
    return f"{_x100(row['confirm'])} ({_x100(low)} {_x100(high)})"


def _x100(value: float | None) -> str:
    return "   nan" if value is None or value != value else f"{100 * value:6.2f}"
