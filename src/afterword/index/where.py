"""A condition on the columns of an index is read whole, or refused in one plain line that says why."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress

from ..errors import DataError
from .index import RESERVED, VECTOR, Index
from .whole import PLACE

NO_COLUMN = re.compile(r'No field named ("?)(.+?)\1\. ')
UNREADABLE = re.compile(r"\(sql parser error: (.*)\)$")
BROKEN = re.compile(r"sql parser error|Invalid function 'cast'")  # of a condition that is put where `_whole` has it
INFIX = re.compile(r'No infix parser for token Word\(Word \{ value: "(.*?)".*')
UNCLOSED = "Unterminated string literal"
NO_CONDITION = "does not return a boolean"
OTHER_KIND = re.compile(r"Received literal (\w+?)\((.*?)\) and could not convert to literal of type '(\w+)")
NO_CAST = re.compile(r"Cannot cast string '(.*)' to value of (\w+) type")
GONE = "Not found: "
"""How LanceDB begins to tell of a file that is gone: the versions that nobody needs are removed with their files."""
AGGREGATE = re.compile(r"Physical plan does not support logical expression (Aggregate|Window)Function")
PREFIXES = re.compile(
    r"^(Invalid input, |lance error: |Invalid user input: |Query Execution error: |Error during planning: |"
    r"Error parsing function: |"
    r"Error applying filter expression to batch: |Error optimizing sql filter: .*?\((?=Invalid user input: )|"
    r"Arrow error: )+"
)
ADVICE = re.compile(r"\.?\. No function matches .*| in lance$")  # of the planner, about types that nobody wrote
TEXT, WHOLE, NUMBER, TRUTH = "texts", "whole numbers", "numbers", "true or false"
KINDS = {r"(large_?)?(string|utf8)(view)?": TEXT, r"u?int\d+": WHOLE, r"float\d*|double|halffloat": NUMBER,
         r"bool(ean)?": TRUTH}  # fmt: skip
"""What a column holds, by Arrow's name of its type."""
TYPE = re.compile(r"\b(Large)?(Utf8|String|U?Int\d+|Float\d+|Boolean)(View)?\b")
ENDS = re.compile(r"\b|(?=[^\w\s])")  # where a condition may end
COMPARED = r"(?:[=<>]|\blike\b|\bin\s*\((?:[^()]*,)?)\s*"  # in front of a value
QUOTED = r"'(''|[^'])*'"
HIDDEN = re.compile(rf"(?<!\w)({'|'.join((*RESERVED, VECTOR, 'hash'))})(?!\w)")
NUMBERS = re.compile(r"(?<![\w.])-?\d[\d.]*(?:e[+-]?\d+)?", flags=re.I)
EXACT = 2**53  # from here on a double does not hold each whole number
TRIED = 1000  # such places that are tried


def kinds_of(index: Index) -> dict[str, str]:
    """What each column holds that conditions are about."""
    return {field.name: kind_of(str(field.type)) for field in index.table.schema if field.name not in (VECTOR, "hash")}


def kind_of(type: str) -> str:
    """What a column holds, by Arrow's name of its type, or by DataFusion's.

    >>> kind_of("string"), kind_of("Utf8"), kind_of("Int64"), kind_of("date32[day]")
    ('texts', 'texts', 'whole numbers', 'date32[day]')
    """
    return next((kind for name, kind in KINDS.items() if re.fullmatch(name, type.lower())), type)


def check_where(index: Index, where: str) -> None:
    """Refuse a condition of which LanceDB reads only the beginning, and drops the rest without a word.

    A condition that cannot be read at all passes: the search itself refuses it.

    Raises:
        DataError: something stands behind the first whole condition, or it is about a column of LanceDB's own.
    """
    if found := HIDDEN.search(re.sub(QUOTED, "''", where)):
        raise DataError(f"--where {where!r:.200}: no column {found[0]}; there are {', '.join(kinds_of(index))}")
    if not BROKEN.search(_told(index, _whole(where))) or _told(index, where):
        return
    ends = [place.start() for place in ENDS.finditer(where)][-TRIED:]
    end = next((end for end in reversed(ends) if not _told(index, _whole(where[:end]))), 0)
    rest = repr(where[end:].strip())[:80] if end else "something"
    raise DataError(
        f"--where {where!r:.200}: {rest} stands behind the first whole condition, and would not be read: join two by "
        "AND or OR"
    )


def _whole(where: str) -> str:
    """A condition in a place that only a whole expression fits."""
    return f"cast({where}\n as boolean)"


def _told(index: Index, where: str) -> str:
    """Why a condition cannot be planned; "" if it can. No row is read."""
    try:
        index.table.search().where(where).explain_plan()
    except (ValueError, RuntimeError, OSError) as e:
        return str(e) or "no reason was given"
    return ""


def refused(index: Index, where: str, error: Exception) -> DataError:
    """The error of a condition that LanceDB has refused."""
    return DataError(why(where, str(error), kinds_of(index)))


