"""What `afterword tune` prints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..tune import HeadMap

Found = Mapping[str, Any]


def page(found: Found, heads: HeadMap | None, out: Path) -> str:
    """What was found, for a person to read."""
    parts = [chosen(found)] if "recipes" in found else []
    parts += [grid(heads)] if heads is not None else []
    return "\n\n".join([*parts, f"saved in {out}"])


def chosen(found: Found) -> str:
    """The best recipes, which was taken, and what it gave elsewhere."""
    half = len(found["split"]["rank"])
    lines = [
        f"{found['tried']} recipes, {found['pairs']} pairs: {half} rank, {found['pairs'] - half} confirm "
        f"(seed {found['seed']}); Spearman x 100",
        "",
        "  rank  confirm (95 %)        level  recipe",
    ]
    marks = {key: _name(found[key]) for key in ("default", "simplest", "leader")}
    for row in found["best"]:
        notes = [key for key, name in marks.items() if name == _name(row)]
        note = f"  <- {', '.join(notes)}" if notes else ""
        lines.append(f"{_x100(row['rank'])}  {_interval(row)}  {row['level']:>5}  {_name(row)}{note}")
    if found["undefined"]:
        lines.append(f"{found['undefined']} recipes have no score: their vectors are constant, or not finite")
    lines += ["", _verdict(found), *(f"note: {note}" for note in found["notes"])]
    if found["tests"]:
        lines += ["", "default  chosen  test"]
        lines += [
            f"{_x100(t['default']):>7}  {_x100(t['chosen'])}  {t['name']}, {t['pairs']} pairs" for t in found["tests"]
        ]
    return "\n".join(lines)


def _verdict(found: Found) -> str:
    simplest, default = found["simplest"], found["default"]
    low, high = (_x100(x).strip() for x in simplest["gain_95"])
    if found["improved"]:
        return f"chosen: {_name(simplest)}, better than the default by {low} to {high} on the half that confirms"
    if _name(simplest) == _name(default):
        return f"chosen: {_name(default)}, the default: no recipe is better by more than noise on the half that ranks"
    return (
        f"chosen: {_name(default)}, the default: {_name(simplest)} ranked first, "
        f"but its gain of {low} to {high} on the half that confirms is not sure"
    )


def grid(heads: HeadMap) -> str:
    """The map of heads, a row per layer, and what tf-idf chooses."""
    from ..tune.heads import spelled_head

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
    """Layers down, heads across, both from 1."""
    lines = [title, "layer  " + "".join(f"{f'head {j + 1}' if j == 0 else j + 1:>7}" for j in range(table.shape[1]))]
    return "\n".join(lines + [f"{i + 1:>5}  " + "".join(f"{_x100(x):>7}" for x in row) for i, row in enumerate(table)])


def _name(row: Found) -> str:
    """As a table shows it."""
    return str(row["method"]) if row["post"] == "none" else f"{row['method']} + {row['post']}"


def _interval(row: Found) -> str:
    low, high = row["confirm_95"]
    return f"{_x100(row['confirm'])} ({_x100(low)} {_x100(high)})"


def _x100(value: float | None) -> str:
    return "   nan" if value is None or value != value else f"{100 * value:6.2f}"
