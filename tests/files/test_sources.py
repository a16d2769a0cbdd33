"""What a file's bytes are, before its lines are read."""

import codecs
import gzip
import io
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterword.errors import DataError, MissingDataset
from afterword.files.lines import FileForm, LinesReader
from afterword.files.sources import HEAD, as_utf8, check_encoding, opened
from afterword.files.tables import CsvReader

OPTIONS = FileForm(options=True)


def texts(content: bytes, form: FileForm = OPTIONS) -> list[str]:
    reader = LinesReader(as_utf8(io.BytesIO(content), "a.txt", form), name="a.txt", form=form)
    return [r.problem or r.fields["text"] for r in reader]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_what_a_byte_order_mark_says(encoding: str, end: str):
    lines = ["é 每个词 👩‍👧", "", "b" * HEAD, "c"]
    assert texts(end.join(lines).encode(encoding)) == lines
    assert texts((end.join(lines) + end).encode(encoding)) == lines
    assert texts(codecs.BOM_UTF16_BE + "a\nĊb\n".encode("utf-16-be")) == ["a", "Ċb"]


def test_a_carriage_return_before_the_first_newline_is_no_line_end():
    long = "x " * 40_000
    for first in (f"{'x ' * 30}\r{long}", "x" * (HEAD - 1) + "\r", "x" * (HEAD - 2) + "\r", "\r" * HEAD):
        for encoding in "utf-8", "utf-8-sig", "utf-16", "utf-32", "utf-16-be":
            form = FileForm(encoding=encoding)
            found = texts(f"{first}\nsecond\r\nthird\n".encode(encoding), form)
            assert found == [first.removesuffix("\r"), "second", "third"], (first[:3], encoding)
    line = "č" * 33_000  # whose bytes are 13 and 1 in UTF-16
    assert texts(f"{line}\nsecond řádek\nthird\n".encode("utf-16")) == [line, "second řádek", "third"]
    assert texts(f"Ċ\r{line}\rsecond řádek\rthird\r".encode("utf-16")) == ["Ċ", line, "second řádek", "third"]
    header = "x" * (HEAD - 6) + ",text\r\n"
    table = CsvReader(as_utf8(io.BytesIO(f"{header}1,a\r\n2,b\r\n".encode()), "a.csv"))
    assert [(row.line, row.fields["text"]) for row in table] == [(2, "a"), (3, "b")]


def test_a_large_file_of_an_old_mac():
    lines = [f"{i} " * 500 for i in range(4_000)]
    assert texts("\r".join(lines).encode()) == lines


@pytest.mark.parametrize("encoding", ["cp1252", "mac-roman", "utf-16-le", "utf-8-sig", "gb18030", "shift-jis"])
def test_the_encoding_that_is_said(encoding: str):
    lines = ["né|à, \\", "b"] if encoding in ("cp1252", "mac-roman") else ["表\\ソ", "b"]
    for end in "\n", "\r":
        assert texts((end.join(lines) + end).encode(encoding), FileForm(encoding=encoding)) == lines


def test_what_does_not_fit_the_encoding_is_said_once_with_its_byte():
    many = b"a line\n" * 20_000
    for encoding, content, told in (
        ("cp1252", many + b"\x81", f"not cp1252: byte 0x81 at offset {len(many)} .*: give another --encoding"),
        ("gb18030", many + b"\xff", f"not gb18030: byte 0xff at offset {len(many)} "),
        ("utf-16-le", b"a\0\n\0b", "not utf-16-le: byte 0x62 at offset 4 "),
        ("ascii", "aé".encode(), "not ascii: byte 0xc3 at offset 1 "),
        ("cp1252", "\ufeffa".encode(), "a.txt begins with the byte order mark of utf-8: leave out --encoding cp1252"),
        ("cp1252", "a".encode("utf-16"), "begins with the byte order mark of utf-16"),
        (None, "text\na\n".encode("utf-16-le"), "NUL in every other byte: --encoding utf-16-le reads UTF-16 without"),
        (None, "text\na\n".encode("utf-16-be"), "--encoding utf-16-be reads"),
        (None, codecs.BOM_UTF16_LE + b"a", "is not utf-16: byte 0x61 at offset 2 "),
        (None, many + b"\xe9\n", f"is not UTF-8: byte 0xe9 at offset {len(many)}, line 20001: .*--encoding cp1252"),
    ):
        with pytest.raises(DataError, match=told):
            texts(content, FileForm(encoding=encoding, options=True))


