"""Files of texts and of rows: each record is read or named at its line, in every format."""

import gzip
import io
import json
import os
import threading
import tracemalloc
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterword.errors import DataError, MissingDataset
from afterword.files.lines import UNSEEN, FileForm, JsonLinesReader, LinesReader, Reader
from afterword.files.parquet import BATCH, ParquetReader, ParquetRowsReader
from afterword.files.read import ENDINGS, open_rows, open_texts
from afterword.files.sources import check_encoding
from afterword.files.tables import CsvReader

ROWS = [{"text": "one, two", "n": 1}, {"text": "ä", "n": 2}]


def write(path: Path, rows: list[dict[str, object]] = ROWS) -> Path:
    """Rows in the format of the name."""
    lines = {
        ".jsonl": "".join(json.dumps(row) + "\n" for row in rows),
        ".csv": "text,n\n" + "".join(f'"{row["text"]}",{row["n"]}\n' for row in rows),
        ".tsv": "text\tn\n" + "".join(f"{row['text']}\t{row['n']}\n" for row in rows),
        ".txt": "".join(f"{row['text']}\n" for row in rows),
    }
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
        return path
    content = lines[Path(path.name.removesuffix(".gz")).suffix].encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.mark.parametrize("ending", [".txt", ".TXT", ".txt.gz", *ENDINGS])
def test_every_format_gives_the_same_texts(tmp_path: Path, ending: str):
    path = write(tmp_path / f"a{ending.lower()}").rename(tmp_path / f"b{ending}")
    with closing(open_texts(path, io.BytesIO())) as reader:
        assert [record.fields["text"] for record in reader] == ["one, two", "ä"]
    assert reader.at == reader.total == (2 if ending == ".parquet" else path.stat().st_size)


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_format_gives_the_same_rows(tmp_path: Path, ending: str):
    path = write(tmp_path / f"a{ending}")
    for field in (None, "n"):
        with closing(open_rows(path, field)) as reader:
            rows = [{k: str(v) for k, v in record.fields.items()} for record in reader]
        assert rows == [{"text": "one, two", "n": "1"}, {"text": "ä", "n": "2"}]
    with pytest.raises(DataError, match="'score'"), ExitStack() as stack:
        list(stack.enter_context(closing(open_rows(path, "score"))))


def test_stdin_has_no_length():
    reader = open_texts(None, io.BytesIO(b"a\nb\n"))
    assert reader.total is None and [r.fields["text"] for r in reader] == ["a", "b"]
    assert [r.fields["x"] for r in open_texts(None, io.BytesIO(b'{"x": "a"}'), kind="jsonl", field="x")] == ["a"]


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
        read_lines = []
        for record in LinesReader(stream, form=FileForm(encoding=encoding)):
            read_lines.append(record.fields["text"])
            seen.release()
    thread.join()
    assert read_lines == ["a line"] * 3


def test_what_cannot_be_opened(tmp_path: Path):
    for name in ("a.doc", "a.parquet.gz", "b.parquet"):
        (tmp_path / name).write_text("x")
    (tmp_path / "a.txt").mkdir()
    (tmp_path / "a.csv").write_text("text\na\n")
    with pytest.raises(MissingDataset, match=r"none\.csv"):
        open_texts(tmp_path / "none.csv", io.BytesIO())
    for name, options, value in (
        ("a.doc", {}, r"a\.doc"),
        ("a.parquet.gz", {}, r"a\.parquet\.gz"),
        ("b.parquet", {}, r"b\.parquet"),
        ("a.txt", {}, r"a\.txt"),
        ("a.csv", {"beside": ["about"]}, "'about'"),
        (None, {"kind": "parquet"}, "standard input"),
        (None, {"field": "x"}, "'x'"),
    ):
        with pytest.raises(DataError, match=value):
            open_texts(name and tmp_path / name, io.BytesIO(), **options)


@pytest.mark.parametrize("harm", [lambda b: b[:-9], lambda b: b"no gzip", lambda b: b[:12] + b"\xff" * 9 + b[21:]])
@pytest.mark.parametrize("opened", [lambda p: open_texts(p, io.BytesIO()), open_rows])
def test_a_damaged_gzip_file_is_named(tmp_path: Path, harm: Callable[[bytes], bytes], opened: Callable[[Path], Reader]):
    path = write(tmp_path / "a.jsonl.gz", ROWS * 50)
    path.write_bytes(harm(path.read_bytes()))
    with pytest.raises(DataError, match=r"a\.jsonl\.gz"), closing(opened(path)) as reader:
        list(reader)


@pytest.mark.parametrize("packed", [False, True])
def test_a_large_file_is_not_held_in_memory(tmp_path: Path, packed: bool):
    path = tmp_path / ("in.jsonl.gz" if packed else "in.jsonl")
    with gzip.open(path, "wt") if packed else path.open("w") as file:
        for i in range(10_000):
            file.write(json.dumps({"text": "x" * 1000, "id": i}) + "\n")
    tracemalloc.start()
    with closing(open_texts(path, io.BytesIO())) as reader:
        assert sum(len(r.fields["text"]) for r in reader) == 10_000_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000 and reader.at == reader.total


