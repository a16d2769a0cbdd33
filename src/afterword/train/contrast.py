"""Positives and negatives for Equation 6 of BeLLM, from rows that name none: C-STS's labels, and classes.

The paper trains on C-STS with Equation 6 (sections 3.3 and 5.1), and does not say what is positive there: what is done
here is our reading.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import cycle

from ..errors import DataError, warn
from .rows import BY_CLASS, LABELLED, TrainingRows

MIDDLE = 3
"""C-STS's labels are 1 to 5: above the middle two texts are similar under the condition, below it they are not."""


def contrasted(rows: TrainingRows) -> TrainingRows:
    """The rows as a loss with in-batch negatives takes them; pairs and triplets stay as they are.

    Raises:
        DataError: there is no positive, or no negative.
    """
    if rows.form == LABELLED:
        return _by_class(rows)
    return _by_condition(rows) if rows.conditioned else rows


def _by_condition(rows: TrainingRows) -> TrainingRows:
    """Triplets of two texts that are similar under one condition and not under another.

    The anchor is the first text under the first condition, the positive the second text under it, and the negative the
    second text under the other condition.
    """
    by_texts: defaultdict[tuple[str, str], list[tuple[str, float]]] = defaultdict(list)
    for (first, condition), (second, _), label in zip(*rows.columns.values(), strict=True):
        by_texts[first, second].append((condition, label))
    anchors, positives, negatives, used = [], [], [], 0
    for (first, second), seen in by_texts.items():
        similar = [condition for condition, label in seen if label > MIDDLE]
        different = [condition for condition, label in seen if label < MIDDLE]
        if similar and different:
            used += len(similar) + len(different)
            anchors += [[first, condition] for condition in similar]
            positives += [[second, condition] for condition in similar]
            negatives += [[second, condition] for condition, _ in zip(cycle(different), similar, strict=False)]
    if not anchors:
        raise DataError(
            f"{rows.source} has no two sentences with a label above {MIDDLE} under one condition and below {MIDDLE} "
            "under another: use cosent or angle"
        )
    if used < len(rows):
        warn(
            f"{rows.source}: {len(rows) - used} of {len(rows)} rows are left out: their label is {MIDDLE}, or their "
            f"sentences have no label above {MIDDLE} under one condition and below {MIDDLE} under another"
        )
    columns = {"anchor": anchors, "positive": positives, "negative": negatives}
    return TrainingRows("conditioned triplets", columns, rows.source)


def _by_class(rows: TrainingRows) -> TrainingRows:
    """Pairs of each text and the next one of its class, with the number of the class; the last goes with the first."""
    classes: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for text, label in zip(*rows.columns.values(), strict=True):
        classes[label][text] = None
    if len(classes) < 2:
        raise DataError(
            f"{rows.source} holds one label, {next(iter(classes))!r}: texts of another one are the negatives"
        )
    if single := next((label for label, texts in classes.items() if len(texts) < 2), None):
        raise DataError(
            f"{rows.source} holds one text with the label {single!r}: a positive is another text of its class"
        )
    columns: dict[str, list[object]] = {"anchor": [], "positive": [], "label": []}
    for number, texts in enumerate(map(list, classes.values())):
        columns["anchor"] += texts
        columns["positive"] += [*texts[1:], texts[0]]
        columns["label"] += [number] * len(texts)
    return TrainingRows(BY_CLASS, columns, rows.source)
