"""From texts to token ids and character offsets, by a copy of the Hugging Face tokenizer's backend.

Another library that uses the same tokenizer may switch on padding or truncation, so the backend is copied, and both
are always off in the copy. The copy is used only if it gives the same ids as the Hugging Face tokenizer itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tokenizers import Encoding
from tokenizers import Tokenizer as Backend

from ..errors import InputError, ModelError, NoMaskToken

BLANKS = "▁Ġ "  # a leading space as SentencePiece and byte-level BPE write it

TEST_LINE = (
    "Été Ångström e\u0301 ﬁ ß 世界 日本語 한국 नमस्ते 👩\u200d👧 🇩🇪 3.14 1,000 ①  two blanks\tA TAB\nUPPER lower "
    "don't x_y \u200b … “q” "
)
"""A text of many scripts, on which a copy is compared with its original."""

LETTER = 8  # the most tokens that one letter is looked for in: UTF-8 has four bytes, and a blank may stand in front

BATCH = 1024  # texts whose encodings with offsets are held at a time

Offset = tuple[int, int]


class Spelled(NamedTuple):
    """A tokenized string: ids (n,) and, for each token, its half-open span of characters."""

    ids: list[int]
    offsets: list[Offset]


def check_text(text: object, where: str = "text", fix: str = "give a string, or a list of token ids") -> str:
    """Validate that a text can be tokenized, and return it.

    Raises:
        InputError: it is not a string, or holds a lone surrogate or a NUL character.

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
    return str.__str__(text)  # a plain string: a subclass may define equality in another way


@dataclass(frozen=True, eq=False)
class _Copy:
    """A copy of a Hugging Face tokenizer's backend.

    Attributes:
        copy: of the backend; None for a slow tokenizer, or if a copy does not give the same ids.
        prefix, suffix: the special tokens in front of and behind one text.
        top: the largest token id.
        blank: whether a token may be a blank marker, by id; filled when needed.
        plain: the ids of special tokens that are spelled as text; filled when needed.
    """

    copy: Any
    prefix: list[int]
    suffix: list[int]
    top: int
    blank: dict[int, bool] = field(default_factory=dict)
    plain: dict[str, list[int]] = field(default_factory=dict)


class Tokenizer:
    """A Hugging Face tokenizer, read-only and without padding, truncation or warnings.

    After you change the original (add tokens, edit its normaliser), call `renew`, or load the model again.

    Args:
        hf: what ``AutoTokenizer.from_pretrained`` gives; kept as ``.hf`` for saving.

    Raises:
        ModelError: it drops merges at random, or its special tokens do not stand around a text.

    >>> from afterword import Encoder
    >>> tokenizer = Encoder.load("afterword-mini").backbone.tokenizer
    >>> tokenizer.ids(["a b"]) == [tokenizer.spell(["a b"])[0].ids]
    True
    """

    def __init__(self, hf: Any) -> None:
        self.hf = hf
        self.renew()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the Hugging Face tokenizer only: a pickled backend loses some of its settings."""
        return Tokenizer, (self.hf,)

    def renew(self) -> None:
        """Copy the Hugging Face tokenizer again, after a change of it."""
        self._copy, self._description = _copy(self.hf), ""

    @property
    def prefix(self) -> list[int]:
        """The special tokens in front of a text."""
        return self._copy.prefix

    @property
    def suffix(self) -> list[int]:
        """The special tokens behind a text."""
        return self._copy.suffix

    @property
    def top(self) -> int:
        """The largest token id."""
        return self._copy.top

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, without special tokens."""
        copy = self._copy.copy
        if copy is None:
            return [_ids(self.hf, t) for t in texts]
        return [e.ids for e in copy.encode_batch_fast(list(texts), add_special_tokens=False)]

    def spell(self, texts: Sequence[str]) -> list[Spelled]:
        """Token ids and character offsets of each text, without special tokens.

        Raises:
            ModelError: the tokenizer gives no offsets: it is a slow one, or rewrites texts in Python first.
        """
        now = self._copy
        copy = now.copy
        if copy is None:
            fast = hasattr(self.hf, "backend_tokenizer")
            why = "rewrites texts in Python and" if fast else "is a slow tokenizer and"
            raise ModelError(
                f"{type(self.hf).__name__} {why} gives no character offsets of the text, which words and templates "
                "need: use a model with a fast tokenizer (tokenizer.json), or texts without prompt, template and words"
            )
        spelled: list[Spelled] = []
        for i in range(0, len(texts), BATCH):  # an encoding takes far more memory than its ids and offsets
            part = list(texts[i : i + BATCH])
            encodings = copy.encode_batch(part, add_special_tokens=False)
            spelled += [Spelled(e.ids, self._offsets(e, t, now)) for e, t in zip(encodings, part, strict=True)]
        return spelled

    def plain_ids(self, text: str) -> list[int]:
        """Token ids of a string in which special tokens are spelled as text."""
        now = self._copy
        if text not in now.plain:
            backend = Backend.from_str(now.copy.to_str())
            backend.encode_special_tokens = True
            now.plain[text] = list(backend.encode(text, add_special_tokens=False).ids)
        return now.plain[text]

    def _offsets(self, encoding: Encoding, text: str, now: _Copy) -> list[Offset]:
        """Offsets; those of blank markers are corrected, which needs time only if there may be one."""
        blank, unknown = now.blank, self.hf.unk_token
        for i in set(encoding.ids):
            if i not in blank:  # the unknown token may stand for a blank
                token = now.copy.id_to_token(i)
                blank[i] = token is None or not token.strip(BLANKS) or token == unknown
            if blank[i]:
                return _without_blanks(encoding, text)
        return list(encoding.offsets)

    @property
    def unknown_id(self) -> int | None:
        """The id of the token that stands for what the vocabulary lacks; None if there is none."""
        return None if self.hf.unk_token_id is None else int(self.hf.unk_token_id)

    @property
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
        """The most tokens of one input, special tokens included; None if the tokenizer does not say."""
        length = int(self.hf.model_max_length)
        return length if length < 10**9 else None

    @property
    def description(self) -> str:
        """A hash of everything that determines the tokenizer's ids, independent of where it was loaded from."""
        now = self._copy
        if self._description:
            return self._description
        if now.copy is not None:
            text = now.copy.to_str() + ("split_special_tokens" if now.copy.encode_special_tokens else "")
        else:
            text = repr((type(self.hf).__name__, now.prefix, now.suffix, sorted(self.hf.get_vocab().items())))
        self._description = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        return self._description

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """The tokens of ids as strings, as the vocabulary writes them."""
        return [str(t) for t in self.hf.convert_ids_to_tokens(list(ids))]

    def letters(self, ids: Sequence[int]) -> list[str]:
        """The tokens of ids as a reader writes them: byte-level tokens as the letters that they stand for.

        A letter of several tokens stands at each of them with the number of the part, as in "字 1/3"; a token of
        blanks alone is "␣".

        >>> from afterword import Encoder
        >>> tokenizer = Encoder.load("afterword-mini").backbone.tokenizer
        >>> tokenizer.letters(tokenizer.ids(["the 银行"])[0])
        ['the', '␣', '银', '行']
        """
        shown: list[str] = []
        while (at := len(shown)) < len(ids):
            ends = range(at + 1, min(at + LETTER, len(ids)) + 1)
            spelled = (str(self.hf.decode(list(ids[at:end]))) for end in ends)
            whole = next(((i, s) for i, s in enumerate(spelled, 1) if "\ufffd" not in s), None)
            if whole is None:
                shown += self.tokens([ids[at]])
                continue
            count, text = whole
            text = text.strip() or "␣"
            shown += [text] if count == 1 else [f"{text} {i}/{count}" for i in range(1, count + 1)]
        return shown