def unreadable(index: Index, error: Exception) -> DataError:
    """The error of an index that cannot be read: its files are damaged, or were removed by those who write."""
    told = PREFIXES.sub("", PLACE.sub("", str(error).splitlines()[0] if str(error) else type(error).__name__))
    changed = "another process has changed it meanwhile: run this again"
    often = changed if GONE in told else "its `afterword index` undoes a write that was cut short"
    return DataError(f"{index.folder} cannot be read: {often}: {told:.300}")


def why(where: str, told: str, columns: Mapping[str, str]) -> str:
    r"""The reason why a condition cannot be used.

    Args:
        where: the condition.
        told: LanceDB's own message, which shows a statement that nobody wrote.
        columns: what the columns hold that conditions are about.

    >>> why("yera > 3", "Invalid input, Schema error: No field named yera. Valid", {"id": "texts", "year": "texts"})
    "--where 'yera > 3': no column yera; there are id, year"
    >>> why("a >", "SELECT 1 FROM t WHERE a > (sql parser error: Expected: an expression, found: EOF)", {})
    "--where 'a >' cannot be read: expected an expression, found its end"
    """
    start, told = f"--where {where!r:.200}", told.splitlines()[0] if told.strip() else "no reason was given"
    if not where.strip():
        return f'{start} is empty: write a condition, such as "chunk = 0"'
    if found := NO_COLUMN.search(told):
        return f"{start}: no column {found[2]}; there are {', '.join(columns)}{_hint(where, found[2], columns)}"
    if UNCLOSED in told:
        return f"{start} cannot be read: a quote is not closed; two stand for one inside a text, as in 'O''Brien'"
    if found := UNREADABLE.search(told):
        reason = (
            INFIX.sub(r"\1 is no operator", found[1])
            .replace("Expected: ", "expected ")
            .replace("found: ", "found ")
            .replace("EOF", "its end")
        )
        return f"{start} cannot be read: {reason}"
    if NO_CONDITION in told:
        return f'{start} is no condition: compare with something, as in "chunk = 0"'
    if found := OTHER_KIND.search(told):
        return f"{start}: {_other_kind(where, found[1], found[2], found[3], columns)}"
    if found := NO_CAST.search(told):
        return f"{start}: a row has {found[1]!r:.40}, which is no number: write try_cast, which leaves such rows out"
    if found := AGGREGATE.search(told):
        return f"{start} cannot be used: a condition is about one row, without counts and sums of many"
    told = ADVICE.sub("", PREFIXES.sub("", PLACE.sub("", told)))
    return f"{start} cannot be used: {TYPE.sub(lambda name: kind_of(name[0]), told):.200}"


def _hint(where: str, name: str, columns: Mapping[str, str]) -> str:
    """What to write where a name is no column: a text that a column is compared with, or a name of several words.

    >>> _hint("lang = zh", "zh", {"lang": "texts"}), _hint("First Name = 'a'", "First", {"First Name": "texts"})
    ("; a text stands in single quotes: 'zh'", '; a name with other signs stands in backquotes: `First Name`')
    """
    named = re.escape(name)
    if found := re.search(
        COMPARED + rf'(?:"({named}.*?)"|({named}[^"\',()=<>]*?)\s*(\b(and|or)\b|[,);]|$))', where, re.I
    ):
        return f"; a text stands in single quotes: '{found[1] or found[2]}'"
    longer = next((column for column in columns if re.search(rf"\W{named}\b|\b{named}\W", column)), None)
    return "" if longer is None else f"; a name with other signs stands in backquotes: `{longer}`"


def _typed(where: str, value: str) -> str:
    """A number as it was typed: LanceDB shows it rounded."""
    with suppress(ValueError):
        return next((n for n in NUMBERS.findall(where) if float(n) == float(value)), value)
    return value


def _other_kind(where: str, type: str, value: str, wanted: str, columns: Mapping[str, str]) -> str:
    """What to write where a column holds something else than the value that it is compared with."""
    holds, given = kind_of(wanted), kind_of(type)
    plain = re.sub(QUOTED, "''", where)
    named = [
        name for name in columns if columns[name] == holds and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", plain)
    ]
    name = named[0] if len(named) == 1 else "a column"
    time = next((word for word in ("timestamp", "date") if holds.lower().startswith(word)), None)
    if time is not None and given == TEXT:
        text = value.strip('"')
        return f"a column holds {time}s, and '{text}' is a text: write {time} '{text}'"
    value = "'" + value.strip('"') + "'" if given == TEXT else _typed(plain, value)
    if holds == TEXT and given in (WHOLE, NUMBER) and float(value).is_integer() and abs(float(value)) >= EXACT:
        return f"{name} holds {holds}, and {value} is not one: write '{value}', since a number of this size is rounded"
    fixes = {
        (TEXT, WHOLE): f"try_cast({name} as double)", (TEXT, NUMBER): f"try_cast({name} as double)",
        (TEXT, TRUTH): f"'{value}'", (WHOLE, NUMBER): f"cast({name} as double)",
    }  # fmt: skip
    return f"{name} holds {holds}, and {value} is not one: write {fixes.get((holds, given), 'a value of this type')}"
