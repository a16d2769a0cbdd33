"""Data sets as rows with checked fields, from a folder of files or from the Hugging Face Hub."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

from ..errors import BadRow, DataError, MissingDataset, MissingExtra
from ..files.read import ENDINGS, open_rows

Row = dict[str, Any]
Check = Callable[[Any], Any]
"""Converts a field's raw value to the value that is used; raises a ValueError that describes an invalid one."""


class Source(ABC):
    """A source of data sets: a `Folder`, or the `Hub`. A frozen dataclass."""

    @abstractmethod
    def rows(self, name: str, fields: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> list[Row]:
        """All rows of a data set.

        Args:
            name: of the data set, relative and without an ending, as in "en/sts/sts12.test".
            fields: the required fields, with a check for each.
            optional: the optional fields, with a check for each; a missing one is None.

        Raises:
            MissingDataset: there is no such data set.
            BadRow: a row cannot be read, or a field is missing or invalid.
            DataError: the data set is corrupt, or has no rows.
        """

    @abstractmethod
    def digest(self, name: str) -> str:
        """A hash of a data set's content: it changes when a row does; `name` and errors as for `rows`."""


@dataclass(frozen=True)
class Folder(Source):
    """A folder of data sets.

    Args:
        root: path of the folder; files are named relative to it.
    """

    root: Path

    def find(self, name: str) -> Path:
        """The file of a data set, whose name may lack its ending."""
        for ending in ("", *ENDINGS):
            path = self.root / (name + ending)
            if path.is_file():
                return path
        raise MissingDataset(
            f"{self.root / name}{{{','.join(ENDINGS)}}} does not exist: docs/evaluate.md lists the files of each task"
        )

    def rows(self, name: str, fields: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> list[Row]:
        """All rows of a data set, checked as in `Source.rows`."""
        return list(read_rows(self.find(name), fields, optional))

    def digest(self, name: str) -> str:
        """The SHA-256 of the file."""
        with self.find(name).open("rb") as file:
            return file_digest(file, "sha256").hexdigest()


def folder_digest(folder: Path) -> str:
    """A hash of the names and contents of the files in a folder, without hidden ones."""
    total = sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = path.relative_to(folder)
        if not any(part.startswith(".") for part in name.parts):
            with path.open("rb") as file:
                total.update(f"{name.as_posix()}\0{file_digest(file, 'sha256').hexdigest()}\n".encode())
    return total.hexdigest()


def read_rows(path: Path, fields: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Iterator[Row]:
    """Read and check the rows of a file.

    Args:
        path: a .jsonl or .csv file, also gzipped, or a .parquet file.
        fields, optional: as for `Source.rows`, which has the errors too.

    Yields:
        The fields of each row; other fields are ignored.
    """
    empty = True
    with closing(open_rows(path, next(iter(fields)))) as reader:
        for record in reader:
            empty = False
            if record.fields is None:
                raise BadRow(path, record.line, record.problem or "cannot be read")
            yield checked(path, record.line, record.fields, fields, optional or {})
    if empty:
        raise DataError(f"{path} has no rows")


def checked(
    path: object, line: int, raw: Mapping[str, Any], fields: Mapping[str, Check], optional: Mapping[str, Check]
) -> Row:
    """The fields of one row, each converted by its check; arguments and errors as for `read_rows`."""
    row: Row = {}
    for name, check in {**fields, **optional}.items():
        if name in raw:
            try:
                row[name] = check(raw[name])
            except ValueError as e:
                raise BadRow(path, line, f"{name!r} {e}") from None
        elif name in optional:
            row[name] = None
        else:
            raise BadRow(path, line, f"has no field {name!r}, only {', '.join(map(str, raw)) or 'none'}")
    return row


def text(value: Any) -> str:
    """Check for a string, which may be empty."""
    if not isinstance(value, str):
        raise ValueError(f"is {value!r:.40}, not a string")
    return value


def number(value: Any) -> float:
    """Check for a finite number, or a string that spells one.

    >>> number("3.8")
    3.8
    """
    try:
        result = float(value) if not isinstance(value, bool | None) else math.nan
    except (TypeError, ValueError):
        result = math.nan
    if not math.isfinite(result):
        raise ValueError(f"is {value!r:.40}, not a number")
    return result


def label(value: Any) -> str:
    """Check for a class label: a string or a whole number, returned as a string."""
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
        raise ValueError(f"is {value!r:.40}, not a label")
    return str(value)


def texts(value: Any) -> list[str]:
    """Check for a list of strings that is not empty."""
    if not isinstance(value, list) or not value or not all(isinstance(v, str) for v in value):
        raise ValueError(f"is {value!r:.40}, not a list of strings")
    return value


@dataclass(frozen=True)
class Part:
    """One split of one repository on the hub.

    Args:
        repository, split, configuration: their names there, as in "mteb/sts12-sts".
        fields: our field names to the repository's.
        fixed: our fields that the repository lacks, with one value for all rows.
        revision: a commit; None = the newest.
    """

    repository: str
    split: str
    fields: Mapping[str, str]
    fixed: Mapping[str, str] = field(default_factory=dict)
    configuration: str | None = None
    revision: str | None = None


def _sts(name: str, split: str, revision: str) -> tuple[Part, ...]:
    fields = {name: name for name in ("sentence1", "sentence2", "score")}
    return (Part(f"mteb/{name}-sts", split, fields, revision=revision),)


STSB = "b0fddb56ed78048fa8b90373c8a3cfc37b684831"
MR, GLUE = "cornell-movie-review-data/rotten_tomatoes", "nyu-mll/glue"
TEXT, SENTENCE = {"text": "text", "label": "label"}, {"text": "sentence", "label": "label"}
PAIR = {name: name for name in ("sentence1", "sentence2", "label")}
ALL, TRAIN, DEV, TEST = ({"split": s} for s in ("all", "train", "dev", "test"))

PARTS: Mapping[str, tuple[Part, ...]] = {
    "en/sts_raw/sts12.test": _sts("sts12", "test", "a0d554a64d88156834ff5ae9920b964011b16384"),
    "en/sts_raw/sts13.test": _sts("sts13", "test", "7e90230a92c190f1bf69ae9002b8cea547a64cca"),
    "en/sts_raw/sts14.test": _sts("sts14", "test", "6031580fec1f6af667f0bd2da0a551cf4f0b2375"),
    "en/sts_raw/sts15.test": _sts("sts15", "test", "ae752c7c21bf194d8b67fd573edf7ae58183cbe3"),
    "en/sts_raw/sts16.test": _sts("sts16", "test", "4d8694f8f0e0100860b497b999b3dbed754a0513"),
    "en/sts_raw/stsb.train": _sts("stsbenchmark", "train", STSB),
    "en/sts_raw/stsb.dev": _sts("stsbenchmark", "validation", STSB),
    "en/sts_raw/stsb.test": _sts("stsbenchmark", "test", STSB),
    "en/transfer/mr": tuple(Part(MR, split, TEXT, ALL) for split in ("train", "validation", "test")),
    "en/transfer/cr": tuple(Part("SetFit/SentEval-CR", split, TEXT, ALL) for split in ("train", "test")),
    "en/transfer/subj": tuple(Part("SetFit/subj", split, TEXT, ALL) for split in ("train", "test")),
    "en/transfer/mpqa": tuple(Part("jxm/mpqa", split, SENTENCE, ALL) for split in ("train", "test")),
    "en/transfer/sst2": (
        Part(GLUE, "train", SENTENCE, TRAIN, "sst2"),
        Part(GLUE, "validation", SENTENCE, DEV, "sst2"),
        Part("jxm/sst2", "test", SENTENCE, TEST),
    ),
    "en/transfer/trec": (Part("jxm/trec", "train", SENTENCE, TRAIN), Part("jxm/trec", "test", SENTENCE, TEST)),
    "en/transfer/mrpc": (
        Part(GLUE, "train", PAIR, TRAIN, "mrpc"),
        Part(GLUE, "validation", PAIR, TRAIN, "mrpc"),
        Part(GLUE, "test", PAIR, TEST, "mrpc"),
    ),
}
"""The splits that make up each data set.

The hub has STS in the organisers' text only, without the names of subsets. It has no usable SICK-R: MTEB's set holds
the pairs of all three splits as one (9,927), another keeps 4,906 of the 4,927 test pairs. The transfer sets have the
rows of SentEval's, but not its Moses tokenisation and wrongly decoded letters; CR and MPQA lack the empty texts."""


@dataclass(frozen=True)
class Hub(Source):
    """The Hugging Face Hub, or a mirror of it; names and fields are mapped to those that the tasks use.

    Args:
        mirror: a folder with copies of repositories under their names, as "mteb/sts12-sts"; None = the hub itself.
    """

    mirror: Path | None = None

    def rows(self, name: str, fields: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> list[Row]:
        """All rows of a data set, checked as in `Source.rows`."""
        return [checked(place, n, raw, fields, optional or {}) for place, n, raw in self._records(name)]

    def digest(self, name: str) -> str:
        """The SHA-256 of the rows in order, over the fields in use."""
        total = sha256()
        for _, _, raw in self._records(name):
            total.update(json.dumps(raw, sort_keys=True).encode())
        return total.hexdigest()

    def _records(self, name: str) -> Iterator[tuple[str, int, Row]]:
        """For each row: repository and split, row number from 1, and fields under our names."""
        if name not in PARTS:
            raw = name.replace("en/sts/", "en/sts_raw/")
            fix = f"it has {raw}: run the group sts-raw" if raw in PARTS else "pass a folder that has it"
            raise MissingDataset(f"the hub does not have {name}: {fix}")
        for part in PARTS[name]:
            dataset = self._load(part)
            if missing := sorted(set(part.fields.values()) - set(dataset.column_names)):
                raise DataError(f"{part.repository} has no field {missing[0]}, only {', '.join(dataset.column_names)}")
            columns = zip(*(dataset[theirs] for theirs in part.fields.values()), strict=True)
            for n, values in enumerate(columns, 1):
                row = dict(zip(part.fields, values, strict=True))
                yield f"{part.repository}/{part.split}", n, {**row, **part.fixed}

    def _load(self, part: Part) -> Any:
        try:
            from datasets import load_dataset
            from datasets.exceptions import DatasetsError
        except ImportError:
            raise MissingExtra("datasets", "evaluate") from None
        path = part.repository if self.mirror is None else str(self.mirror / part.repository)
        revision = part.revision if self.mirror is None else None
        try:
            return load_dataset(path, part.configuration, split=part.split, revision=revision)
        except (OSError, ValueError, DatasetsError) as e:
            reason = str(e).splitlines()[0] if str(e) else type(e).__name__
            raise MissingDataset(f"{path} cannot be loaded: {reason}") from None


def source(where: str | Path) -> Source:
    """The `Hub` for "hub", else the `Folder` of this path; MissingDataset if it does not exist."""
    if where == "hub":
        return Hub()
    if not Path(where).is_dir():
        raise MissingDataset(f'{where} is not a folder: pass one that holds the data sets, or "hub"')
    return Folder(Path(where))