def lines(text: bytes, form: FileForm = FileForm(), kind: type[LinesReader] = LinesReader) -> list:  # noqa: B008
    return [(r.line, r.problem or r.fields["text"]) for r in kind(io.BytesIO(text), name="in.txt", form=form)]


def test_only_a_newline_ends_a_line():
    assert lines(b"") == []
    assert lines(b"a\n") == lines(b"a") == lines(b"a\r\n") == lines(b"\xef\xbb\xbfa\n") == [(1, "a")]
    assert lines(b"a\n\nb\n\n") == [(1, "a"), (2, ""), (3, "b"), (4, "")]
    text = "a\u2028b\x0bc\x1cd\re"
    assert lines(text.encode()) == [(1, text)]


def test_the_first_line_that_is_not_ascii_decides_whether_a_file_is_utf8():
    with pytest.raises(DataError, match=r"in\.txt .*0xe9 .*line 2"):
        lines(b"a\nb\xe9t\xe9\n\xc3\xa9")
    for text, form in (("é\na".encode(), FileForm()), (b"a\na", FileForm(encoding="utf-8"))):
        found = lines(text + b"\xe9t\xe9\nb\n", form)
        assert "0xe9" in found[1][1] and found[2] == (3, "b")
    with pytest.raises(DataError, match=r"in\.txt"):
        lines("a\n".encode("utf-16"))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "mac-roman", "utf-16", "gb18030", "shift-jis"])
def test_an_encoding_is_followed(encoding: str):
    texts = ["né|à, \\", "b"] if encoding in ("cp1252", "mac-roman") else ["表\\ソ", "b"]
    assert lines("\n".join(texts).encode(encoding), FileForm(encoding=encoding)) == [(1, texts[0]), (2, "b")]


def test_bytes_that_do_not_fit_the_encoding():
    found = lines(b"a\n\x81\nb", FileForm(encoding="cp1252"))
    assert "0x81" in found[1][1] and found[2] == (3, "b")
    with pytest.raises(DataError, match=r"in\.txt"):
        lines(b"a", FileForm(encoding="utf-16-le"))
    assert check_encoding("latin1") == "latin1"
    for name in "cp12522", "rot13", "":
        with pytest.raises(DataError, match=repr(name)):
            check_encoding(name)


@given(st.lists(st.binary(max_size=8).map(lambda line: line.replace(b"\n", b"")), max_size=8), st.booleans())
def test_every_line_is_a_record(content: list[bytes], json_lines: bool):
    content = [b"a", *content]
    kind = JsonLinesReader if json_lines else LinesReader
    reader = kind(io.BytesIO(b"".join(line + b"\n" for line in content)), form=FileForm(encoding="utf-8"))
    found = list(reader)
    assert [r.line for r in found] == list(range(1, len(content) + 1))
    assert all((r.fields is None) == bool(r.problem) for r in found)


def test_json_lines():
    text = b'{"text": "a"}\n"b"\n[1]\n{"text"\n\n{"text": "c", "id": 1}\n'
    found = list(JsonLinesReader(io.BytesIO(text)))
    assert [r.fields and r.fields["text"] for r in found] == ["a", "b", None, None, None, "c"]
    assert [r.line for r in found] == [1, 2, 3, 4, 5, 6] and "array" in found[2].problem


def test_a_field_that_no_object_has_is_a_mistake():
    wrong = b'{"body": "a", "chanel": 1}\n'
    for content in (wrong, wrong * UNSEEN):
        with pytest.raises(DataError, match=r"in\.jsonl .*'text'.* body, chanel"):
            list(JsonLinesReader(io.BytesIO(content), name="in.jsonl"))
    with pytest.raises(DataError, match=r"'channel' .*'chanel'"):
        list(JsonLinesReader(io.BytesIO(wrong), field="body", beside=["channel"]))
    reader = JsonLinesReader(io.BytesIO(wrong * UNSEEN + b'{"note": 1}'), field="body", beside=["note"])
    with pytest.warns(UserWarning, match="'note'"):  # a rare field may come later
        assert list(reader)[-1].fields == {"note": 1} and reader.kinds == {"note": "json"}
    assert len(list(JsonLinesReader(io.BytesIO(wrong + b'{"text": "a"}\n' + wrong)))) == 3


def table(text: str, **options: object) -> tuple[CsvReader, list[str], list]:
    """The reader, its notes, and its rows: line and cells, or line and None."""
    notes: list[str] = []
    reader = CsvReader(io.BytesIO(text.encode()), name="t.csv", tell=notes.append, **options)
    return reader, notes, [(r.line, r.fields and list(r.fields.values())) for r in reader]


def test_a_table():
    text = 'id,text\n1,"a, ""b"""\n2,"two\nlines"\n3,c\n'
    assert table(text)[2] == [(2, ["1", 'a, "b"']), (3, ["2", "two\nlines"]), (5, ["3", "c"])]
    assert table(text.replace("\n", "\r\n"))[2][1] == (3, ["2", "two\r\nlines"])
    assert table("sentence\na\n\nb\n")[2] == [(2, ["a"]), (3, [""]), (4, ["b"])]
    assert table("id,text\n1," + "x" * 500_000 + "\n")[2] == [(2, ["1", "x" * 500_000])]
    reader, notes, rows = table("", beside=["id"])
    assert (reader.header, notes, rows) == ([], [], [])


