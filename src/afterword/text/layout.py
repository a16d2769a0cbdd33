"""The input format of texts: template, copies, special tokens, truncation. From texts to `TokenizedText`s."""

from __future__ import annotations

import numbers
import re
import string
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest
from typing import Literal

from ..errors import InputError, MethodError
from ..spelling import ADDED, check_fields
from .chat import ANSWER, USER, as_text, in_turns
from .placeholder import PLACEHOLDER, Placeholder, placed, with_placeholders
from .punctuation import Punctuate, punctuated
from .segments import Segment, TokenizedText
from .spans import Parts, one_copy, ranges_of, room_of, tokens_of
from .tokenizer import Spelled, Tokenizer, check_text

Text = str | Sequence[int]

TEXT = "text"
MASK = "[MASK]"


@dataclass(frozen=True)
class Layout:
    """How a text is turned into the model's input.

    Args:
        template: a string with ``{text}`` (once or more) and optionally ``{condition}``; None is the text alone.
            ``[MASK]`` becomes the tokenizer's own mask token, ``<PST>`` the placeholder of Token Prepending.
        copies: how often the text occurs in the input.
        join: "ids" tokenizes each part by itself and joins the ids, "text" tokenizes the whole string, "first"
            tokenizes the string with one copy, whose ids the other copies repeat (as for a prompt in front of
            copies). None means "text" for a template and "ids" without one.
        separator: text between two copies.
        truncate: cut the text "before" the repetition (each copy loses the same tail), the copies "after" it, or
            the "whole" sequence with the special tokens behind it (cqdyf099/ReBA@6448aa9 does so).
        add_special_tokens: add the tokenizer's special tokens, once around the whole input.
        punctuate: change the text's punctuation as the authors' released code does: "stop" or "all", see `punctuated`.
        chunk: split the text into chunks of this many tokens and repeat each by itself (ReBA, section 6).
        chat: put the template into the user's turn of the tokenizer's own chat template, which brings its special
            tokens; or into a string with ``{text}``, around template and prompt. A text keeps its white space, also
            where the chat template trims the turn.

    >>> Layout(template="In one word, {text} is").parts
    ('In one word, ', None, ' is')
    """

    template: str | None = None
    copies: int = 1
    join: Literal["ids", "text", "first"] | None = None
    separator: str = ""
    truncate: Literal["before", "after", "whole"] = "before"
    add_special_tokens: bool = True
    punctuate: Punctuate | None = None
    chunk: int | None = None
    chat: bool | str = field(default=False, metadata=ADDED)

    def __post_init__(self) -> None:
        """Validate the options."""
        for name in ("copies", "chunk"):
            value = getattr(self, name)
            if value is None and name == "chunk":
                continue
            if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < 1:
                raise MethodError(f"{name}={value!r}: give a whole number of at least 1")
            object.__setattr__(self, name, int(value))
        if self.join not in (None, "ids", "text", "first"):
            raise MethodError(f"join={self.join!r}: choose 'ids', 'text' or 'first'")
        if self.truncate not in ("before", "after", "whole"):
            raise MethodError(f"truncate={self.truncate!r}: choose 'before', 'after' or 'whole'")
        if self.punctuate not in (None, "stop", "all"):
            raise MethodError(f"punctuate={self.punctuate!r}: choose 'stop' or 'all'")
        for name in ("template", "separator"):
            try:
                check_text(getattr(self, name) or "", name)
            except InputError as e:
                raise MethodError(str(e)) from None
        if len(self.fields - {TEXT}) and self.fields != {TEXT, "condition"}:
            raise MethodError(
                f"template {self.template!r} holds {sorted(self.fields)}: only {{text}} and {{condition}}"
            )
        if TEXT not in self.fields:
            raise MethodError(f"template {self.template!r} has no {{text}}: write where the text goes")
        times = [field for _, field, _, _ in string.Formatter().parse(self.template or "{text}")].count(TEXT)
        if self.template is not None and times > 1 and self.copies not in (1, times):
            raise MethodError(f"the template holds {{text}} {times} times: copies={self.copies} contradicts it")
        if self.chat and self.template is None:
            raise MethodError("chat puts a template into the user's turn: give one, at least '{text}'")
        turns = re.findall(r"\[USER\]|\[ANSWER\]", self.template or "")
        if turns and self.chat is not True:
            raise MethodError(f"template {self.template!r} is for the turns of a chat ({turns[0]}): give chat=True")
        if turns != sorted(set(turns), reverse=True):
            raise MethodError(f"template {self.template!r}: write {USER} at most once, then {ANSWER} at most once")
        check_fields(self)
        self._check_effect(times)

    def check(self, tokenizer: Tokenizer) -> None:
        """Check that a model's tokenizer can write the layout's chat; raises MethodError."""
        if self.chat:
            self._literals(tokenizer, None)

    def _check_effect(self, times: int) -> None:
        """Refuse options that would have no effect.

        join="text" and truncate="after" are accepted with one copy, where they change nothing: the papers' sweeps
        over copies=1, 2, 3 use them.
        """
        repeats = times == 1 and self.copies > 1
        if self.chunk is not None:
            given = {"template": self.template, "join": self.join == "text" or self.join == "first",
                     "separator": self.separator, "truncate": self.truncate != "before"}  # fmt: skip
            if names := [name for name, value in given.items() if value]:
                raise MethodError(f"chunk={self.chunk} repeats the ids of each piece: it takes no {names[0]}")
        if self.separator and not repeats:
            why = f"the template holds {{text}} {times} times" if times > 1 else "copies=1"
            raise MethodError(f"separator={self.separator!r} goes between copies, and {why}: leave it out")
        if self.join == "first" and not repeats:
            raise MethodError("join='first' repeats one copy's ids: give copies=2 or more, and {text} once")

    @cached_property
    def fields(self) -> frozenset[str]:
        """The placeholders of the template."""
        try:
            return frozenset(f for _, f, _, _ in string.Formatter().parse(self.template or "{text}") if f is not None)
        except ValueError as e:
            raise MethodError(f"template {self.template!r}: {e}; write a literal brace twice, {{{{ or }}}}") from None

    @cached_property
    def parts(self) -> tuple[str | None, ...]:
        """The template's literals in order, with None for each copy of the text; ``{condition}`` is in its literal."""
        parts: list[str | None] = [""]
        for literal, name, _, _ in string.Formatter().parse(self.template or "{text}"):
            parts[-1] = f"{parts[-1]}{literal}"
            if name == TEXT:
                parts += [None, ""]
            elif name is not None:
                parts[-1] = f"{parts[-1]}\0"  # marks the condition: no text may contain a NUL
        if parts.count(None) == 1 and self.copies > 1:
            at = parts.index(None)
            parts[at : at + 1] = [None, *[p for _ in range(self.copies - 1) for p in (self.separator, None)]]
        return tuple(p for p in parts if p != "")

    @property
    def total_copies(self) -> int:
        """The number of copies of the text in the input."""
        return self.parts.count(None)

    @property
    def slots(self) -> int:
        """The number of placeholders in the template."""
        return (self.template or "").count(PLACEHOLDER)

    @property
    def plain(self) -> bool:
        """Whether the input consists of special tokens and copies of the text's ids only."""
        return self.template is None and self.join != "text" and not self.separator and self.chunk is None

    def write(
        self,
        texts: Sequence[Text],
        tokenizer: Tokenizer,
        max_length: int | None = None,
        *,
        conditions: Sequence[str] | None = None,
        offsets: bool = False,
    ) -> list[TokenizedText]:
        """Put each text into the layout and tokenize it.

        Args:
            texts: strings, or lists of token ids without special tokens.
            tokenizer: the model's.
            max_length: the most tokens of one segment, special tokens and template included.
            conditions: one per text, for a template with ``{condition}``.
            offsets: keep character offsets, for words.

        Returns:
            One `TokenizedText` per text, in order.

        Raises:
            InputError: a template leaves no room for the text; a condition is missing, or the template has none.
            NoMaskToken: the template has ``[MASK]``, and the tokenizer has no mask token.
        """
        self._check_conditions(texts, conditions)
        around = self.add_special_tokens and self.chat is not True  # a chat template brings its own
        prefix, suffix = (tokenizer.prefix, tokenizer.suffix) if around else ([], [])
        special = len(prefix) + len(suffix)
        if max_length is not None and max_length <= special:
            raise InputError(f"max_length={max_length} leaves no room for a token beside {special} special ones")
        writer = _Writer(self, tokenizer, prefix, suffix, max_length, offsets)
        front = self._literals(tokenizer, None)
        parts = [front] * len(texts) if conditions is None else [self._literals(tokenizer, c) for c in conditions]
        shared_prefix = writer.shared_prefix(front)
        joint = self.join in ("text", "first") or (self.join is None and self.template is not None)
        strings = [i for i, t in enumerate(texts) if isinstance(t, str)]
        plain = [str(texts[i]) for i in strings]
        if self.punctuate is not None:
            plain = [punctuated(text, self.punctuate) for text in plain]
        tokenize = writer.joint if joint else writer.separate
        written = dict(zip(strings, tokenize(plain, [parts[i] for i in strings]), strict=True))
        for i, text in enumerate(texts):
            if not isinstance(text, str):
                places = [(j, j + 1) for j in range(len(text))] if offsets else []
                written[i] = writer.join(Spelled(list(text), places), writer.pieces(parts[i]), parts[i])
        return [
            written[i].with_shared_prefix(shared_prefix) if shared_prefix else written[i] for i in range(len(texts))
        ]

    def _check_conditions(self, texts: Sequence[Text], conditions: Sequence[str] | None) -> None:
        wanted = "condition" in self.fields
        if wanted and conditions is None:
            raise InputError("the template holds {condition}: pass conditions=, one per text")
        if not wanted and conditions is not None:
            raise InputError("conditions were given, but the template holds no {condition}")
        if conditions is not None and len(conditions) != len(texts):
            raise InputError(f"{len(conditions)} conditions for {len(texts)} texts: give one per text")

    def _literals(self, tokenizer: Tokenizer, condition: str | None) -> list[str | None]:
        parts = list(self.parts)
        if any(p and MASK in p for p in parts):
            mask = tokenizer.tokens([tokenizer.mask_id])[0]
            parts = [p.replace(MASK, mask) if p else p for p in parts]
        if self.chat:
            parts = in_turns(parts, self.chat, tokenizer, condition)
        parts = with_placeholders(parts, tokenizer)
        return parts if condition is None else [p.replace("\0", condition) if p and "\0" in p else p for p in parts]


