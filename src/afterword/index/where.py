"""Why a condition on the columns of an index cannot be used, in one plain line."""

from __future__ import annotations

import re
from collections.abc import Sequence

NO_COLUMN = re.compile(r'No field named ("?)(.+?)\1\. ')
UNREADABLE = re.compile(r"\(sql parser error: (.*)\)$")
UNCLOSED = "Unterminated string literal"
NO_CONDITION = "does not return a boolean"
OTHER_KIND = re.compile(r"Received literal \w+?\((.*?)\) and could not convert to literal of type '(\w+)")
PLACE = re.compile(r",? /\S+:\d+:\d+")  # in the source of LanceDB
PREFIXES = re.compile(r"^(Invalid input, |lance error: |Invalid user input: |Query Execution error: )+")


def why(where: str, told: str, columns: Sequence[str]) -> str:
    r"""The reason why a condition cannot be used.

    Args:
        where: the condition.
        told: LanceDB's own message, which shows a statement that nobody wrote.
        columns: the columns that conditions are about.

    >>> why("yera > 3", "Invalid input, Schema error: No field named yera. Valid fields are", ["id", "year"])
    "--where 'yera > 3': no column yera; there are id, year"
    >>> why("a >", "SELECT 1 FROM t WHERE a > (sql parser error: Expected: an expression, found: EOF)", [])
    "--where 'a >' cannot be read: expected an expression, found its end"
    """
    start, told = f"--where {where!r:.200}", told.splitlines()[0] if told.strip() else "no reason was given"
    if not where.strip():
        return f'{start} is empty: write a condition, such as "chunk = 0"'
    if found := NO_COLUMN.search(told):
        hint = f"; a text stands in single quotes: '{found[2]}'" if found[1] else ""
        return f"{start}: no column {found[2]}; there are {', '.join(columns)}{hint}"
    if UNCLOSED in told:
        return f"{start} cannot be read: a quote is not closed; two stand for one inside a text, as in 'O''Brien'"
    if found := UNREADABLE.search(told):
        reason = found[1].replace("Expected: ", "expected ").replace("found: ", "found ").replace("EOF", "its end")
        return f"{start} cannot be read: {reason}"
    if NO_CONDITION in told:
        return f'{start} is no condition: compare with something, as in "chunk = 0"'
    if found := OTHER_KIND.search(told):
        return f"{start}: {found[1]} is of another type than its column, {found[2]}"
    return f"{start} cannot be used: {PREFIXES.sub('', PLACE.sub('', told)):.200}"
