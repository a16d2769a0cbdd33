"""A condition is read whole, or refused in one line, which shows nothing that the user did not write."""

from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.index.rows import DIMENSION, info, reader

pytest.importorskip("lancedb")

from afterword.errors import DataError
from afterword.index.find import Asked, find
from afterword.index.index import Index


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    made_by = info(text_search=False)
    rows = reader(["x", "y"], made_by).read_all()
    for name, values in {"year": ["2019", "x"], "n": [1, 2], "price": [1.5, 2.5]}.items():
        rows = rows.add_column(7, name, pa.array(values))
    rows = rows.replace_schema_metadata(made_by.to_schema())
    return Index.create(tmp_path_factory.mktemp("a") / "i", rows.to_reader(), made_by)


def found(index: Index, where: str) -> set[str]:
    (one,) = find(index, ["any"], np.ones((1, DIMENSION), np.float32), Asked(where=where))
    return {hit.id for hit in one.hits}


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("yera > 3", "--where 'yera > 3': no column yera; there are id, doc, chunk, start, end, text, price, n, year"),
        (
            'id = "a b"',
            "no column a b; there are id, doc, chunk, start, end, text, price, n, year; a text stands in single "
            "quotes: 'a b'",
        ),
        ("year = zh", ", n, year; a text stands in single quotes: 'zh'"),
        ('year != "x"', ", n, year; a text stands in single quotes: 'x'"),
        (
            "year = zh-CN and n = 1",
            "no column zh; there are id, doc, chunk, start, end, text, price, n, year; a text "
            "stands in single quotes: 'zh-CN'",
        ),
        ("lower(year) LIKE New York", "a text stands in single quotes: 'New York'"),
        ("year in ('a', b)", "a text stands in single quotes: 'b'"),
        ("text match 'a'", "cannot be read: match is no operator"),
        ("chunk >", "--where 'chunk >' cannot be read: expected an expression, found its end"),
        ("id = 'O'Brien'", "a quote is not closed; two stand for one"),
        (" ", "--where ' ' is empty: write a condition"),
        ("chunk", "--where 'chunk' is no condition: compare with something"),
        ("chunk = 'a'", "chunk holds whole numbers, and 'a' is not one: write a value of this type"),
        ("n > 1.5", "n holds whole numbers, and 1.5 is not one: write cast(n as double)"),
        ("_rowid < 3", "no column _rowid; there are id"),
        ("vector is not null", "no column vector; there are id"),
        (f"year = {2**70 + 1}", f"{2**70 + 1} is not one: write '{2**70 + 1}', since a number of this size is rounded"),
        ("year > 2020", "year holds texts, and 2020 is not one: write try_cast(year as double)"),
        ("'id' = 'n' and 2020.5 < year", "year holds texts, and 2020.5 is not one"),
        ("year = true", "year holds texts, and true is not one: write 'true'"),
        ("id > year and doc > 1", "a column holds texts, and 1 is not one"),
        ("year + 1 > 3", "cannot be used: Cannot coerce arithmetic expression texts + whole numbers to valid types"),
        ("lower(n) = 'a'", "cannot be used: Function 'lower' requires texts, but received whole numbers"),
        ("n like 'a%'", "There isn't a common type to coerce whole numbers and texts in LIKE expression"),
        ("sum(n) > 1", "a condition is about one row, without counts and sums of many"),
        ("n / 0 > 1", "cannot be used: Divide by zero error"),
        ("nope(chunk) > 1", "Invalid function 'nope'"),
        ("cast(year as int) > 1", "a row has 'x', which is no number: write try_cast"),
        ("regexp_match(text, '(')", "Regular expression did not compile"),
    ],
)
def test_each_mistake_is_named(index: Index, where: str, told: str):
    with pytest.raises(DataError) as caught:
        found(index, where)
    said = str(caught.value)
    assert told in said and "\n" not in said
    assert not any(
        inner in said
        for inner in (
            "SELECT",
            "cannot be searched",
            "/root",
            "lance",
            "hash",
            "Invalid input",
            "Utf8",
            "Int64",
            "planning",
        )
    )


@pytest.mark.parametrize("where", ["yera = 'zh'", "yera > 3", "year <> '= yera' and yera", "yera = zh"])
def test_a_mistyped_column_is_not_taken_as_a_text(index: Index, where: str):
    with pytest.raises(DataError) as caught:
        found(index, where)
    assert str(caught.value).endswith("no column yera; there are id, doc, chunk, start, end, text, price, n, year")


@pytest.mark.parametrize(
    ("where", "rest"),
    [
        ("n = 1 n = 2", "'n = 2'"),
        ("id='0' garbage", "'garbage'"),
        ("1=1; DROP", "'; DROP'"),
        ("id='0';", "';'"),
        ("id='0'garbage", "'garbage'"),
        ("id='0') or (id='1'", "\") or (id='1'\""),
        ("id='0') garbage (x", "') garbage (x'"),
        ("id='0'), (id='1'", "\"), (id='1'\""),
        ("id='0' order by n", "'order by n'"),
        ("id='a -- b' /* c */ 'd'", "\"'d'\""),
    ],
)
def test_what_stands_behind_a_condition_is_refused_by_name(index: Index, where: str, rest: str):
    with pytest.raises(DataError) as caught:
        found(index, where)
    said = str(caught.value)
    assert f": {rest} stands behind the first whole condition, and would not be read" in said and "\n" not in said


@pytest.mark.parametrize(
    "where",
    [
        "id = '0' -- it's garbage", "id = '0' /* ) */", "id = '0' or id = 'a) b; -- c /* O''Brien'", "`id` = '0'",
        "(id = '0') or (id = '2')", "id in ('0',\n'2') and not n = 2", "try_cast(year as double) > 2018", "price < 2",
        "year = '2019'", "year > '2018' and year < 'w'",
    ],
)  # fmt: skip
def test_a_whole_condition_is_read_whole(index: Index, where: str):
    assert found(index, where) == {"0"}


def test_times_are_told_how_they_are_written(tmp_path: Path):
    made_by, rows = info(text_search=False), reader(["x", "y"], info(text_search=False)).read_all()
    times = pa.array([datetime(2018, 1, 1), datetime(2026, 1, 1)], pa.timestamp("us"))
    rows = rows.add_column(7, "ts", times).add_column(7, "day", times.cast(pa.date32()))
    index = Index.create(tmp_path / "i", rows.replace_schema_metadata(made_by.to_schema()).to_reader(), made_by)
    for name, word in (("ts", "timestamp"), ("day", "date")):
        assert found(index, f"{name} > {word} '2019-01-01'") == {"1"}
    told = r"a column holds timestamps, and '2019-01-01' is a text: write timestamp '2019-01-01'"
    with pytest.raises(DataError, match=told):
        found(index, "ts > '2019-01-01'")
