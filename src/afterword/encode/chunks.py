"""Vectors of chunks in the context of their text (late chunking); long texts are run in overlapping windows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, NamedTuple

from torch import Tensor

from ..backbone.backbone import Backbone
from ..errors import InputError, TooLong, WordNotFound, warn
from ..methods import Method
from ..methods.weights import Backward
from ..post import Post, after
from ..text.batch import Batch
from ..text.inputs import check_ids, check_written, listed
from ..text.layout import Text
from ..text.segments import Span, TokenizedText
from ..text.tokenizer import Spelled
from ..text.words import check_spans, split, tokens_of_spans
from .limits import Limits, Losses, count, each, progress
from .sentences import Array, output_arrays, sentence_vectors, weights
from .words import copy_of, vectors_of_tokens

TEXTS = 256  # texts whose windows are sorted by length together


class SpanVectors(NamedTuple):
    """Vectors of spans of one text.

    Attributes:
        vectors: (c, D).
        spans: the c half-open spans of characters (of tokens, in a text of token ids).
    """

    vectors: Array
    spans: list[Span]


class Chunker:
    """Splits texts into chunks, and computes the vectors of these from windows of the text.

    Args:
        backbone: the model.
        method: its ``truncate`` has no effect, as nothing is cut.
        limits: limits on texts and batches.

    Attributes:
        room: the most tokens of a text in one window; None = any number.
    """

    def __init__(self, backbone: Backbone, method: Method, limits: Limits) -> None:
        self.backbone, self.limits, most = backbone, limits, limits.max_length
        if "condition" in method.layout.fields:
            raise InputError(f"chunks take no condition, and {method.name} has one: use another template")
        self.method = replace(method, layout=replace(method.layout, truncate="before"))
        self.room = None if most is None else self._write([[0] * most])[0].kept

    def _write(self, texts: Sequence[Text]) -> list[TokenizedText]:
        tokenizer = self.backbone.tokenizer
        written = self.method.layout.write(texts, tokenizer, self.limits.max_length, offsets=True)
        return check_written(written, tokenizer, self.backbone.vocabulary_size)

    def _spelled(self, text: Text) -> Spelled:
        if isinstance(text, str):
            return self.backbone.tokenizer.spell([text])[0]
        return Spelled(list(text), [(i, i + 1) for i in range(len(text))])

    def spans(self, texts: Sequence[Text], chunks: Any, tokens: int | None, shared: int = 0) -> list[list[Span]]:
        """The spans of the chunks of each text; arguments and errors are those of `Encoder.chunk_spans`."""
        tokens = count("tokens", tokens)
        _check_shared(chunks, tokens, shared)
        check_ids(texts, self.backbone.vocabulary_size)
        if chunks is not None and not isinstance(chunks, str):
            given = listed(chunks, "chunks")
            if tokens is not None or len(given) != len(texts):
                raise InputError(f"spans of {len(given)} texts, for {len(texts)}: give a list per text, not tokens=")
            return [check_spans(listed(s, "chunks"), texts[t], f"text {t}") for t, s in enumerate(given)]
        if chunks not in (None, "sentences", "paragraphs") or (chunks is None and tokens is None):
            raise InputError(f"chunks={chunks!r}: give spans, 'sentences', 'paragraphs', or tokens=256")
        if tokens is not None and self.room is not None and tokens > self.room:
            raise InputError(
                f"tokens={tokens}: max_length={self.limits.max_length} leaves {self.room} for a chunk: give no more"
            )
        return [
            split(text, self._spelled(text).offsets, chunks, tokens, self.room, f"text {t}", shared)
            for t, text in enumerate(texts)
        ]

    def plain(
        self, texts: Sequence[Text], spans: list[list[Span]], overlap: int | None, post: Sequence[Post]
    ) -> list[Array]:
        """Vectors of chunks that are embedded by themselves, without the blanks around them; the spans overlap."""
        parts = [text[a:b] for text, own in zip(texts, spans, strict=True) for a, b in own]
        parts = [part.strip() if isinstance(part, str) else part for part in parts]
        (rows,) = sentence_vectors(self.backbone, [self.method], parts, self.limits, post)
        return [rows[end - len(own) : end] for own, end in zip(spans, accumulate(map(len, spans)), strict=True)]

    def late(
        self, texts: Sequence[Text], spans: list[list[Span]], overlap: int | None, post: Sequence[Post]
    ) -> list[Array]:
        """Vectors of chunks in the context of their text; see `Encoder.encode_chunks`.

        Raises:
            TooLong: a chunk is longer than a window.
            WordNotFound: no token begins in a chunk.
        """
        self._warn()
        overlap = (self.room or 0) // 2 if overlap is None else overlap
        if self.room is not None and not (isinstance(overlap, int) and 0 <= overlap < self.room):
            raise InputError(f"overlap={overlap}: windows hold {self.room} tokens of a text, give 0 to {self.room - 1}")
        rows = [output_arrays(self.backbone, [self.method], len(own), post)[0] for own in spans]
        losses = Losses(unknown_id=self.backbone.tokenizer.unknown_id)
        with progress(len(texts), self.limits) as bar:
            for first in range(0, len(texts), TEXTS):
                wholes = self._write(texts[first : first + TEXTS])
                losses.note_unknown(wholes)
                parts = [
                    (window, tokens, t, numbers)
                    for t, whole in enumerate(wholes, first)
                    for window, tokens, numbers in self._windows(t, texts[t], whole, spans[t], overlap)
                ]
                windows, tokens = [part[0] for part in parts], [part[1] for part in parts]
                budget = self.limits.budget(self.backbone.device)
                for i, found in vectors_of_tokens(self.backbone, self.method, windows, tokens, budget, post):
                    rows[parts[i][2]][parts[i][3]] = found
                bar(len(wholes))
        losses.warn(self.limits)
        return rows

    def _warn(self) -> None:
        method, facts = self.method, self.backbone.facts
        looks = (
            method.layout.total_copies > 1
            or method.sight.both_ways
            or method.sight.carry
            or isinstance(method.weigh, Backward)
        )
        if facts.causal and not looks:
            warn(
                f"{facts.kind} is causal: a chunk by {method.name} knows only what stands before it; echo and reba "
                "look back"
            )

    def _windows(
        self, t: int, text: Text, written: TokenizedText, spans: Sequence[Span], overlap: int
    ) -> Iterator[tuple[TokenizedText, list[list[int]], list[int]]]:
        """The windows that a text's chunks are taken from, each with the tokens and the numbers of its chunks."""
        whole = written.kept == written.total
        offsets = list(written.offsets[copy_of(self.method) - 1])
        ids, offsets = ([], offsets) if whole else self._spelled(text)
        tokens = tokens_of_spans(spans, offsets, text)
        for (start, end), found in zip(spans, tokens, strict=True):
            if not found:
                raise WordNotFound(f"the span {start}:{end} of text {t} leaves no token: none begins in it")
        if whole or self.room is None:
            yield written, tokens, list(range(len(spans)))
            return
        last, taken = max(len(ids) - self.room, 0), dict[int, list[int]]()
        for k, found in enumerate(tokens):
            a, b = found[0], found[-1] + 1
            if b - a > self.room:
                raise TooLong(
                    f"the span {spans[k][0]}:{spans[k][1]} of text {t} has {b - a} tokens, and a window of max_length="
                    f"{self.limits.max_length} holds {self.room}: split it"
                )
            holding = [s for s in (*range(0, last, self.room - overlap), last) if s <= a and b <= s + self.room]
            central = {s: min(a - s, s + self.room - b) for s in holding}
            middle = min(max((a + b - self.room) // 2, 0), last)  # a window of its own, if no other holds it
            taken.setdefault(max(central, key=central.__getitem__, default=middle), []).append(k)
        for start, numbers in taken.items():
            (window,) = self._write([ids[start : start + self.room]])
            yield window, [[i - start for i in tokens[k]] for k in numbers], numbers


def _check_shared(chunks: Any, tokens: int | None, shared: int) -> None:
    """Refuse an overlap that chunks cannot have.

    Raises:
        InputError: the chunks are no numbers of tokens, or have no more tokens than they would share.
    """
    if not shared and isinstance(shared, int):
        return
    if chunks is not None or tokens is None:
        raise InputError(f"overlap={shared}: chunks share tokens where tokens=256 alone says how long they are")
    if not isinstance(shared, int) or not 0 <= shared < tokens:
        raise InputError(f"overlap={shared}: chunks of {tokens} tokens can share 0 to {tokens - 1}")


def narrowest(chunkers: Iterable[Chunker]) -> Chunker:
    """The one of the smallest window, whose chunks fit into the windows of all."""
    return min(chunkers, key=lambda chunker: chunker.room or math.inf)


def token_vectors(
    backbone: Backbone, method: Method, texts: Sequence[Text], limits: Limits, post: Sequence[Post]
) -> list[SpanVectors]:
    """The vector of each token of each text; see `Encoder.encode_tokens`."""
    check_ids(texts, backbone.vocabulary_size)
    writings = method.layout.write(texts, backbone.tokenizer, limits.max_length, offsets=True)
    check_written(writings, backbone.tokenizer, backbone.vocabulary_size)
    cuts, found, copy = Losses(unknown_id=backbone.tokenizer.unknown_id), dict[int, Array](), copy_of(method)
    cuts.note(writings, limits)

    def run(batch: Batch, indices: list[int]) -> list[Array]:
        return [after(rows, post).cpu().numpy() for rows in token_rows(backbone, method, batch)]

    for indices, rows in each(writings, run, limits.budget(backbone.device), backbone.device):
        found.update(zip(indices, rows, strict=True))
    cuts.warn(limits)
    return [SpanVectors(found[t], list(written.offsets[copy - 1])) for t, written in enumerate(writings)]


def token_rows(backbone: Backbone, method: Method, batch: Batch, keep_mode: bool = False) -> list[Tensor]:
    """The vectors (n, D) of the n tokens of each text of a batch, as those of words; the same in any batch."""
    sizes, which = [0] * batch.texts, method.weigh.for_words().which
    for group in batch.groups:
        spans = group.spans[:, which(group) - 1]
        for t, end in zip(group.text.tolist(), (group.first + spans[:, 1] - spans[:, 0]).tolist(), strict=True):
            sizes[t] = max(sizes[t], end) if t >= 0 else sizes[t]
    (weighed,) = weights(backbone, [method], batch, [[[i] for i in range(n)] for n in sizes], keep_mode=keep_mode)
    out = [weighed.states.new_zeros(n, weighed.states.shape[1]) for n in sizes]
    for group, rows in zip(weighed.batch.groups, weighed.weights, strict=True):
        for t, row, states in zip(group.text.tolist(), rows, group.slice(weighed.states), strict=True):
            if t >= 0:
                out[t] = out[t] + row[: sizes[t]].to(states.dtype) @ states
    return out
