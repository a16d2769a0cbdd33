"""Texts to token ids and character offsets, with a backend of our own.

Another library that holds the same tokenizer may switch padding or truncation on behind our back, so the
backend is copied once and neither is ever on in the copy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

from tokenizers import Encoding
from tokenizers import Tokenizer as Backend

from .errors import InputError, ModelError, NoMaskToken

BLANKS = "▁Ġ "  # how SentencePiece and byte-level BPE spell a leading blank

Offset = tuple[int, int]


class Spelled(NamedTuple):
    """A text as tokens: ids (n,) and, per token, the half-open range of characters it stands for."""

    ids: list[int]
    offsets: list[Offset]


def check_text(text: object, where: str = "text", fix: str = "give a string, or a list of token ids") -> str:
    """The text itself, if it can be tokenized at all.

    Raises:
        InputError: not a string, a lone surrogate, a NUL character.

    >>> check_text("fine")
    'fine'
    """
    if not isinstance(text, str):
        raise InputError(f"{where} is a {type(text).__name__}, {text!r:.60}: {fix}")
    if "\0" in text:
        raise InputError(f"{where} holds a NUL character at position {text.index(chr(0))}: remove it")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as e:
            raise InputError(
                f"{where} holds a lone surrogate {text[e.start]!r} at {e.start}: decode it with errors='replace'"
            ) from None
    return text


class Tokenizer:
    """A Hugging Face tokenizer, read-only and without padding, truncation or warnings.

    Args:
        hf: what ``AutoTokenizer.from_pretrained`` gives; kept as ``.hf`` for saving.

    >>> from afterword import Encoder
    >>> tokenizer = Encoder.load("afterword-mini").backbone.tokenizer
    >>> tokenizer.ids(["a b"]) == [tokenizer.spell(["a b"])[0].ids]
    True
    """

    def __init__(self, hf: Any) -> None:
        self.hf = hf
        backend = getattr(hf, "backend_tokenizer", None)
        self._backend = Backend.from_str(backend.to_str()) if backend is not None else None
        if self._backend is not None:
            self._backend.no_padding()
            self._backend.no_truncation()
        self.prefix, self.suffix = self._affixes()

    def _affixes(self) -> tuple[list[int], list[int]]:
        """The special tokens that the tokenizer puts in front of and behind one text."""
        bare = list(self.hf("a", add_special_tokens=False)["input_ids"])
        full = list(self.hf("a", add_special_tokens=True)["input_ids"])
        for start in range(len(full) - len(bare) + 1):
            if full[start : start + len(bare)] == bare:
                return full[:start], full[start + len(bare) :]
        raise ModelError(
            f"the tokenizer writes 'a' as {full} with special tokens and {bare} without: "
            "its special tokens are not an affix; pass add_special_tokens=False"
        )

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, without special tokens."""
        if self._backend is None:
            return [list(self.hf(t, add_special_tokens=False)["input_ids"]) for t in texts]
        return [e.ids for e in self._backend.encode_batch_fast(list(texts), add_special_tokens=False)]

    def spell(self, texts: Sequence[str]) -> list[Spelled]:
        """Token ids and character offsets of each text, without special tokens.

        Raises:
            ModelError: the tokenizer is a slow one, which knows no offsets.
        """
        if self._backend is None:
            raise ModelError(
                f"{type(self.hf).__name__} gives no character offsets, which words and templates need: "
                "use a model with a fast tokenizer (tokenizer.json)"
            )
        encodings = self._backend.encode_batch(list(texts), add_special_tokens=False)
        return [Spelled(e.ids, _honest(e, t)) for e, t in zip(encodings, texts, strict=True)]

    @cached_property
    def mask_id(self) -> int:
        """The id of the mask token.

        Raises:
            NoMaskToken: the tokenizer has none.
        """
        if self.hf.mask_token_id is None:
            raise NoMaskToken(
                f"the template holds [MASK], but {type(self.hf).__name__} has no mask token: "
                "use a template that ends where a word would follow (prompt(template='eol'))"
            )
        return int(self.hf.mask_token_id)

    @property
    def max_length(self) -> int | None:
        """The longest input in tokens, special tokens included, or None where the tokenizer does not say."""
        length = int(self.hf.model_max_length)
        return length if length < 10**9 else None

    @cached_property
    def description(self) -> str:
        """A hash of all that the tokenizer does, wherever it was loaded from."""
        if self._backend is not None:
            text = self._backend.to_str()
        else:
            text = repr((type(self.hf).__name__, self.prefix, self.suffix, sorted(self.hf.get_vocab().items())))
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """The tokens' own spelling, for a person to read."""
        return [str(t) for t in self.hf.convert_ids_to_tokens(list(ids))]


def _honest(encoding: Encoding, text: str) -> list[Offset]:
    """Offsets, with none for a blank marker that claims a visible character.

    SentencePiece puts a blank before the first word that the text does not have; the backend gives it the
    offset of the first character, so that the word would seem to have one token more than it has.
    """
    offsets = list(encoding.offsets)
    for i, token in enumerate(encoding.tokens):
        if token and not token.strip(BLANKS):
            start, end = offsets[i]
            if text[start:end].strip():
                offsets[i] = (start, start)
    return offsets
