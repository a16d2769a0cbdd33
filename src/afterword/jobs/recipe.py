"""How texts become vectors: the model, its methods, chunks and fitted steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

from ..encode.options import choose_prompt
from ..encoder import Encoder
from ..errors import WordNotFound
from ..methods import AnyMethod
from ..methods.serialize import PYTHON_FILE, parse_method
from ..post import Post

if TYPE_CHECKING:
    from ..encoder import Encoder
    from ..methods import AnyMethod
    from .write_vectors import Array
import hashlib
import time

import numpy as np

from . import CHUNK_COLUMNS, VECTOR
from .names import reasons_with_options
from .rows import Array, Embedding, Inputs, Item, Progress, kept_columns, text_columns


class Loader(Protocol):
    """What loads an encoder."""

    def load(self, method: AnyMethod | None) -> Encoder:
        """An encoder with this method; None = its own."""


@dataclass
class MethodsEmbedder:
    """Embeds texts by all methods that the command names.

    Args:
        encoder: an encoder with the first of the methods, or with its own.
        methods: methods by name, at least one.
        options: options of `Encoder.encode`.
        condition: of every text that comes without one.
    """

    encoder: Encoder
    methods: dict[str, AnyMethod]
    options: dict[str, Any] = field(default_factory=dict)
    condition: str | None = None

    @classmethod
    def open(
        cls, choice: Loader, methods: dict[str, AnyMethod], options: dict[str, Any], condition: str | None = None
    ) -> MethodsEmbedder:
        """Load the model."""
        encoder = choice.load(next(iter(methods.values()), None))
        return cls(encoder, methods or {VECTOR: encoder.method}, options, condition)

    def __call__(
        self,
        texts: Sequence[str],
        conditions: Sequence[str] | None = None,
        on_progress: Callable[[float], None] = lambda _: None,
    ) -> dict[str, Array]:
        """Vectors (n, D) by name, NaN for a text without tokens.

        `on_progress` is called with the number of texts that were finished since its last call.
        """

        def done(vectors: int) -> None:
            on_progress(vectors / len(self.methods))

        options = {**self.options, "on_empty": "nan", "show_progress_bar": done}
        if conditions is None and self.condition is not None:
            conditions = [self.condition] * len(texts)
        with reasons_with_options():
            if len(self.methods) > 1:
                return self.encoder.encode_many(list(texts), self.methods, **options)
            (name,) = self.methods
            return {name: self.encoder.encode(list(texts), conditions=conditions, **options)}

    def why_nan(self, text: str) -> str:
        """The reason why the vector of a text is NaN or infinite."""
        empty = not self.encoder.backbone.tokenizer.ids([text])[0]
        return (
            "holds no token that the model knows" if empty else "has a vector that is not finite: try --dtype float32"
        )


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


SAMPLE = 256  # texts


SEED = 0


@dataclass(frozen=True)
class Estimate:
    """What a job will take.

    Attributes:
        rows: of the input, and ``rejected`` those of them that hold no text to embed.
        tokens: of all texts, without copies and template.
        seconds: in one process, loading not counted; ``size``: of the vectors and texts, in bytes.
        sample: the number of texts that were embedded to find out.
    """

    rows: int
    rejected: int
    tokens: int
    seconds: float
    size: int
    sample: int


def sampled(inputs: Inputs, most: int = SAMPLE) -> tuple[list[Item], int, int, int]:
    """Texts drawn evenly from all rows (at most so many); the number of rows, of rejected ones, and of characters."""
    random, drawn, rows, rejected, characters = Random(SEED), list[Item](), 0, 0, 0
    for file in range(len(inputs.files)):
        for item in inputs.items(file):
            rows += 1
            if item.problem is not None:
                rejected += 1
                continue
            characters += len(item.text or "")
            if len(drawn) < most:
                drawn.append(item)
            elif (at := random.randrange(rows - rejected)) < most:
                drawn[at] = item
    return drawn, rows, rejected, characters


def estimate(inputs: Inputs, recipe: JobRecipe) -> Estimate:
    """Embed a sample of the texts, and say what all of them will take.

    Raises:
        DataError: a file cannot be read.
        ModelError: the model cannot be loaded.
    """
    items, rows, rejected, characters = sampled(inputs)
    opened = recipe.open()
    empty = opened.encode([], lambda _: None)
    width = sum(a.shape[1] * a.itemsize for a in empty.values())
    if not items:
        return Estimate(rows, rejected, 0, 0.0, rows * width, 0)
    parts = list(opened.split(iter(items)))
    opened.encode(parts[:8], lambda _: None)
    began = time.perf_counter()
    opened.encode(parts, lambda _: None)
    seconds = time.perf_counter() - began
    seen = sum(len(item.text or "") for item in items)
    share = characters / max(seen, 1)
    ids = opened.embedder.encoder.backbone.tokenizer.ids([item.text or "" for item in items])
    tokens = int(np.sum([len(own) for own in ids]) * share)
    chunks = len(parts) / len(items)
    size = int((rows - rejected) * chunks * width + characters)
    return Estimate(rows, rejected, tokens, seconds * share, size, len(items))
