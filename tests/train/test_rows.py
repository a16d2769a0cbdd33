import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from afterword.errors import AfterwordError, BadRow, DataError, MissingDataset
from afterword.train.rows import TrainingRows

TRIPLETS = [{"anchor": "a", "positive": "b", "negative": "c"}, {"anchor": "d,e", "positive": 'f"g', "negative": "ü"}]
SCORED = [{"sentence1": "an anchor", "sentence2": "b", "score": 0.5}, {"sentence1": "c", "sentence2": "d", "score": 5}]
CSTS = [{"sentence1": "a", "sentence2": "b", "condition": "c", "label": 3}]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    kind = path.name.removesuffix(".gz")
    text = "".join(json.dumps(row) + "\n" for row in rows)
    if kind.endswith("parquet"):
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist(rows), path)
        return path
    if kind.endswith("csv"):
        import csv
        import io

        file = io.StringIO()
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
        text = file.getvalue()
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.csv", "a.csv.gz", "a.parquet"])
@pytest.mark.parametrize("rows", [TRIPLETS, SCORED, CSTS], ids=["triplets", "scored", "conditioned"])
def test_every_format_gives_the_same_rows(rows: list[dict[str, Any]], name: str, tmp_path: Path):
    there = TrainingRows.read([{**row, "other": "left out"} for row in rows])
    read = TrainingRows.read(write(tmp_path / name, [{**row, "other": "left out"} for row in rows]))
    assert (read.form, read.columns, read.digest) == (there.form, there.columns, there.digest)
    assert len(read) == len(rows) and TrainingRows.read(read) is read


def test_columns_by_form():
    assert TrainingRows.read(TRIPLETS).columns == {
        "anchor": ["a", "d,e"],
        "positive": ["b", 'f"g'],
        "negative": ["c", "ü"],
    }
    assert TrainingRows.read([{"anchor": "a", "positive": "b"}]).form == "pairs"
    scored = TrainingRows.read(SCORED)
    assert scored.scored and scored.columns["score"] == [0.5, 5.0] and not scored.conditioned
    assert TrainingRows.read(CSTS).columns == {"sentence1": [["a", "c"]], "sentence2": [["b", "c"]], "score": [3.0]}
    assert TrainingRows.read(TRIPLETS).digest != TrainingRows.read(TRIPLETS[::-1]).digest


def test_the_triplets_beside_the_project(data: Path):
    found = TrainingRows.read(data / "nli" / "triplets_10k.jsonl.gz")
    assert len(found) == 10_000 and found.form == "triplets"


GOOD = '{"anchor": "a", "positive": "b", "negative": "c"}\n'


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (GOOD + '{"anchor": "a", "positive": "b"}\n', 2, "has no field 'negative'"),
        (GOOD + '{"anchor": "a", "positive": " ", "negative": "c"}\n', 2, "'positive' is empty"),
        (GOOD * 2 + '{"anchor": null, "positive": "b", "negative": "c"}\n', 3, "'anchor' is empty"),
        (GOOD + '{"anchor": 5, "positive": "b", "negative": "c"}\n', 2, "'anchor' is a int, 5"),
        (GOOD + '{"anchor": "a\\u0000", "positive": "b", "negative": "c"}\n', 2, "holds a NUL character"),
        (GOOD + "{broken\n", 2, "is not JSON"),
        (GOOD + "\n", 2, "is a blank line"),
        ('{"anchor": "a", "positive": "b"}\n' + GOOD, 2, "has a field 'negative', the rows before it have none"),
        ('{"sentence1": "a", "sentence2": "b", "score": "high"}\n', 1, "'score' is 'high', not a number"),
        ('{"sentence1": "a", "sentence2": "b", "score": NaN}\n', 1, "'score' is nan, not a number"),
        ('{"sentence1": "a", "sentence2": "b", "score": true}\n', 1, "'score' is True, not a number"),
        ('{"sentence1": "a", "sentence2": "b", "condition": "c", "label": -1}\n', 1, "the labels of this split are"),
    ],
)
def test_a_bad_row_is_named_by_its_line(text: str, line: int, said: str, tmp_path: Path):
    path = tmp_path / "a.jsonl"
    path.write_text(text)
    with pytest.raises(BadRow, match=said) as found:
        TrainingRows.read(path)
    assert str(found.value).startswith(f"{path}:{line}: ") and "\n" not in str(found.value)


def test_csv_lines_are_counted_as_an_editor_counts_them(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text('anchor,positive\n"two\nlines",b\nc,\n')
    with pytest.raises(BadRow, match=r"a\.csv:4: 'positive' is empty"):
        TrainingRows.read(path)


@pytest.mark.parametrize(
    ("name", "content", "error", "said"),
    [
        ("a.txt", b"a", DataError, "unknown format: give a .jsonl, .csv, .tsv, .parquet file"),
        ("a.jsonl", b"", DataError, "holds no rows"),
        ("a.jsonl", b'{"text": "a"}\n', DataError, "has the columns text: give one of anchor"),
        ("a.csv", b"question,answer\na,b\n", DataError, "has the columns question, answer: give one of anchor"),
        ("a.jsonl.gz", b"no gzip", DataError, r"a\.jsonl\.gz"),
        ("a.jsonl.gz", gzip.compress(GOOD.encode() * 99, mtime=0)[:-9], DataError, r"a\.jsonl\.gz"),
        ("a.csv", b"question,answer\n", DataError, "holds no rows"),
        ("a.parquet", b"no parquet", DataError, "is not a parquet file"),
    ],
)
def test_a_file_that_is_none_is_said(name: str, content: bytes, error: type[AfterwordError], said: str, tmp_path: Path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(error, match=said):
        TrainingRows.read(tmp_path / name)


def test_a_file_that_is_not_there(tmp_path: Path):
    with pytest.raises(MissingDataset, match="does not exist"):
        TrainingRows.read(tmp_path / "a.jsonl")
    (tmp_path / "b.jsonl").mkdir()
    with pytest.raises(DataError, match="is a folder: give a file"):
        TrainingRows.read(tmp_path / "b.jsonl")
    with pytest.raises(BadRow, match="row:2: 'positive' is empty"):
        TrainingRows.read([TRIPLETS[0], {**TRIPLETS[0], "positive": ""}])
