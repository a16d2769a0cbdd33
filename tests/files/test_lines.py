"""LinesReader and their problems."""

import io
import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterword.errors import DataError
from afterword.files import lines as room
from afterword.files.lines import FileForm, JsonLinesReader, LinesReader, ListedReader, no_field


def read(text: bytes) -> list:
    return [(r.line, r.problem or r.fields["text"]) for r in LinesReader(io.BytesIO(text))]


def test_a_line_ends_with_a_newline_and_nothing_else_ends_one():
    assert read(b"") == []
    assert read(b"a\n") == read(b"a") == read(b"a\r\n") == read(b"\xef\xbb\xbfa\n") == [(1, "a")]
    assert read(b"a\n\nb\n\n") == [(1, "a"), (2, ""), (3, "b"), (4, "")]
    text = "a\u2028b\x0bc\x1cd\re"
    assert read(text.encode()) == [(1, text)]


def test_the_first_line_that_is_not_ascii_decides_whether_the_file_is_utf8():
    assert read("é👩‍👧\n".encode()) == [(1, "é👩‍👧")]
    with pytest.raises(DataError, match=r"in.txt is not UTF-8: byte 0xe9 at offset 3, line 2: save it in UTF-8$"):
        list(LinesReader(io.BytesIO(b"a\nb\xe9t\xe9\n\xc3\xa9"), name="in.txt"))
    with pytest.raises(DataError, match=r"say how it is encoded, as in --encoding cp1252; --encoding utf-8 rejects"):
        list(LinesReader(io.BytesIO(b"\xe9"), form=FileForm(options=True)))
    with pytest.raises(DataError, match=r"byte 0x89 at offset 0, line 1: it holds NUL bytes too: give a file of text"):
        list(LinesReader(io.BytesIO(b"\x89\0\0\n")))


@pytest.mark.parametrize("first", ["é".encode(), b"\xef\xbb\xbfe"])
def test_in_a_file_that_is_utf8_a_damaged_line_is_a_problem_of_its_own(first: bytes):
    wanted = [(2, "is not UTF-8: byte 0xe9 at character 1"), (3, "b")]
    assert read(first + b"\na\xe9t\xe9\nb\n")[1:] == wanted
    said = LinesReader(io.BytesIO(b"a\na\xe9t\xe9\nb\n"), form=FileForm(encoding="utf-8"))
    assert [(r.line, r.problem or r.fields["text"]) for r in said][1:] == wanted


def test_a_line_without_an_end_is_not_held(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(room, "LONGEST", 1000)
    stream = io.BytesIO(b"a\n" + b"x" * 5000 + b"\nb\n" + b"y" * 1000)
    reader = LinesReader(stream, 6000)
    assert [(r.line, r.problem) for r in reader] == [
        (1, None), (2, "is 1000 bytes long or more"), (3, None), (4, "is 1000 bytes long or more")
    ]  # fmt: skip
    assert reader.at == 2 + 5001 + 2 + 1000


def test_a_large_file_is_not_held(tmp_path: Path):
    path = tmp_path / "in.jsonl"
    with path.open("w") as file:
        for i in range(20_000):
            file.write(json.dumps({"text": "x" * 1000, "id": i}) + "\n")
    with path.open("rb") as stream:
        tracemalloc.start()
        reader = JsonLinesReader(stream, path.stat().st_size)
        assert sum(len(r.fields["text"]) for r in reader) == 20_000_000
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 500_000 and reader.at == reader.total


def test_json_lines():
    text = '{"text": "a"}\n"b"\n[1]\n{"text"\n\n{"text": "c", "id": 1}\n'
    found = [(r.line, (r.problem or r.fields["text"])[:11]) for r in JsonLinesReader(io.BytesIO(text.encode()))]
    assert found == [(1, "a"), (2, "b"), (3, "is a JSON a"), (4, "is not JSON"), (5, "is a blank "), (6, "c")]


def test_a_field_that_no_object_has_is_a_mistake():
    wrong = b'{"body": "a", "id": 1}\n' * room.UNSEEN
    with pytest.raises(DataError, match=r"in\.jsonl has no column 'text': it has body, id"):
        list(JsonLinesReader(io.BytesIO(wrong), name="in.jsonl"))
    with pytest.raises(DataError):
        list(JsonLinesReader(io.BytesIO(b'\n{"body": "a"}\n')))
    # One object that has it is enough: the others are rows without a text.
    reader = JsonLinesReader(io.BytesIO(wrong + b'{"body": "a", "note": 1}'), field="body", beside=["note"])
    with pytest.warns(UserWarning, match="none of the first 100 objects of the input has 'note'"):
        assert list(reader)[-1].fields == {"body": "a", "note": 1}
    assert len(list(JsonLinesReader(io.BytesIO(wrong[:-24] + b'\n{"text": "a"}\n' + wrong)))) == 2 * room.UNSEEN
    assert list(JsonLinesReader(io.BytesIO(b""))) == []


def test_every_wanted_field_must_be_in_some_object():
    rows = b'{"text": "a", "chanel": 1}\n{"text": "b", "id": [1]}\n'
    found = JsonLinesReader(io.BytesIO(rows), beside=["id"])
    assert [r.fields.get("id") for r in found] == [None, [1]] and found.kinds == {"id": "json"}
    told = r"no column 'channel' \(did you mean 'chanel'\?\): it has chanel, id, text$"
    with pytest.raises(DataError, match=told):
        list(JsonLinesReader(io.BytesIO(rows), beside=["channel"], form=FileForm(options=True)))
    with pytest.raises(DataError, match=r"'tex' .*; choose one with --column$"):
        list(JsonLinesReader(io.BytesIO(rows), field="tex", form=FileForm(options=True)))


def test_columns_are_named_on_one_line():
    columns = ["\x1b[1m", " a ", "", *(f"c{i}" for i in range(40))]
    with pytest.raises(DataError) as told:
        no_field("in.csv", "text", columns)
    assert str(told.value).startswith(r"in.csv has no column 'text': it has '\x1b[1m', ' a ', , c0, c1, ")
    assert str(told.value).endswith(", c26, and 13 more")


@given(st.lists(st.binary(max_size=8).map(lambda line: line.replace(b"\n", b"")), max_size=8), st.booleans())
def test_every_line_is_a_record(lines: list[bytes], json_lines: bool):
    """Whatever bytes it holds, where the file is said to be UTF-8."""
    kind = JsonLinesReader if json_lines else LinesReader
    reader = kind(io.BytesIO(b"".join(line + b"\n" for line in lines)), form=FileForm(encoding="utf-8"))
    found = list(reader)
    assert [r.line for r in found] == list(range(1, len(lines) + 1))
    assert all((r.fields is None) == bool(r.problem) for r in found) and reader.at == sum(map(len, lines)) + len(lines)


def test_a_field_given_twice_is_a_problem():
    found = list(JsonLinesReader(io.BytesIO(b'{"text": "a", "id": 1, "text": "b"}\n{"text": "c"}\n')))
    assert [r.problem for r in found] == ["has the field 'text' twice", None]


def test_texts_given_one_by_one():
    reader = ListedReader(["a", 5], {"words": ["x"]})
    assert [(r.line, dict(r.fields)) for r in reader] == [
        (1, {"text": "a", "words": ["x"]}), (2, {"text": 5, "words": ["x"]})
    ]  # fmt: skip
    assert reader.at == reader.total == 2
