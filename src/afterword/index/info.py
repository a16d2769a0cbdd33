"""What an index was made by: the metadata of its table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import DataError
from ..jobs.vectors_info import PREFIX, VectorsInfo, to_notes

FORMAT = 1
METRIC = "cosine"


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
        metric: how vectors are compared.
        format: of the index.
    """

    chunking: str = ""
    late: bool = False
    overlap: int = 0
    id_column: str | None = None
    query_prompt_name: str | None = None
    language: str = ""
    text_search: bool = True
    loading: Mapping[str, Any] = field(default_factory=dict)
    metric: str = METRIC
    format: int = FORMAT

    def to_metadata(self) -> dict[str, str]:
        """The values of a column of vectors, and one more, of JSON."""
        values = {name: getattr(self, name) for name in OWN}
        return {**super().to_metadata(), "index": json.dumps(values, ensure_ascii=False)}

    def to_schema(self) -> dict[str, str]:
        """The metadata of a table, and of a .parquet file of its rows."""
        return to_notes({"vector": self})

    @classmethod
    def from_schema(cls, metadata: Mapping[bytes, bytes] | None) -> IndexInfo:
        """The inverse of `to_schema`.

        Args:
            metadata: of the table.

        Raises:
            KeyError: a value is missing.
            ValueError: a value cannot be read.
            DataError: the format is newer than this version of Afterword.
        """
        notes = {name.decode().removeprefix(PREFIX): value.decode() for name, value in (metadata or {}).items()}
        values = json.loads(notes["index"])
        if values["format"] > FORMAT:
            raise DataError(f"has format {values['format']}, and this version of Afterword reads {FORMAT}: update it")
        base = VectorsInfo.from_metadata(notes)
        own = {name: values[name] for name in OWN if name in values}
        return cls(**vars(base), **own)


OWN = (
    "chunking", "late", "overlap", "id_column", "query_prompt_name", "language", "text_search", "loading",
    "metric", "format",
)  # fmt: skip
"""The values that an index has beyond those of a file of vectors."""
