"""Texts that are split: each chunk is a row."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import numpy as np

from ..encoder import Encoder
from ..errors import WordNotFound
from .embedder import MethodsEmbedder
from .items import Item, kept_columns
from .names import CHUNK_COLUMNS, reasons_with_options
from .write_vectors import Array

OPTIONS = ("prompt", "prompt_name", "normalize_embeddings", "truncate_dim", "batch_tokens")


@dataclass(frozen=True)
class ChunkPlace:
    """Where a chunk stands.

    Attributes:
        number: of the chunk in its text, from 0.
        span: its characters.
        text: the whole text; ``digest`` stands for it where rows are compared with those of an earlier run.
    """

    number: int
    span: tuple[int, int]
    digest: str
    text: str = field(repr=False)


@dataclass(frozen=True)
class Chunking:
    """How texts are split, and whether a chunk's vector knows the rest of its text.

    Args:
        unit, tokens: as ``chunks`` and ``tokens`` of `Encoder.encode_chunks`.
        late: whether it does.
        overlap: as that of `Encoder.chunk_spans`.
    """

    unit: str | None
    tokens: int | None
    late: bool
    overlap: int = 0

    def items(self, items: Iterable[Item], embedder: MethodsEmbedder) -> Iterator[Item]:
        """A row for each chunk; a text that cannot be split is a row with a problem.

        Raises:
            InputError: a chunk of so many tokens does not fit into the model.
        """
        encoders = [_with(embedder.encoder, method) for method in embedder.methods.values()]
        given = {name: embedder.options[name] for name in ("prompt", "prompt_name")}
        for encoder in encoders:
            encoder.chunk_spans([], self.unit, tokens=self.tokens, overlap=self.overlap, **given)
        return self._items(items, encoders[0], given)

    def _items(self, items: Iterable[Item], encoder: Encoder, given: dict[str, Any]) -> Iterator[Item]:
        for item in items:
            text = item.text or ""
            if item.problem is not None:
                yield item
                continue
            try:
                spans = encoder.chunk_spans(text, self.unit, tokens=self.tokens, overlap=self.overlap, **given)
            except WordNotFound as e:
                yield Item(item.line, item.text, str(e).removeprefix("text 0 "), None, item.kept)
                continue
            digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
            for number, (a, b) in enumerate(spans):
                yield Item(item.line, text[a:b].strip(), None, ChunkPlace(number, (a, b), digest, text), item.kept)

    def encode(
        self, items: Sequence[Item], embedder: MethodsEmbedder, done: Callable[[float], None]
    ) -> dict[str, Array]:
        """Vectors (n, D) of rows by name; late chunks of one text come from one forward."""
        if not self.late or not items:
            return embedder([item.text or "" for item in items], None, done)
        texts = [list(group) for _, group in groupby(items, key=lambda item: item.line)]
        rows_of_a_text = len(items) / len(texts)
        ((name, method),) = embedder.methods.items()
        with reasons_with_options():
            found = _with(embedder.encoder, method).encode_chunks(
                [group[0].beside.text for group in texts], [[item.beside.span for item in g] for g in texts],
                show_progress_bar=lambda more: done(more * rows_of_a_text),
                **{option: embedder.options[option] for option in OPTIONS},
            )  # fmt: skip
        return {name: np.concatenate([own.vectors for own in found])}


def _with(encoder: Encoder, method: Any) -> Encoder:
    return encoder if method == encoder.method else replace(encoder, method=method)


def columns(items: Sequence[Item], kinds: Mapping[str, Any], parquet: bool) -> dict[str, list[Any]]:
    """The columns beside the vectors; a text that could not be split has no chunk.

    Args:
        items: the rows.
        kinds: the type of each column, those of chunks included.
        parquet: they are written to a .parquet file.
    """
    kinds = {name: kind for name, kind in kinds.items() if name not in CHUNK_COLUMNS}
    places = [item.beside for item in items]
    return {
        "text": [item.text for item in items],
        "line": [item.line for item in items],
        "chunk": [place and place.number for place in places],
        "start": [place and place.span[0] for place in places],
        "end": [place and place.span[1] for place in places],
        **kept_columns(items, kinds, parquet),
    }
