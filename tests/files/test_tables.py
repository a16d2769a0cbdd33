"""Columns of tables."""

import io

import pytest

from afterword.errors import DataError
from afterword.files.lines import FileForm
from afterword.files.tables import CsvReader


def rows(text: bytes, field: str | None = None) -> list:
    reader = CsvReader(io.BytesIO(text), None, field)
    return [(r.line, r.problem or r.fields[reader.field]) for r in reader]


def test_a_table():
    text = 'id,text\n1,"a, ""b"""\n2,"two\nlines"\n3,c\n'
    assert rows(text.encode()) == [(2, 'a, "b"'), (3, "two\nlines"), (5, "c")]
    assert rows(text.replace("\n", "\r\n").encode())[1] == (3, "two\r\nlines")
    assert rows(text.encode(), "id") == [(2, "1"), (3, "2"), (5, "3")]


def test_the_only_column_needs_no_name():
    assert rows(b"sentence\na\n\nb\n") == [(2, "a"), (3, ""), (4, "b")]


def test_rows_that_do_not_fit_the_header():
    found = rows(b"id,text\n1\n1,a,b\n\n1,c\n")
    assert [line for line, _ in found] == [2, 3, 4, 5] and found[3][1] == "c"
    assert found[0][1] == "has 1 field, the header has 2: one is missing"
    assert found[2][1] == "is a blank line"
    assert found[1][1] == "has 3 fields, the header has 2: put texts with commas in double quotes"


def test_a_long_field_is_a_field():
    assert rows(b"id,text\n1," + b"x" * 500_000 + b"\n") == [(2, "x" * 500_000)]


def read(text: str, **options: object) -> tuple[CsvReader, list[str], list]:
    """The reader, what it said, and its rows."""
    said: list[str] = []
    reader = CsvReader(io.BytesIO(text.encode()), name="t.csv", tell=said.append, **options)
    return reader, said, [r.problem or list(r.fields.values()) for r in reader]


def test_no_such_column():
    with pytest.raises(DataError, match=r"t.csv has no column 'text': it has a, b$"):
        read("a,b\n1,2\n")
    told = r"no column 'Txt' \(did you mean 'text'\?\): it has id, text; choose one with --column, or the character"
    with pytest.raises(DataError, match=told):
        read("id,text\n1,2\n", field="Txt", form=FileForm(options=True))
    with pytest.raises(DataError, match=r"no column 'about': it has text$"):
        read("text\n2\n", beside=["about"], form=FileForm(options=True))
    reader, said, rows = read("", beside=["id"])
    assert (reader.header, said, rows) == ([], [], [])


@pytest.mark.parametrize(("delimiter", "called"), [(",", None), (";", "';'"), ("\t", "tab"), ("|", "'|'")])
def test_the_delimiter_is_the_one_under_which_the_header_has_the_column(delimiter: str, called: str | None):
    table = 'id,text\n1,"a, b; c | d"\n'.replace(",", delimiter, 2) if delimiter != "," else 'id,text\n1,"a, b; c"\n'
    reader, said, rows = read(table)
    assert reader.delimiter == delimiter and said == ([f"t.csv: read as {called}-separated"] if called else [])
    assert len(rows) == 1 and rows[0][0] == "1"
    assert read(table.replace("\n", "\r\n"))[2] == rows
    # one that is said is no guess; an ending says what is usual
    assert read(table, form=FileForm(delimiter=delimiter))[1] == read(table, default=delimiter)[1] == []


def test_how_a_delimiter_is_guessed():
    for table, field, chosen in (
        ("text\na; b\n", None, ","),  # one column is no matter of delimiters
        ("text;lang\na, b;de\n", None, ";"),
        ('id;"a, b";text\n', None, ";"),
        ('"a;b",text\n', None, ","),
        ("a,b;c\n", "c", ";"),
        ("id;text, raw;status\n", "status", ";"),
    ):
        assert read(table, field=field)[0].delimiter == chosen, table
    for table, chosen in (("a;b;c|d\n", ";"), ("a,b;c;d\n", ","), ("a\n", ","), ('"a" b\n', None)):
        if chosen is None:
            with pytest.raises(DataError, match=r"header that cannot be read: line 1 is not CSV"):
                read(table, rows=True)
        else:
            assert read(table, rows=True)[0].delimiter == chosen, table
    reader, said, rows = read("sep=;\nid;text\n1;a\n")  # as Excel has it
    assert (reader.header, said, rows) == (["id", "text"], [], [["1", "a"]])


def test_a_table_without_a_header():
    form = FileForm(header=False, options=True)
    reader, said, rows = read("hello world\nb\n", form=form)
    assert (reader.header, reader.field, said, rows) == (["text"], "text", [], [["hello world"], ["b"]])
    reader, said, rows = read("1;a\n2;b\n3\n", field="2", form=form)
    assert reader.header == ["1", "2"] and rows[:2] == [["1", "a"], ["2", "b"]] and said
    assert rows[2] == "has 1 field, the first row has 2: one is missing"
    with pytest.raises(DataError, match=r"no column 'text': it has 1, 2; choose one with --column"):
        read("1,a\n", form=form)
    assert read("", form=form)[2] == []


def test_what_is_taken_as_a_header_is_said():
    options = FileForm(options=True)
    _, said, _ = read("hello world\nb\n", form=options)
    assert said == ["t.csv: 'hello world' is taken as the name of the column; --no-header takes it as a text"]
    assert read("text\nb\n", form=options)[1] == read("a\nb\n", field="a", form=options)[1] == []
    with pytest.raises(DataError, match=r"it has 1, hello; choose .*, or say --no-header if these are no names$"):
        read("1,hello\n2,world\n", form=options)
    with pytest.raises(DataError, match=r"t.csv has no header: line 1 is blank"):
        read("\ntext\na\n")


def test_two_columns_of_one_name_are_an_error():
    with pytest.raises(DataError, match=r"t.csv has two columns named 'a', 'b': rename one$"):
        read("a,text,b,a,b\n")
    with pytest.raises(DataError, match=r"'a': rename one, or say --no-header if the first row is no header$"):
        read("a,text,a\n", form=FileForm(options=True))
    assert read(",text,,\n1,a,,\n")[2] == [["", "a"]]  # columns without a name can mean nothing
