"""Every way in which a data file can be wrong names the file and the line."""

import gzip
import json
import re
from pathlib import Path

import pytest

from afterword.errors import BadRow, DataError, MissingDataset
from afterword.tasks.rows import Folder, number, page, read_rows, text

FIELDS = {"sentence1": text, "sentence2": text, "score": number}
GOOD = {"sentence1": "a", "sentence2": "", "score": 3.5, "subset": "news"}


def write(path: Path, *rows: object) -> Path:
    lines = "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
    path.write_bytes(gzip.compress(lines.encode()) if path.suffix == ".gz" else lines.encode())
    return path


@pytest.mark.parametrize("name", ["sts.jsonl", "sts.jsonl.gz"])
def test_rows_hold_the_fields_asked_for(tmp_path: Path, name: str):
    path = write(tmp_path / name, GOOD, {**GOOD, "score": "2"})
    assert list(read_rows(path, FIELDS, {"genre": text})) == [
        {"sentence1": "a", "sentence2": "", "score": 3.5, "genre": None},
        {"sentence1": "a", "sentence2": "", "score": 2.0, "genre": None},
    ]
    assert Folder(tmp_path).find("sts") == path


def test_tables_are_read_by_their_header(tmp_path: Path):
    path = write(tmp_path / "a.csv", "score,sentence1,sentence2", '3,"one, two",b')
    assert list(read_rows(path, FIELDS)) == [{"sentence1": "one, two", "sentence2": "b", "score": 3.0}]


def test_one_changed_value_changes_the_digest(tmp_path: Path):
    write(tmp_path / "a.jsonl", GOOD)
    write(tmp_path / "b.jsonl", GOOD)
    write(tmp_path / "c.jsonl", {**GOOD, "score": 3.4})
    a, b, c = (Folder(tmp_path).digest(name) for name in "abc")
    assert a == b != c
    with pytest.raises(MissingDataset):
        Folder(tmp_path).digest("d")


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ('{"sentence1": "a"', "is not JSON"),
        ({"text": "a"}, "has no field 'sentence1', only text"),
        ({**GOOD, "score": "high"}, "'score' is 'high', not a number"),
        ({**GOOD, "sentence2": None}, "'sentence2' is None, not a string"),
        ("[1]", "is a JSON array"),
    ],
)
def test_a_bad_row_is_named_by_its_line(tmp_path: Path, row: object, problem: str):
    path = write(tmp_path / "sts.jsonl", GOOD, row)
    with pytest.raises(BadRow) as told:
        list(read_rows(path, FIELDS))
    assert str(told.value).startswith(f"{path}:2: ") and problem in str(told.value)


def test_files_that_cannot_be_read(tmp_path: Path):
    with pytest.raises(MissingDataset, match="does not exist"):
        list(read_rows(tmp_path / "none.jsonl", FIELDS))
    with pytest.raises(MissingDataset, match=re.escape(f": {page('evaluate.md')} says")):
        Folder(tmp_path).find("none")
    assert page("evaluate.md").read_text("utf-8").startswith("# ")
    whole = write(tmp_path / "cut.jsonl.gz", *[GOOD] * 100).read_bytes()
    (tmp_path / "cut.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "damaged.jsonl.gz").write_bytes(whole[:12] + b"\xff" * 9 + whole[21:])
    (tmp_path / "empty.jsonl").write_bytes(b"")
    (tmp_path / "sts.xlsx").write_bytes(b"PK")
    for name, problem in [("cut.jsonl.gz", "cannot be read"), ("damaged.jsonl.gz", "cannot be read"),
                          ("empty.jsonl", "has no rows"), ("sts.xlsx", "an unknown format")]:  # fmt: skip
        with pytest.raises(DataError, match=problem):
            list(read_rows(tmp_path / name, FIELDS))
