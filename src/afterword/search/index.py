"""An index on disk: a LanceDB table of texts and vectors, whose metadata says what they were made by."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import DataError, MissingDataset, MissingExtra
from ..jobs.stored import PREFIX, VectorsInfo, to_notes

if TYPE_CHECKING:
    from pyarrow import Field, RecordBatchReader, Schema

TABLE = "rows"
JOB = "job"  # the folder of the first build
LOCK = "writing"  # the folder of the lock
VECTOR = "vector"
METRIC = "cosine"
OWN = ("id", "doc", "chunk", "start", "end", "text", "hash", VECTOR)
"""The columns that every index has; the kept ones stand before the vector."""
RESERVED = (
    "_score", "_distance", "_relevance_score", "_query_index", "_rowid", "_rowaddr", "_rowoffset",
    "_row_created_at_version", "_row_last_updated_at_version",
)  # fmt: skip
"""Names of LanceDB's own, which no column may have."""
UNIQUE = {"lance-schema:unenforced-primary-key": "true"}  # without it, two merges at once add an id twice
PLACE = re.compile(r",? /\S+:\d+:\d+")  # in the source of LanceDB
SETTINGS = ("chunking", "late", "overlap", "id_column", "query_prompt_name", "language", "text_search", "loading")
"""What an index has beyond a file of vectors."""


@dataclass(frozen=True, eq=False)
class IndexInfo(VectorsInfo):
    """What an index was made by.

    Attributes:
        chunking: how texts are split, such as ``256`` or ``sentences``; "" if each text is a row.
        late: whether a chunk's vector knows the rest of its text.
        overlap: the number of tokens that two chunks share.
        id_column: the column of the input that holds ids; None = ids are hashes of texts.
        query_prompt_name: the model's prompt for queries; None = the one that `Encoder.encode_query` chooses.
        language: of the text index, such as English; ``none`` for no stems; "" = by the texts.
        text_search: whether there is a text index.
        loading: options that the model was loaded with, by the names of `Encoder.load`.
    """

    chunking: str = ""
    late: bool = False
    overlap: int = 0
    id_column: str | None = None
    query_prompt_name: str | None = None
    language: str = ""
    text_search: bool = True
    loading: Mapping[str, Any] = field(default_factory=dict)

    def to_metadata(self) -> dict[str, str]:
        """The values of a column of vectors, and one more, of JSON."""
        values = {name: getattr(self, name) for name in SETTINGS}
        return {**super().to_metadata(), "index": json.dumps(values, ensure_ascii=False)}

    def to_schema(self) -> dict[str, str]:
        """The metadata of a table."""
        return to_notes({VECTOR: self})

    @classmethod
    def from_schema(cls, metadata: Mapping[bytes, bytes] | None) -> IndexInfo:
        """The inverse of `to_schema`.

        Raises:
            KeyError: a value is missing.
            ValueError: a value cannot be read.
        """
        notes = {name.decode().removeprefix(PREFIX): value.decode() for name, value in (metadata or {}).items()}
        return cls(**vars(VectorsInfo.from_metadata(notes)), **json.loads(notes["index"]))