@pytest.mark.parametrize(
    ("first", "told"),
    [
        (b"PAR1", "is a Parquet file: name it .parquet"),
        (gzip.compress(b"a", mtime=0), "is packed by gzip: give it a name that ends in .gz"),
        (b"PK\x03\x04", "an Excel workbook"),
        (b"%PDF-1.4\n", "is a PDF file"),
        (b"\x89PNG\r\n\x1a\n", "is an image"),
    ],
)
def test_a_file_of_another_kind(tmp_path: Path, first: bytes, told: str):
    path = tmp_path / "a.txt"
    path.write_bytes(first + b"\0\xff" * 100)
    with pytest.raises(DataError, match=told), opened(path):
        pass


@pytest.mark.parametrize("first", ["PAR1", "ARROW1", "%PDF-1.4", "SQLite format 3"])
def test_a_text_may_begin_as_other_files_do(first: str):
    assert texts(f"{first} is how it begins\ncafé\n".encode()) == [f"{first} is how it begins", "café"]
    assert texts(f"{first}\ré".encode()) == [first, "é"]
    cp1252 = FileForm(encoding="cp1252")
    assert texts(f"{first}\ncafé\n".encode("cp1252"), cp1252) == [first, "café"]
    for binary in b"\n\0", b"\n\xe2\xe3\n":
        with pytest.raises(DataError, match=r"a\.txt is a"):
            texts(first.encode() + binary)


def test_what_is_no_file(tmp_path: Path):
    with pytest.raises(DataError, match=r"is a folder: give a file"), opened(tmp_path):
        pass
    with pytest.raises(MissingDataset, match=r"does not exist"), opened(tmp_path / "none"):
        pass


def test_an_encoding_has_a_name_that_python_knows():
    assert check_encoding("latin1") == "latin1"
    for name, told in (
        ("cp12522", r"'cp12522' is no encoding \(did you mean 'cp1252'"),
        ("rot13", "rot13"),
        ("", "''"),
    ):
        with pytest.raises(DataError, match=told):
            check_encoding(name)


@pytest.mark.parametrize("encoding", [None, "cp1252"])
def test_lines_of_a_pipe_come_before_it_ends(encoding: str | None):
    """Each line is read while the writer waits for the reader."""
    read, write = os.pipe()
    seen = threading.Semaphore(1)

    def writer() -> None:
        for _ in range(3):
            assert seen.acquire(timeout=60)
            os.write(write, b"a line\n")
        os.close(write)

    thread = threading.Thread(target=writer)
    thread.start()
    with os.fdopen(read, "rb") as stream:
        lines = as_utf8(stream, "a pipe", FileForm(encoding=encoding))
        for _ in range(3):
            assert lines.readline() == b"a line\n"
            seen.release()
        assert lines.readline() == b""
    thread.join()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_packed_file_says_how_much_was_read(tmp_path: Path, encoding: str):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress("".join(f"{pow(3, i, 2**4001):x}\n" for i in range(9000, 10_000)).encode(encoding)))
    with opened(path) as lines:
        places = []
        while lines.readline():
            places.append(lines.place())
        lines.close()
    assert len(places) == 1000 and places == sorted(places)
    assert places[0] < path.stat().st_size / 2 and places[-1] == path.stat().st_size


@given(st.binary(max_size=40), st.lists(st.tuples(st.booleans(), st.sampled_from([-1, 1, 2, 5, 50])), max_size=9))
def test_what_was_looked_at_is_read_again(content: bytes, asked: list[tuple[bool, int]]):
    content = b"text\n" + content.replace(b"\r", b"") * 3
    stream, plain = as_utf8(io.BytesIO(content), "a.txt"), io.BytesIO(content)
    for by_line, size in asked:
        if by_line:
            assert stream.readline(size) == plain.readline(size)
        else:
            block = stream.read1(size)
            assert block == plain.read(len(block)) and (block or not plain.read(1))
    assert stream.readline() == plain.readline()