def _copy(hf: Any) -> _Copy:
    """Copy a tokenizer's backend, if it has one and the copy gives the same ids.

    Raises:
        ModelError: it gives a text other ids each time, or its special tokens are not in front of and behind a text.
    """
    live = getattr(hf, "backend_tokenizer", None)
    top = max([len(hf) - 1, *hf.added_tokens_decoder]) if hasattr(hf, "added_tokens_decoder") else -1
    prefix, suffix = _affixes(hf)
    if live is not None and set(_ids(hf, TEST_LINE)) <= set(hf.all_special_ids):
        raise ModelError(
            f"the tokenizer, a {type(hf).__name__} of {len(hf)} tokens, knows no letter of any script: its files are "
            "missing; put tokenizer.json and tokenizer_config.json beside the model"
        )
    if live is None:
        return _Copy(None, prefix, suffix, top)
    if dropout := getattr(live.model, "dropout", None):
        raise ModelError(
            f"the tokenizer leaves out merges at random (dropout={dropout}), so that a text has other ids each time: "
            "set tokenizer.backend_tokenizer.model.dropout = None"
        )
    copy = Backend.from_str(live.to_str())
    copy.no_padding()
    copy.no_truncation()
    copy.encode_special_tokens = bool(hf.split_special_tokens)  # to_str does not write it
    same = all(
        _ids_or_none(lambda line: list(copy.encode(line, add_special_tokens=False).ids), line)
        == _ids_or_none(lambda line: _ids(hf, line), line)
        for line in _test_lines(hf)
    )
    return _Copy(copy if same else None, prefix, suffix, top)


def _test_lines(hf: Any) -> Iterator[str]:
    """Lines on which a copy is compared: many scripts, and every added token alone and inside a word."""
    yield TEST_LINE
    added = sorted({str(t) for t in hf.added_tokens_decoder.values() if "\0" not in str(t)})
    for i in range(0, len(added), 16):
        yield " ".join(f"{t} a{t}b {t.upper()}" for t in added[i : i + 16])


def _ids_or_none(spell: Callable[[str], list[int]], line: str) -> list[int] | None:
    """The ids of a line; None if the tokenizer refuses one of its letters."""
    try:
        return spell(line)
    except Exception:  # the backend raises no other class
        return None


def _ids(hf: Any, text: str) -> list[int]:
    return list(hf(text, add_special_tokens=False)["input_ids"])


def _affixes(hf: Any) -> tuple[list[int], list[int]]:
    """The special tokens that a tokenizer puts in front of and behind one text."""
    for probe in ("a", "1", ".", "一"):
        bare, full = _ids(hf, probe), list(hf(probe, add_special_tokens=True)["input_ids"])
        if not bare:  # the tokenizer drops unknown characters: try another one
            continue
        for start in range(len(full) - len(bare) + 1):
            if full[start : start + len(bare)] == bare:
                return full[:start], full[start + len(bare) :]
        break
    raise ModelError(
        f"the tokenizer writes {probe!r} as {full} with special tokens and {bare} without: "
        "its special tokens are not before and after the text; use another tokenizer"
    )


def _without_blanks(encoding: Encoding, text: str) -> list[Offset]:
    """Offsets, with an empty span for a blank marker whose span holds a visible character.

    SentencePiece adds a blank in front of the first word. The backend gives it the span of the first character, so
    the word would seem to have one token too many.
    """
    offsets = list(encoding.offsets)
    for i, token in enumerate(encoding.tokens):
        if token and not token.strip(BLANKS):
            start, end = offsets[i]
            if text[start:end].strip():
                offsets[i] = (start, start)
    return offsets