class _Writer:
    """Turns texts into tokens by a layout, with a tokenizer, its special tokens and a maximum length."""

    def __init__(
        self, layout: Layout, tokenizer: Tokenizer, prefix: list[int], suffix: list[int], length: int | None,
        offsets: bool,
    ) -> None:  # fmt: skip
        self.layout, self.tokenizer, self.length, self.offsets = layout, tokenizer, length, offsets
        self.prefix, self.suffix = prefix, suffix
        self.special = (len(prefix), len(suffix))
        self._pieces: dict[tuple[str | None, ...], list[list[int] | None]] = {}

    def shared_prefix(self, parts: Parts) -> list[int]:
        """The shared prefix: all tokens in front of the text, less those that its first letter may change."""
        front = (parts[0] or "").split("\0")[0]
        if not front:
            return []
        bare, followed = self.tokenizer.ids([front, front + "a"])
        same = next((i for i, token in enumerate(bare) if [token] != followed[i : i + 1]), len(bare))
        return self.prefix + bare[:same]

    def pieces(self, parts: Parts) -> list[list[int] | None]:
        """The token ids of each literal, tokenized by itself."""
        key = tuple(parts)
        if key not in self._pieces:
            ids = iter(self.tokenizer.ids([p for p in parts if p is not None]) if any(parts) else [])
            self._pieces[key] = [None if p is None else next(ids) for p in parts]
        return self._pieces[key]

    def separate(self, texts: Sequence[str], parts: Sequence[Parts]) -> list[TokenizedText]:
        """Tokenize texts by themselves, with offsets only where they are needed."""
        spell = self.tokenizer.spell if self.offsets else lambda t: [Spelled(ids, []) for ids in self.tokenizer.ids(t)]
        return [self.join(s, self.pieces(p), p) for s, p in zip(spell(texts), parts, strict=True)]

    def joint(self, texts: Sequence[str], parts: Sequence[Parts]) -> list[TokenizedText]:
        """Tokenize texts together with the template around them, all in one call."""
        first = self.layout.join == "first"
        if first:
            parts = [one_copy(p) for p in parts]
        strings = ["".join(text if q is None else q for q in p) for text, p in zip(texts, parts, strict=True)]
        spelled = self.tokenizer.spell(strings)
        if self.layout.chat is True:
            ranges = map(ranges_of, texts, parts)
            spelled = [as_text(*each, self.tokenizer) for each in zip(spelled, strings, ranges, strict=True)]
        write = self.repeated if first else self.whole
        return [write(t, p, s) for t, p, s in zip(texts, parts, spelled, strict=True)]

    def repeated(self, text: str, parts: Parts, spelled: Spelled) -> TokenizedText:
        """Repeat the ids that one copy of the text has in the whole string."""
        start, end = ranges_of(text, parts)[0]
        a, b = tokens_of(spelled.offsets, (start, end))
        own = Spelled(spelled.ids[a:b], [(s - start, e - start) for s, e in spelled.offsets[a:b]])
        middle = self.pieces([None, self.layout.separator or None])[1:] if self.layout.separator else []
        copies: list[list[int] | None] = [None, *[*middle, None] * (self.layout.copies - 1)]
        return self.join(own, [spelled.ids[:a], *copies, spelled.ids[b:]])

    def join(self, text: Spelled, pieces: Sequence[list[int] | None], parts: Parts = ()) -> TokenizedText:
        """Join token ids: each piece is the ids of a literal (of `parts`), or None for a copy of the text's ids."""
        layout, length, suffix = self.layout, self.length, self.suffix
        if layout.chunk is not None:
            return self.chunks(text)
        fixed, copies = sum(self.special) + sum(len(p) for p in pieces if p), pieces.count(None)
        ids, kept = text.ids, len(text.ids)
        if length is not None and layout.truncate == "before":
            kept = min(kept, room_of(length - fixed, copies, length))
            ids = ids[:kept]
        body, spans, marks = list(self.prefix), [], []
        for piece, part in zip_longest(pieces, parts):
            own = ids if piece is None else piece
            if piece is None:
                spans.append((len(body), len(body) + len(ids)))
            if isinstance(part, Placeholder):
                marks.append((len(body), len(body) + len(own)))
            body += own
        if length is not None and len(body) + len(suffix) > length:
            if layout.truncate == "whole":
                suffix = suffix[: max(length - len(body), 0)]
            body = body[: length - len(suffix)]
            spans = [(min(a, len(body)), min(b, len(body))) for a, b in spans]
            kept = spans[0][1] - spans[0][0]
        slots = placed(marks, spans, len(body))
        segment = Segment(body + suffix, tuple(spans), (len(self.prefix), len(suffix)), slots=slots)
        offsets = tuple(tuple(text.offsets[: b - a]) for a, b in spans) if self.offsets else ()
        return TokenizedText((segment,), offsets, kept, len(text.ids))

    def whole(self, text: str, parts: Parts, spelled: Spelled) -> TokenizedText:
        """The tokens of the whole string; character offsets say which of them belong to a copy of the text.

        If there are too many, the text is cut and the string is tokenized again.
        """
        layout, prefix, suffix = self.layout, self.prefix, self.suffix
        room = None if self.length is None else self.length - sum(self.special)
        cut, total = text, None
        last = parts[-1] is None and parts.count(None) == 1  # nothing follows the text: its last tokens are dropped
        while True:
            ranges = ranges_of(cut, parts)
            spans = [tokens_of(spelled.offsets, r) for r in ranges]
            total = total if total is not None else spans[0][1] - spans[0][0]
            over = 0 if room is None else len(spelled.ids) - room
            if over <= 0 or layout.truncate != "before" or (last and room is not None and spans[0][0] < room):
                break
            if not cut:
                raise InputError(
                    f"the template alone is {len(spelled.ids)} tokens, max_length={self.length} leaves {room}"
                )
            keep = max(spans[0][1] - spans[0][0] - -(-over // len(spans)), 0)
            end = spelled.offsets[spans[0][0] + keep][0] if spans[0][0] + keep < len(spelled.ids) else ranges[0][0]
            cut = cut[: min(max(end - ranges[0][0], 0), len(cut) - 1)]
            string = "".join(cut if p is None else p for p in parts)
            spelled = self.tokenizer.spell([string])[0]
            if layout.chat is True:
                spelled = as_text(spelled, string, ranges_of(cut, parts), self.tokenizer)
        if room is not None and over > 0 and layout.truncate == "whole":
            suffix = suffix[: max(room + len(suffix) - len(spelled.ids), 0)]
            room = self.length - len(prefix) - len(suffix) if self.length is not None else None
        ids = prefix + spelled.ids[:room] + suffix
        end = len(ids) - len(suffix)
        shifted = [(min(a + len(prefix), end), min(b + len(prefix), end)) for a, b in spans]
        marks = [tokens_of(spelled.offsets, r) for r in ranges_of(cut, parts, Placeholder)]
        slots = placed([(a + len(prefix), b + len(prefix)) for a, b in marks], shifted, end)
        segment = Segment(ids, tuple(shifted), (len(prefix), len(suffix)), slots=slots)
        offsets = [
            tuple((s - r[0], e - r[0]) for s, e in spelled.offsets[a - len(prefix) : b - len(prefix)])
            for (a, b), r in zip(shifted, ranges, strict=True)
            if self.offsets
        ]
        return TokenizedText((segment,), tuple(offsets), shifted[0][1] - shifted[0][0], total)

    def chunks(self, text: Spelled) -> TokenizedText:
        """The full pass over the text, then each chunk, repeated by itself (ReBA, section 6)."""
        copies, size = self.layout.copies, self.layout.chunk
        assert size is not None
        prefix, suffix, kept = self.prefix, self.suffix, len(text.ids)
        if self.length is not None:
            room = self.length - sum(self.special)
            kept = min(kept, room_of(room, 1, self.length))
            size = min(size, room_of(room, copies, self.length))
        start = len(prefix)
        full = Segment(prefix + text.ids[:kept] + suffix, ((start, start + kept),), self.special, pooled=False)
        chunks = []
        for first in range(0, kept, size):
            ids = text.ids[first : min(first + size, kept)]
            spans = [(start + c * len(ids), start + (c + 1) * len(ids)) for c in range(copies)]
            body, part, final = prefix + ids * copies + suffix, len(ids) / kept, first + size >= kept
            chunks.append(Segment(body, tuple(spans), self.special, first, part=part, final=final))
        offsets = (tuple(text.offsets[:kept]),) * copies if self.offsets else ()
        return TokenizedText((full, *chunks), offsets, kept, len(text.ids))
