"""Which reader a file gets."""

import gzip
import io
import json
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from afterword.errors import DataError, MissingDataset
from afterword.files.lines import JsonLinesReader, LinesReader, Reader
from afterword.files.read import ENDINGS, open_rows, open_texts
from afterword.files.tables import CsvReader


def test_a_file_is_read_by_its_ending(tmp_path: Path):
    for name, text, kind in (
        ("a.txt", "a\n", LinesReader),
        ("a.JSONL", '"a"\n', JsonLinesReader),
        ("a.csv", "text\na\n", CsvReader),
    ):
        (tmp_path / name).write_text(text)
        with closing(open_texts(tmp_path / name, io.BytesIO())) as reader:
            assert type(reader) is kind and reader.total == len(text)
            assert [r.fields["text"] for r in reader] == ["a"]


def test_stdin_has_no_length():
    reader = open_texts(None, io.BytesIO(b"a\nb\n"))
    assert reader.total is None and [r.fields["text"] for r in reader] == ["a", "b"]
    assert [r.fields["x"] for r in open_texts(None, io.BytesIO(b'{"x": "a"}'), kind="jsonl", field="x")] == ["a"]


def test_what_cannot_be_opened(tmp_path: Path):
    (tmp_path / "a.doc").write_text("x")
    (tmp_path / "a.parquet.gz").write_text("x")
    (tmp_path / "a.txt").mkdir()
    (tmp_path / "a.csv").write_text("text\na\n")
    with pytest.raises(MissingDataset, match=r"none\.csv does not exist"):
        open_texts(tmp_path / "none.csv", io.BytesIO())
    for path, options, told in (
        (tmp_path / "a.doc", {}, "unknown format: give a .txt, .jsonl, .csv, .tsv, .parquet file.*or name its format"),
        (tmp_path / "a.parquet.gz", {}, "an unknown format: .*all but .parquet may be gzipped"),
        (tmp_path / "a.txt", {}, "is a folder"),
        (tmp_path / "a.csv", {"beside": ["about"]}, "no column 'about'"),
        (None, {"kind": "parquet"}, "standard input"),
        (None, {"field": "x"}, "plain text"),
    ):
        with pytest.raises(DataError, match=told):
            open_texts(path, io.BytesIO(), **options)


ROWS = [{"text": "one, two", "n": 1}, {"text": "ä", "n": 2}]


def write(path: Path, rows: list[dict[str, object]] = ROWS) -> Path:
    """Rows in the format that the name tells of."""
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


@pytest.mark.parametrize("ending", [".txt", ".txt.gz", *ENDINGS])
def test_every_format_gives_the_same_texts(tmp_path: Path, ending: str):
    path = write(tmp_path / f"a{ending}")
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
    with pytest.raises(DataError, match=r"has no column 'score': it has (text, n|n, text)"), ExitStack() as stack:
        list(stack.enter_context(closing(open_rows(path, "score"))))


def test_a_packed_file_is_read_a_line_at_a_time(tmp_path: Path):
    """What is read of the file grows with the lines that are asked for: it never sits in memory whole."""
    random = (json.dumps({"text": format(pow(3, i, 2**4001), "x")}) + "\n" for i in range(10_000, 12_000))
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress("".join(random).encode()))
    with closing(open_texts(path, io.BytesIO())) as reader:
        places = [reader.at for _ in reader]
    assert reader.total is not None and places[0] < reader.total / 4 and places == sorted(places)
    assert places[-1] == reader.total


@pytest.mark.parametrize("harm", [lambda b: b[:-9], lambda b: b"no gzip", lambda b: b[:12] + b"\xff" * 9 + b[21:]])
@pytest.mark.parametrize("opened", [lambda p: open_texts(p, io.BytesIO()), open_rows])
def test_a_damaged_packed_file_is_named(
    tmp_path: Path, harm: Callable[[bytes], bytes], opened: Callable[[Path], Reader]
):
    path = write(tmp_path / "a.jsonl.gz", ROWS * 50)
    path.write_bytes(harm(path.read_bytes()))
    told = r"a\.jsonl\.gz (cannot be read: it is not a whole \.gz file|is not UTF-8: ).*fetch it again"
    with pytest.raises(DataError, match=told), closing(opened(path)) as reader:
        list(reader)
