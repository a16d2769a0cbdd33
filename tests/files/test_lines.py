"""LinesReader and their problems."""

import io
import json
import tracemalloc
from pathlib import Path

import pytest

from afterword.errors import DataError
from afterword.files import lines as room
from afterword.files.lines import JsonLinesReader, LinesReader, ListedReader


def read(text: bytes) -> list:
    return [(r.line, r.problem or r.fields["text"]) for r in LinesReader(io.BytesIO(text))]


def test_a_line_ends_with_a_newline_and_nothing_else_ends_one():
    assert read(b"") == []
    assert read(b"a\n") == read(b"a") == read(b"a\r\n") == read(b"\xef\xbb\xbfa\n") == [(1, "a")]
    assert read(b"a\n\nb\n\n") == [(1, "a"), (2, ""), (3, "b"), (4, "")]
    text = "a\u2028b\x0bc\x1cd\re"
    assert read(text.encode()) == [(1, text)]


def test_bytes_that_are_not_utf8_are_a_problem_of_their_line():
    assert read(b"a\n\xe9t\xe9\nb\n") == [(1, "a"), (2, "is not UTF-8: byte 0xe9 at character 0"), (3, "b")]
    assert read("é👩‍👧\n".encode()) == [(1, "é👩‍👧")]


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
    assert len(list(JsonLinesReader(io.BytesIO(wrong[:-24] + b'\n{"text": "a"}\n' + wrong)))) == 2 * room.UNSEEN
    assert list(JsonLinesReader(io.BytesIO(b""))) == []


def test_texts_given_one_by_one():
    reader = ListedReader(["a", 5], {"words": ["x"]})
    assert [(r.line, dict(r.fields)) for r in reader] == [
        (1, {"text": "a", "words": ["x"]}), (2, {"text": 5, "words": ["x"]})
    ]  # fmt: skip
    assert reader.at == reader.total == 2
