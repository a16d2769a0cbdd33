"""How the texts of a job become vectors, as plain values that another process can be given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from ..encode.options import choose_prompt
from ..encoder import Encoder
from ..methods import AnyMethod
from ..methods.serialize import PYTHON_FILE, parse_method
from ..post import Post
from .chunked import Chunking, columns
from .embedder import Loader, MethodsEmbedder
from .items import Item, text_columns
from .names import VECTOR
from .windows import Embedding, Progress
from .write_vectors import Array


@dataclass(frozen=True)
class Load:
    """A model and how it is loaded.

    Args:
        model: as `Encoder.load` takes it.
        options: more arguments of `Encoder.load`.
    """

    model: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def load(self, method: AnyMethod | None) -> Encoder:
        """The encoder."""
        return Encoder.load(self.model, method, **self.options)


def fitted(embedder: MethodsEmbedder, steps: Sequence[Post], texts: Sequence[str] | None) -> MethodsEmbedder:
    """The embedder with more post-processing steps, and with its method and steps fitted behind its prompt.

    Args:
        embedder: the embedder.
        steps: they come after those of the encoder.
        texts: the texts to fit on; None if nothing is fitted.

    Raises:
        InputError: there are too few texts.
    """
    encoder, methods = embedder.encoder, embedder.methods
    encoder = replace(encoder, post=(*encoder.post, *steps)) if steps else encoder
    if texts is not None:
        prompt = choose_prompt(
            encoder.prompts,
            encoder.default_prompt_name,
            embedder.options.get("prompt"),
            embedder.options.get("prompt_name"),
        )
        prompted = replace(encoder, prompts={"fit": prompt or ""}, default_prompt_name="fit")
        fit = prompted.fit(texts, batch_tokens=embedder.options.get("batch_tokens"))
        encoder = replace(encoder, method=fit.method, post=fit.post)
        methods = {VECTOR: encoder.method}
    return replace(embedder, encoder=encoder, methods=methods)


class Rows(Protocol):
    """Embeds rows: `TextRows`, or `word_rows.WordRows`."""

    embedder: MethodsEmbedder

    def split(self, items: Iterator[Item]) -> Iterator[Item]:
        """The rows that are embedded, for those of the input."""

    def encode(self, items: Sequence[Item], done: Progress) -> dict[str, Array]:
        """The vectors (n, D) of n rows, by name."""

    def embedding(self, kinds: Mapping[str, Any], parquet: bool) -> Embedding:
        """How the rows become vectors and columns; see `TextRows.embedding`."""


class Recipe(Protocol):
    """What vectors are made by; it can be pickled."""

    @property
    def options(self) -> Mapping[str, Any]:
        """Arguments of `Encoder.encode`."""

    def open(self) -> Rows:
        """Load the encoder."""


@dataclass
class TextRows:
    """Embeds rows of texts, or of their chunks.

    Args:
        embedder: the loaded encoder with its methods.
        chunking: how texts are split; None = each text is a row.
        condition: of every text; ``condition_field`` is the field that holds each text's own.
    """

    embedder: MethodsEmbedder
    chunking: Chunking | None = None
    condition: str | None = None
    condition_field: str | None = None

    def split(self, items: Iterator[Item]) -> Iterator[Item]:
        """A row for each chunk; the rows as they are, if texts are not split."""
        return items if self.chunking is None else self.chunking.items(items, self.embedder)

    def encode(self, items: Sequence[Item], done: Progress) -> dict[str, Array]:
        """The vectors (n, D) of n rows, by name."""
        if self.chunking is not None:
            return self.chunking.encode(items, self.embedder, done)
        conditioned = self.condition is not None or self.condition_field is not None
        conditions = [item.beside for item in items] if conditioned else None
        return self.embedder([item.text or "" for item in items], conditions, done)

    def embedding(self, kinds: Mapping[str, Any], parquet: bool) -> Embedding:
        """How the rows become vectors and columns.

        Args:
            kinds: the type of each column beside the vectors.
            parquet: they are written to .parquet files.
        """
        beside = text_columns if self.chunking is None else columns
        return Embedding(self.encode, self.embedder.why_nan, lambda items: beside(items, kinds, parquet))


@dataclass(frozen=True)
class JobRecipe:
    """What a job's vectors are made by; it can be pickled.

    Args:
        load: loads the encoder.
        methods: as ``--method`` spells them; none = the encoder's own.
        options: arguments of `Encoder.encode`.
        condition, condition_field: as `TextRows` has them.
        chunking: how texts are split.
        steps: post-processing steps, after those of the encoder.
        texts: what the methods and steps are fitted to; None if nothing is fitted.
    """

    load: Loader
    methods: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    condition: str | None = None
    condition_field: str | None = None
    chunking: Chunking | None = None
    steps: tuple[Post, ...] = ()
    texts: tuple[str, ...] | None = None

    @property
    def files(self) -> list[Path]:
        """The files that hold its methods, as far as they are there."""
        named = [method for method in self.methods if method.startswith("@")]
        python = [PYTHON_FILE.fullmatch(method) for method in named]
        paths = [Path(code["path"] if code else text[1:]) for text, code in zip(named, python, strict=True)]
        return [path.expanduser() for path in paths if path.expanduser().is_file()]

    def open(self) -> TextRows:
        """Load the encoder, and fit what is fitted."""
        methods = {spec: parse_method(spec) for spec in self.methods}
        if len(methods) == 1:
            methods = {VECTOR: next(iter(methods.values()))}
        embedder = MethodsEmbedder.open(self.load, methods, dict(self.options))
        if self.steps or self.texts is not None:
            embedder = fitted(embedder, self.steps, self.texts)
        return TextRows(embedder, self.chunking, self.condition, self.condition_field)