class Index:
    """An index on disk.

    Args:
        folder: of the index.
        table: the LanceDB table.
        info: what it was made by.
    """

    def __init__(self, folder: Path, table: Any, info: IndexInfo) -> None:
        self.folder, self.table, self.info = folder, table, info

    @classmethod
    def open(cls, folder: Path) -> Index:
        """Open an index.

        Raises:
            MissingDataset: there is no such folder.
            DataError: it is not an index, its first build has not ended, or it is damaged.
            MissingExtra: lancedb is not installed.
        """
        if not folder.is_dir():
            raise MissingDataset(f"{folder} does not exist: `afterword index {folder} -m MODEL -i FILE` makes an index")
        if not exists(folder):
            if (folder / JOB).is_dir() or (folder / LOCK).is_dir():
                raise DataError(f"{folder} has no rows yet: the same `afterword index` goes on with its first build")
            raise DataError(f"{folder} is not an index: `afterword index` makes one in a new folder")
        try:
            table = connect(folder).open_table(TABLE)
            schema = table.schema
        except (RuntimeError, ValueError, OSError) as e:
            raise DataError(f"{folder} cannot be opened: {str(e).splitlines()[0]:.200}") from None
        return cls(folder, table, _read_info(folder, schema))

    @classmethod
    def create(cls, folder: Path, reader: RecordBatchReader, info: IndexInfo) -> Index:
        """Make an index of rows in one commit: when it fails or is killed, there is none.

        Args:
            folder: of the index; it is made where it does not exist.
            reader: the rows, in the columns of `schema_of`.
            info: what they were made by.

        Raises:
            DataError: the folder holds an index, or cannot be written.
        """
        if exists(folder):
            raise DataError(f"{folder} is an index already")
        with written(folder):
            folder.mkdir(parents=True, exist_ok=True)
            table = connect(folder).create_table(TABLE, reader)
        return cls(folder, table, info)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self.table.count_rows())

    @property
    def kept(self) -> list[str]:
        """The names of the columns that were kept of the input."""
        return [name for name in self.table.schema.names if name not in OWN]

    def add_columns(self, kinds: Mapping[str, Any]) -> None:
        """Add kept columns that the index does not have yet; they are null in its rows.

        Args:
            kinds: the types of columns, as `Reader.kinds` has them.

        Raises:
            DataError: the index cannot be written.
        """
        import pyarrow as pa

        new = {name: kind for name, kind in kinds.items() if name not in self.kept}
        fields = [pa.field(name, pa.string() if isinstance(kind, str) else kind) for name, kind in new.items()]
        if fields:
            with written(self.folder):
                self.table.add_columns(fields)


@contextmanager
def written(folder: Path) -> Iterator[None]:
    """Report a write that LanceDB refuses as one line.

    Raises:
        DataError: the index cannot be written.
    """
    try:
        yield
    except (OSError, RuntimeError, ValueError) as e:
        raise DataError(f"{folder} cannot be written: {first_line(e)}") from None


def first_line(error: Exception) -> str:
    """The first line of an error of LanceDB, without places in its source."""
    return PLACE.sub("", str(error).split("\n")[0])[:300] or type(error).__name__


def connect(folder: Path) -> Any:
    """LanceDB's connection to a folder.

    Raises:
        MissingExtra: lancedb is not installed.
    """
    os.environ.setdefault("LANCEDB_LOG", "error")  # before the import; it writes to stderr
    try:
        import lancedb
    except ImportError:
        raise MissingExtra("lancedb", "search") from None
    return lancedb.connect(folder)


def exists(folder: Path) -> bool:
    """Whether a folder holds a table that a build has finished."""
    versions = folder / f"{TABLE}.lance" / "_versions"
    return versions.is_dir() and any(versions.glob("*.manifest"))


def schema_of(info: IndexInfo, kept: list[Field] | None = None) -> Schema:
    """The columns of an index with these kept ones, and its metadata."""
    import pyarrow as pa

    return pa.schema(
        [
            pa.field("id", pa.string(), nullable=False, metadata=UNIQUE),
            pa.field("doc", pa.string()),
            pa.field("chunk", pa.int64()),
            pa.field("start", pa.int64()),
            pa.field("end", pa.int64()),
            pa.field("text", pa.string()),
            pa.field("hash", pa.string()),
            *(kept or []),
            pa.field(VECTOR, pa.list_(pa.float32(), info.dimension)),
        ],
        info.to_schema(),
    )


def _read_info(folder: Path, schema: Schema) -> IndexInfo:
    missing = set(OWN) - set(schema.names)
    if missing:
        raise DataError(f"{folder} was not made by Afterword: it has no column {', '.join(sorted(missing))}")
    try:
        return IndexInfo.from_schema(schema.metadata)
    except (KeyError, ValueError, TypeError) as e:
        raise DataError(
            f"{folder} does not say what it was made by ({type(e).__name__} {e}): make a new index"
        ) from None
