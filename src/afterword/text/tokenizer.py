"""Texts to token ids and character offsets, with a backend of our own.

Another library that holds the same tokenizer may switch padding or truncation on behind our back, so the
backend is copied and neither is ever on in the copy. The copy is made anew when the tokenizer has changed, and used
only where it gives what the Hugging Face object itself gives.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tokenizers import Encoding
from tokenizers import Tokenizer as Backend

from ..errors import InputError, ModelError, NoMaskToken

BLANKS = "▁Ġ "  # how SentencePiece and byte-level BPE spell a leading blank

TORTURE = (
    "Été Ångström e\u0301 ﬁ ß 世界 日本語 한국 नमस्ते 👩\u200d👧 🇩🇪 3.14 1,000 ①  two blanks\tA TAB\nUPPER lower "
    "don't x_y \u200b … “q” "
)
"""A text on which a copy shows whether it treats everything as its original does."""

OPTIONS = (
    "dropout", "unk_token", "fuse_unk", "byte_fallback", "ignore_merges", "continuing_subword_prefix",
    "end_of_word_suffix", "max_input_chars_per_word",
)  # fmt: skip
"""What can be set in a backend's model. Its vocabulary and merges are not compared: exchanged for others of the same
size, they need `Tokenizer.renew`, and so does a change far behind in a long normaliser, whose spelling is shortened."""

FLAGS = 64
"""Up to so many added tokens are compared one by one at every use. With more, which would take longer than a short
text's encoding, only the size of the vocabulary is: a piece that is made an added token, or a flag that is edited,
needs `Tokenizer.renew`."""

BATCH = 1024  # texts whose encodings with offsets are held at a time

_MAKING = threading.Lock()

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
    return str.__str__(text)  # the text alone: a class of one's own may call two texts equal


@dataclass(frozen=True, eq=False)
class _Made:
    """What was made of a Hugging Face tokenizer, and of which state of it.

    Attributes:
        live: its own backend, None for a slow tokenizer.
        state: all of the original that can change, and is quickly read.
        one_by_one: whether its added tokens are part of the state.
        copy: of the backend; None where only the original gives its own ids.
        prefix, suffix: the special tokens in front of and behind one text.
        top: the largest id that it can give.
        blank: whether a token may be a blank marker, by id, as far as that was asked.
    """

    live: Any
    state: tuple[object, ...]
    one_by_one: bool
    copy: Any
    prefix: list[int]
    suffix: list[int]
    top: int
    blank: dict[int, bool] = field(default_factory=dict)


class Tokenizer:
    """A Hugging Face tokenizer, read-only and without padding, truncation or warnings.

    What is changed in the original later (tokens added, a normaliser edited) holds from the next use on.

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
        self._last = _make(hf)
        self._description: tuple[_Made, str] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy makes its own: a pickled backend forgets some of its settings."""
        return Tokenizer, (self.hf,)

    def _now(self) -> _Made:
        """The copy and all that belongs to it, made anew where the original has changed."""
        last, live = self._last, getattr(self.hf, "backend_tokenizer", None)
        if last.live is not live or last.state != _state(self.hf, live, last.one_by_one):
            self.renew()
        return self._last

    def renew(self) -> None:
        """Follow a change in the original that is not noticed by itself: see `FLAGS`."""
        with _MAKING:
            self._last = _make(self.hf)

    @property
    def prefix(self) -> list[int]:
        """The special tokens in front of a text."""
        return self._now().prefix

    @property
    def suffix(self) -> list[int]:
        """The special tokens behind a text."""
        return self._now().suffix

    @property
    def top(self) -> int:
        """The largest id that it can give."""
        return self._now().top

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, without special tokens."""
        copy = self._now().copy
        if copy is None:
            return [_bare(self.hf, t) for t in texts]
        return [e.ids for e in copy.encode_batch_fast(list(texts), add_special_tokens=False)]

    def spell(self, texts: Sequence[str]) -> list[Spelled]:
        """Token ids and character offsets of each text, without special tokens.

        Raises:
            ModelError: the tokenizer is a slow one, which knows no offsets, or rewrites a text before it counts.
        """
        now = self._now()
        copy = now.copy
        if copy is None:
            fast = hasattr(self.hf, "backend_tokenizer")
            why = "rewrites texts in Python and" if fast else "is a slow tokenizer and"
            raise ModelError(
                f"{type(self.hf).__name__} {why} gives no character offsets of the text, which words and templates "
                "need: use a model with a fast tokenizer (tokenizer.json), or texts without prompt, template and words"
            )
        found: list[Spelled] = []
        for i in range(0, len(texts), BATCH):  # an encoding is many times as large as what is kept of it
            some = list(texts[i : i + BATCH])
            encodings = copy.encode_batch(some, add_special_tokens=False)
            found += [Spelled(e.ids, self._offsets(e, t, now)) for e, t in zip(encodings, some, strict=True)]
        return found

    def _offsets(self, encoding: Encoding, text: str, now: _Made) -> list[Offset]:
        """Offsets, looked through for blank markers only where a token may be one."""
        blank, unknown = now.blank, self.hf.unk_token
        for i in set(encoding.ids):
            if i not in blank:  # a token that is not known may stand for anything
                token = now.copy.id_to_token(i)
                blank[i] = token is None or not token.strip(BLANKS) or token == unknown
            if blank[i]:
                return _honest(encoding, text)
        return list(encoding.offsets)

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
        """The longest input in tokens, special tokens included, or None where the tokenizer does not say."""
        length = int(self.hf.model_max_length)
        return length if length < 10**9 else None

    @property
    def description(self) -> str:
        """A hash of all that the tokenizer does, wherever it was loaded from."""
        now, known = self._now(), self._description
        if known is not None and known[0] is now:
            return known[1]
        if now.copy is not None:
            text = now.copy.to_str() + ("split_special_tokens" if now.copy.encode_special_tokens else "")
        else:
            text = repr((type(self.hf).__name__, now.prefix, now.suffix, sorted(self.hf.get_vocab().items())))
        made = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        self._description = now, made
        return made

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """The tokens' own spelling, for a person to read."""
        return [str(t) for t in self.hf.convert_ids_to_tokens(list(ids))]


