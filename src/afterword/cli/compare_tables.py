"""The tables that ``afterword compare`` prints: differences, and published tables with our rows in them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .lay_tables import laid_out, paragraph

if TYPE_CHECKING:
    from ..tasks.beside import Line
    from ..tasks.compare import Comparison
    from ..tasks.published import Published
    from ..tasks.report import Row

NO_TEST = "no t-test: it needs two sets of one group, metric and protocol"


def listed() -> str:
    """The list of published tables."""
    from ..tasks.published import published

    return "\n".join(f"{t.id:<10} {t.paper}, {t.table}: {t.title} ({len(t.rows)} rows)" for t in published().values())


def difference_table(comparison: Comparison, width: int | None) -> str:
    """Differences by task with their intervals, and the tests."""
    cells = [["task", comparison.first, comparison.second, "difference", "95 % interval"]]
    for d in comparison.differences:
        low, high = d.interval
        interval = d.note or ("-" if math.isnan(low) else f"{low:+.2f} to {high:+.2f}")
        cells.append([d.task, f"{d.first:.2f}", f"{d.second:.2f}", _signed(d.value), interval])
    head = paragraph(f"{comparison.second} against {comparison.first}, x 100", width)
    tests = "\n".join(paragraph(line, width) for line in tests_of(comparison))
    return f"{head}\n\n{laid_out(cells, width)}\n\n{tests}"


def _signed(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:+.2f}"


def tests_of(comparison: Comparison) -> list[str]:
    """The tests, each with the sets that it counts."""
    lines = []
    for test in comparison.tests:
        protocol = f", {test.kind.protocol}" if test.kind.protocol else ""
        line = f"{test.kind.group}, {test.kind.metric}{protocol}: mean difference {test.mean:+.2f} over "
        line += f"{len(test.tasks)} sets ({', '.join(test.tasks)}); "
        line += (
            "no t-test: all differ by the same amount"
            if math.isnan(test.p)
            else f"paired t-test: t = {test.t:.2f}, p = {test.p:.2g}"
        )
        lines.append(line)
    return lines or [NO_TEST]


def published_table(table: Published, rows: Sequence[Row], width: int | None) -> str:
    """A table of a paper, with the results of these folders as its first rows."""
    from ..tasks.beside import lines

    found = lines(table, rows)
    notes = _numbered(table, found)
    columns = range(len(table.columns))
    cells = [[line.name, *(_cell(table, line, k, notes) for k in columns), line.whose] for line in found]
    caption = f"{table.title}. {table.table} of {table.reference}." + (f" {table.note}" if table.note else "")
    told = "".join(f"\n{paragraph(f'- ({i}) {note}', width, '  ')}" for note, i in notes.items())
    return (
        f"{paragraph(caption, width)}\n\n{laid_out([[table.id, *table.columns, 'whose'], *cells], width, remark=True)}"
        + (f"\n{told}" if told else "")
    )


def _numbered(table: Published, found: Sequence[Line]) -> dict[str, int]:
    """Every note on our scores, with its number."""
    told = [_told(table, k, note) for line in found for k in range(len(table.columns)) for note in line.note(k)]
    return {note: i for i, note in enumerate(dict.fromkeys(told), 1)}


def _told(table: Published, column: int, note: str) -> str:
    task = table.tasks[column]
    return note if task is None else f"{task}: {note}"


def _cell(table: Published, line: Line, k: int, numbers: Mapping[str, int]) -> str:
    """A score with its deviation, and the numbers of its notes."""
    score, deviation, digits = line.scores[k], line.deviations[k], 2 if table.scale == 100 else 4
    if score is None:
        return "-"
    text = f"{score:.{digits}f}" + ("" if deviation is None else f" ± {deviation:.{digits}f}")
    marks = sorted(numbers[_told(table, k, note)] for note in line.note(k))
    return text + (f" ({','.join(map(str, marks))})" if marks else "")
