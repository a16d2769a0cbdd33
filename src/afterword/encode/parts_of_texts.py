"""Vectors of parts of texts, and what a vector is made of: methods that `Encoder` inherits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..methods import AnyMethod, one_method
from ..text.inputs import check_texts, words_by_text
from ..text.layout import Text
from .chunks import Chunker, SpanVectors, narrowest, token_vectors
from .explain import attention_matrix, token_weights
from .joining import joined_rows, own_steps
from .limits import Limits, OnLong
from .output_arrays import Array
from .post_steps import steps_of
from .sentence_transformers_interface import Interface
from .words import word_vectors


class PartsOfTexts(Interface):
    """Vectors of words, chunks and tokens, and the weights of tokens."""

    if TYPE_CHECKING:

        def _prompted(self, method: AnyMethod, prompt: str | None, name: str | None) -> AnyMethod: ...

    def encode_words(
        self,
        texts: str | Sequence[Text],
        words: Sequence[Any],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int | None = None,
        batch_tokens: int | None = None,
        show_progress_bar: bool | Callable[[int], object] = False,
        normalize_embeddings: bool = False,
        on_long: OnLong = "warn",
    ) -> Any:
        """Compute vectors of words in context; that of a word of several tokens is their mean (ReBA, Algorithm 2).

        Args:
            texts: one string, or a list whose items are strings or lists of token ids.
            words: for one string, its words; for a list, one word or a list of words for each text. A word is a
                string, (string, n) for its n-th occurrence counted from 0, or a span (start, end) of characters (of
                tokens, in a text of token ids).
            prompt_name, prompt, batch_size, batch_tokens, show_progress_bar, normalize_embeddings, on_long: as for
                `encode`.

        Returns:
            For a list of texts with one word each, (n, D); with lists of words, a list of arrays (words, D); for one
            string, (words, D).

        Raises:
            WordNotFound: a word is not in its text (checked before the model runs), or was cut off.
        """
        single = isinstance(texts, str)
        listed = check_texts([texts] if isinstance(texts, str) else texts)
        per_text, one_each = words_by_text(words, listed, single)
        method = self._prompted(self.method, prompt, prompt_name)
        limits = Limits(self.max_length, batch_size, batch_tokens, on_long, show_progress_bar=show_progress_bar)
        steps = steps_of(self.backbone, [method], self.post, None, normalize_embeddings)
        rows = word_vectors(self.backbone, method, listed, per_text, limits, steps)
        if one_each:
            return np.concatenate(rows) if rows else np.zeros((0, self.dimension), np.float32)
        return rows[0] if single else rows

    def chunk_spans(
        self, texts: str | Sequence[Text], chunks: Any = None, *, tokens: int | None = None, overlap: int = 0,
        prompt_name: str | None = None, prompt: str | None = None,
    ) -> Any:  # fmt: skip
        """The spans of the chunks of `encode_chunks`: a list for one string, else a list of lists.

        Args:
            texts, chunks, tokens, prompt_name, prompt: as for `encode_chunks`.
            overlap: number of tokens that two chunks of ``tokens`` share, unless that divides a letter.
        """
        method, single = self._prompted(self.method, prompt, prompt_name), isinstance(texts, str)
        chunker = narrowest(Chunker(self.backbone, one, Limits(self.max_length)) for one in method.members)
        spans = chunker.spans(check_texts([texts] if single else texts), chunks, tokens, overlap)
        return spans[0] if single else spans

    def encode_chunks(
        self,
        texts: str | Sequence[Text],
        chunks: Any = None,
        *,
        tokens: int | None = None,
        late: bool = True,
        overlap: int | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int | None = None,
        batch_tokens: int | None = None,
        show_progress_bar: bool | Callable[[int], object] = False,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
    ) -> Any:
        """Compute vectors of chunks of texts of any length: late chunking (Guenther et al., arXiv 2409.04701).

        The text is run as a whole, and a chunk's vector is the mean over its tokens, as that of a word. A text over
        `max_length` is run in windows, and each chunk is taken from the one where it lies most central.

        Args:
            texts: one string, or a list whose items are strings or lists of token ids.
            chunks: "sentences", "paragraphs", or for each text spans (start, end) of characters, in order.
            tokens: split into chunks of so many tokens; with sentences or paragraphs, join whole ones up to so many.
            late: False embeds each chunk by itself, without its context, as `encode` does.
            overlap: number of tokens that two windows of a text share; None = half a window. With late=False, that two
                chunks of ``tokens`` share; None = 0.
            prompt_name, prompt, batch_size, batch_tokens, show_progress_bar, normalize_embeddings, truncate_dim: as
                for `encode`.

        Returns:
            `SpanVectors` for one string, else a list of them: vectors (c, D) and the c spans, which cover the text
            unless they are given; one that is longer than a window is split.

        Raises:
            InputError: a span is empty, blank, outside, or overlaps another; or a text is blank.
            TooLong: a given span is longer than a window.
        """
        limits = Limits(self.max_length, batch_size, batch_tokens, show_progress_bar=show_progress_bar)
        method = self._prompted(self.method, prompt, prompt_name)
        steps = steps_of(self.backbone, [method], self.post, truncate_dim, normalize_embeddings)
        chunkers, own = [Chunker(self.backbone, one, limits) for one in method.members], own_steps(method, steps)
        chunker, single = narrowest(chunkers), isinstance(texts, str)
        listed = check_texts([texts] if single else texts)
        chunks = [chunks] if single and not isinstance(chunks, str | None) else chunks
        spans = chunker.spans(listed, chunks, tokens, 0 if late or overlap is None else overlap)
        parts = [(each.late if late else each.plain)(listed, spans, overlap, own) for each in chunkers]
        found = [SpanVectors(joined_rows(method, rows, steps), text) for *rows, text in zip(*parts, spans, strict=True)]
        return found[0] if single else found

    def encode_tokens(
        self, texts: str | Sequence[Text], *, prompt_name: str | None = None, prompt: str | None = None,
        batch_size: int | None = None, batch_tokens: int | None = None, normalize_embeddings: bool = False,
        on_long: OnLong = "warn",
    ) -> Any:  # fmt: skip
        """Compute a vector for each token of texts, as of a word of one token, for late interaction (MaxSim).

        Special tokens and those of a template have none: ``encode(output_value="token_embeddings")`` gives all states.

        Returns:
            `SpanVectors` for one string, else a list of them: vectors (n, D), and the n spans of characters.
        """
        limits = Limits(self.max_length, batch_size, batch_tokens, on_long)
        method = self._prompted(one_method(self.method, "encode_tokens"), prompt, prompt_name).members[0]
        steps = steps_of(self.backbone, [method], self.post, None, normalize_embeddings)
        single = isinstance(texts, str)
        found = token_vectors(self.backbone, method, check_texts([texts] if single else texts), limits, steps)
        return found[0] if single else found

    def weights(self, text: Text) -> tuple[list[str], Array]:
        """The weight of each token in the vector of a text.

        Args:
            text: one string, or one list of token ids.

        Returns:
            The n tokens that the model reads, template, copies and special tokens included; their weights (n,).

        Raises:
            MethodError: the encoder's method is an ensemble.
        """
        checked = check_texts([text])[0]
        return token_weights(self.backbone, one_method(self.method, "weights"), checked, self.max_length)

    def attention(self, text: Text) -> tuple[list[str], Array]:
        """The symmetric attention matrix of ReBA, Algorithm 1: the maximum of (A + A^T) / 2 over layers and heads.

        Args:
            text: one string, or one list of token ids.

        Returns:
            The n tokens that the model reads; the matrix (n, n), where triangle="upper" leaves only the part k >= i.

        Raises:
            MethodError: the encoder's method is not `reba`.
        """
        checked = check_texts([text])[0]
        return attention_matrix(self.backbone, one_method(self.method, "attention"), checked, self.max_length)