def test_rows_that_cannot_be_read_are_rejected():
    text = 'id,text\n1\n1,a,b\n\n2,"a" b\n3,c\n'
    assert table(text)[2] == [(2, None), (3, None), (4, None), (5, None), (6, ["3", "c"])]


def test_an_unclosed_quote_is_reported_at_the_line_that_opens_it():
    text = 'id,text\n1,a\n2,"never closed\n3,b\n4,"c"\n5,d\n'
    assert table(text)[2] == [(2, ["1", "a"]), (3, None), (6, ["5", "d"])]
    reader = CsvReader(io.BytesIO(b'id,text\n2,"never closed\n3,b\n'))
    (record,) = reader
    assert record.line == 2 and "lines 2 to 3" in record.problem


def test_columns_that_are_missing_or_appear_twice():
    for text, options, value in (
        ("a,b\n1,2\n", {}, r"t\.csv .*'text'.* a, b"),
        ("id,text\n1,2\n", {"field": "Txt"}, "'Txt' .*'text'"),
        ("text\n2\n", {"beside": ["about"]}, "'about'"),
        ("a,text,b,a,b\n", {}, "'a', 'b'"),
        ('"a" b\n', {"rows": True}, "line 1"),
        ("\ntext\na\n", {}, "line 1"),
        ("1,a\n", {"form": FileForm(header=False)}, "'text'"),
    ):
        with pytest.raises(DataError, match=value):
            table(text, **options)
    assert table(",text,,\n1,a,,\n")[2] == [(2, ["", "a"])]  # spreadsheets save columns without a name


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_the_delimiter_is_read_off_the_header_and_said(delimiter: str):
    text = f'id{delimiter}text\n1{delimiter}"a, b; c"\n'
    reader, notes, rows = table(text)
    assert (reader.delimiter, len(notes), rows) == (delimiter, int(delimiter != ","), [(2, ["1", "a, b; c"])])
    assert table(text, form=FileForm(delimiter=delimiter))[1:] == table(text, default=delimiter)[1:] == ([], rows)
    assert table("text\na; b\n")[2] == [(2, ["a; b"])]


def test_a_table_without_a_header():
    form = FileForm(header=False)
    reader, notes, rows = table("hello world\nb\n", form=form)
    assert (reader.header, reader.field, notes, rows) == (["text"], "text", [], [(1, ["hello world"]), (2, ["b"])])
    reader, notes, rows = table("1;a\n2;b\n3\n", field="2", form=form)
    assert reader.header == ["1", "2"] and rows == [(1, ["1", "a"]), (2, ["2", "b"]), (3, None)]
    assert table("", form=form)[2] == []
    assert "hello world" in table("hello world\nb\n")[1][0]  # it is the header, and this is said


def parquet(path: Path, **columns: object) -> Path:
    pq.write_table(pa.table(columns), path, row_group_size=700)
    return path


def test_a_column_of_a_parquet_file(tmp_path: Path):
    texts = [None if i % 100 == 0 else f"text {i}" for i in range(3 * BATCH)]
    path = parquet(tmp_path / "a.parquet", id=range(3 * BATCH), tags=[["a"]] * 3 * BATCH, text=texts)
    reader = ParquetReader(path)
    assert [(r.line, r.fields["text"]) for r in reader] == list(enumerate(texts, 1)) and reader.total == 3 * BATCH
    for field in "id", "tags", "x":
        with pytest.raises(DataError, match=f"'{field}'"):
            ParquetReader(path, field)


def test_kept_columns_have_any_type(tmp_path: Path):
    values = {
        "id": pa.array([1, None], pa.uint64()),
        "at": pa.array([1, 1234567890123456789], pa.timestamp("ns")),
        "tags": pa.array([["a"], None], pa.large_list(pa.large_string())),
        "raw": pa.array([b"\xff", b""], pa.large_binary()),
        "of.one": pa.array([{"a": 1}, None], pa.struct([("a", pa.int8())])),
    }
    reader = ParquetReader(parquet(tmp_path / "a.parquet", text=["a", "b"], **values), beside=list(values))
    assert reader.kinds == {name: column.type for name, column in values.items()}
    rows = [r.fields for r in reader]
    for name, column in values.items():
        assert pa.array([row[name] for row in rows], column.type).equals(column)


def test_a_parquet_file_that_cannot_be_read(tmp_path: Path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_arrays([pa.array(["a"])] * 2, names=["text", "text"]), path)
    with pytest.raises(DataError, match=r"a\.parquet.*'text'"):
        ParquetRowsReader(path)
    content = parquet(path, text=[f"text {i}" * 20 for i in range(5000)]).read_bytes()
    path.write_bytes(content[:4] + b"\0" * 3000 + content[3004:])
    with pytest.raises(DataError, match=r"a\.parquet"):
        list(ParquetReader(path))