def _state(hf: Any, live: Any, one_by_one: bool) -> tuple[object, ...]:
    """All of a tokenizer that can change after it was loaded, without its vocabulary's own spelling."""
    split = bool(getattr(hf, "split_special_tokens", False))
    if live is None:
        return split, len(getattr(hf, "added_tokens_decoder", ()))
    added = live.get_added_tokens_decoder() if one_by_one else {}
    flags = [(i, t.lstrip, t.rstrip, t.single_word, t.normalized, t.special) for i, t in added.items()]
    parts = (live.normalizer, live.pre_tokenizer, live.post_processor)
    model = live.model
    options = [type(model), *(getattr(model, name, None) for name in OPTIONS)]
    return split, live.get_vocab_size(with_added_tokens=True), flags, *map(str, parts), options


def _make(hf: Any) -> _Made:
    """A copy of a tokenizer's backend, where there is one that gives the same ids.

    Raises:
        ModelError: it gives other ids each time, or its special tokens do not stand around a text.
    """
    live = getattr(hf, "backend_tokenizer", None)
    few = live is not None and len(live.get_added_tokens_decoder()) <= FLAGS
    state = _state(hf, live, few)
    top = max([len(hf) - 1, *hf.added_tokens_decoder]) if hasattr(hf, "added_tokens_decoder") else -1
    prefix, suffix = _affixes(hf)
    if live is not None and set(_bare(hf, TORTURE)) <= set(hf.all_special_ids):
        raise ModelError(
            f"the tokenizer, a {type(hf).__name__} of {len(hf)} tokens, knows no letter of any script: its files are "
            "missing; put tokenizer.json and tokenizer_config.json beside the model"
        )
    if live is None:
        return _Made(None, state, few, None, prefix, suffix, top)
    if dropout := getattr(live.model, "dropout", None):
        raise ModelError(
            f"the tokenizer leaves out merges at random (dropout={dropout}), so that a text has other ids each time: "
            "set tokenizer.backend_tokenizer.model.dropout = None"
        )
    copy = Backend.from_str(live.to_str())
    copy.no_padding()
    copy.no_truncation()
    copy.encode_special_tokens = bool(hf.split_special_tokens)  # no part of what to_str writes
    same = all(
        _tried(lambda line: list(copy.encode(line, add_special_tokens=False).ids), line)
        == _tried(lambda line: _bare(hf, line), line)
        for line in _torture(hf)
    )
    return _Made(live, state, few, copy if same else None, prefix, suffix, top)


def _torture(hf: Any) -> Iterator[str]:
    """Lines that show a difference: every script, and the spelling of every added token alone and inside a word."""
    yield TORTURE
    added = sorted({str(t) for t in hf.added_tokens_decoder.values() if "\0" not in str(t)})
    for i in range(0, len(added), 16):
        yield " ".join(f"{t} a{t}b {t.upper()}" for t in added[i : i + 16])


def _tried(spell: Callable[[str], list[int]], line: str) -> list[int] | None:
    """The ids of a line; None where it has a letter that the tokenizer refuses."""
    try:
        return spell(line)
    except Exception:  # the backend raises nothing more special
        return None


def _bare(hf: Any, text: str) -> list[int]:
    return list(hf(text, add_special_tokens=False)["input_ids"])


def _affixes(hf: Any) -> tuple[list[int], list[int]]:
    """The special tokens that a tokenizer puts in front of and behind one text."""
    for probe in ("a", "1", ".", "一"):
        bare, full = _bare(hf, probe), list(hf(probe, add_special_tokens=True)["input_ids"])
        if not bare:  # it drops what it does not know, which says nothing of where a text stands
            continue
        for start in range(len(full) - len(bare) + 1):
            if full[start : start + len(bare)] == bare:
                return full[:start], full[start + len(bare) :]
        break
    raise ModelError(
        f"the tokenizer writes {probe!r} as {full} with special tokens and {bare} without: "
        "its special tokens do not stand around the text; use another tokenizer"
    )


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
