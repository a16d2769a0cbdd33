"""Training rows: pairs, triplets, scored pairs, scored pairs with a condition. Every problem names its line."""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import BadRow, DataError, InputError, MissingDataset
from ..files.lines import LONGEST, JsonLinesReader, Record
from ..files.tables import BATCH, CsvReader, first_line
from ..text.tokenizer import check_text

PAIRS, TRIPLETS = ("anchor", "positive"), ("anchor", "positive", "negative")
SCORED, CONDITIONED = ("sentence1", "sentence2", "score"), ("sentence1", "sentence2", "condition", "label")
FORMS = {"pairs": PAIRS, "triplets": TRIPLETS, "scored pairs": SCORED, "conditioned pairs": CONDITIONED}
NUMBERS, HIDDEN = ("score", "label"), -1  # C-STS gives -1 where it keeps a label to itself


@dataclass(frozen=True)
class TrainingRows:
    """What is trained on, or evaluated.

    Args:
        form: a name of `FORMS`.
        columns: by name, in order, n values each; ``score`` holds numbers; a text with a condition is a pair.
        source: where they came from, for errors.

    >>> TrainingRows.of([{"anchor": "a", "positive": "b"}]).form
    'pairs'
    """

    form: str
    columns: Mapping[str, list[Any]]
    source: str

    def __len__(self) -> int:
        """N rows."""
        return len(next(iter(self.columns.values())))

    @property
    def scored(self) -> bool:
        """Whether each pair has a number."""
        return "score" in self.columns

    @property
    def conditioned(self) -> bool:
        """Whether each pair has a condition."""
        return self.form == "conditioned pairs"

    @property
    def digest(self) -> str:
        """A hash of all of them, in order."""
        return hashlib.blake2b(json.dumps(self.columns).encode(), digest_size=16).hexdigest()

    @classmethod
    def of(cls, data: TrainingRows | str | Path | Iterable[Mapping[str, Any]]) -> TrainingRows:
        """Read a file, or take rows that are there already.

        Args:
            data: a .jsonl, .jsonl.gz, .csv, .csv.gz or .parquet file, or mappings. Columns: anchor, positive and
                perhaps negative; sentence1, sentence2 and score; or those of C-STS: sentence1, sentence2,
                condition and label. Others are left out.

        Raises:
            MissingDataset: no such file.
            BadRow: a field is missing, empty, or of another type.
            DataError: no rows, or none of these columns.
        """
        if isinstance(data, TrainingRows):
            return data
        if isinstance(data, str | Path):
            return _rows(str(data), _records(Path(data)))
        return _rows("row", (Record(i, row) for i, row in enumerate(data, 1)))


def _records(path: Path) -> Iterator[Record]:
    """The records of a file, by its ending."""
    kind = path.name.lower().removesuffix(".gz").rpartition(".")[2]
    if not path.exists():
        raise MissingDataset(f"{path} is not there")
    if kind not in ("jsonl", "csv", "parquet") or not path.is_file():
        raise DataError(f"{path} is of no known format: give a .jsonl, .jsonl.gz, .csv or .parquet file")
    if kind == "parquet":
        yield from _parquet(path)
        return
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            found: BinaryIO = stream  # type: ignore[assignment]  # a GzipFile reads as any binary file does
            field = _field(found, kind)
            yield from (
                CsvReader(found, None, field, str(path))
                if kind == "csv"
                else JsonLinesReader(found, None, field, str(path))
            )
    except (gzip.BadGzipFile, EOFError, zlib.error) as e:
        raise DataError(f"{path} is not a whole .gz file: {first_line(e)}") from None


def _parquet(path: Path) -> Iterator[Record]:
    """Parquet's columns may be numbers here."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows = (row for batch in pq.ParquetFile(path).iter_batches(BATCH) for row in batch.to_pylist())
        yield from (Record(i, row) for i, row in enumerate(rows, 1))
    except (pa.ArrowInvalid, OSError) as e:
        raise DataError(f"{path} is not a parquet file: {first_line(e)}") from None


def _field(stream: BinaryIO, kind: str) -> str:
    """The first column that counts, by the first line: of an object its names, of a table the header."""
    line = stream.readline(LONGEST).decode("utf-8-sig", "replace")
    stream.seek(0)
    try:
        names = next(csv.reader([line]), []) if kind == "csv" else json.loads(line)
    except (csv.Error, ValueError):  # told, with its line, by who reads it
        names = []
    known = [form[0] for form in FORMS.values()]
    return next((n for n in names if n in known), known[0]) if isinstance(names, list | dict) else known[0]


def _rows(source: str, records: Iterable[Record]) -> TrainingRows:
    """Check every record; the first one says what form they have."""
    form, columns = "", dict[str, list[Any]]()
    for record in records:
        fields = record.fields
        if fields is None:
            raise BadRow(source, record.line, str(record.problem))
        if not form:
            form = _form(source, fields)
            columns = {name: [] for name in FORMS[form]}
        if form == "pairs" and "negative" in fields:
            raise BadRow(source, record.line, "has a field 'negative', the rows before it have none")
        for name, values in columns.items():
            values.append(_value(fields, name, source, record.line))
    if not form:
        raise DataError(f"{source} holds no rows")
    return TrainingRows(form, _conditioned(columns) if form == "conditioned pairs" else columns, source)


def _form(source: str, fields: Mapping[str, Any]) -> str:
    if "anchor" in fields:
        return "triplets" if "negative" in fields else "pairs"
    if "sentence1" in fields:
        return "conditioned pairs" if "condition" in fields else "scored pairs"
    known = "; ".join(", ".join(names) for names in FORMS.values())
    raise DataError(f"{source} has the columns {', '.join(map(str, fields)) or 'none'}: give one of {known}")


def _value(fields: Mapping[str, Any], name: str, source: str, line: int) -> Any:
    """One checked field: a text that is not blank, or a number."""
    if name not in fields:
        raise BadRow(source, line, f"has no field {name!r}, only {', '.join(map(repr, fields)) or 'none'}")
    value = fields[name]
    if name in NUMBERS:
        return _number(value, name, source, line)
    if value is None or (isinstance(value, str) and not value.strip()):
        raise BadRow(source, line, f"{name!r} is empty")
    try:
        return check_text(value, repr(name))
    except InputError as e:
        raise BadRow(source, line, str(e)) from None


def _number(value: Any, name: str, source: str, line: int) -> float:
    try:
        number = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise BadRow(source, line, f"{name!r} is {value!r:.40}, not a number")
    if name == "label" and number == HIDDEN:
        raise BadRow(source, line, "'label' is -1: the labels of this split are hidden")
    return number


def _conditioned(columns: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """Each text beside its condition."""
    first, second, conditions, labels = columns.values()
    return {
        "sentence1": [list(pair) for pair in zip(first, conditions, strict=True)],
        "sentence2": [list(pair) for pair in zip(second, conditions, strict=True)],
        "score": labels,
    }
