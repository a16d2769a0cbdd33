"""How a text is written for the model: a template, copies, special tokens. Texts in, `Writing`s out."""

from __future__ import annotations

import numbers
import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .errors import InputError, MethodError
from .tokens import Offset, Spelled, Tokenizer
from .writing import Segment, Span, Writing

Text = str | Sequence[int]

TEXT = "text"
MASK = "[MASK]"


@dataclass(frozen=True)
class Layout:
    """How a text is written.

    Args:
        template: a string with ``{text}`` (once or more) and perhaps ``{condition}``; None is the text alone.
            ``[MASK]`` becomes the tokenizer's own mask token.
        copies: how often the text stands there.
        join: "ids" tokenizes each part by itself and joins the ids, "text" tokenizes the whole string. None
            means "text" for a template and "ids" without one.
        separator: what stands between two copies, as text.
        truncate: cut the text "before" the repetition (each copy loses the same tail), the copies "after" it, or
            the "whole" sequence with the special tokens behind it (cqdyf099/ReBA@6448aa9 does so).
        add_special_tokens: whether the tokenizer's special tokens are fed, once around the whole.
        punctuate: clean the text up first: "stop" ends it with a full stop (kongds/Prompt-BERT,
            evaluation.py:193-202), "all" besides writes ' for " and ends a question with a full stop
            (kongds/scaling_sentemb, evaluation.py:191-223).
        chunk: write the text in pieces of this many tokens, each repeated by itself (ReBA, section 6).

    >>> Layout(template="In one word, {text} is").parts
    ['In one word, ', None, ' is']
    """

    template: str | None = None
    copies: int = 1
    join: Literal["ids", "text"] | None = None
    separator: str = ""
    truncate: Literal["before", "after", "whole"] = "before"
    add_special_tokens: bool = True
    punctuate: Literal["stop", "all"] | None = None
    chunk: int | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be written."""
        for name in ("copies", "chunk"):
            value = getattr(self, name)
            if value is None and name == "chunk":
                continue
            if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < 1:
                raise MethodError(f"{name}={value!r}: give a whole number of at least 1")
            object.__setattr__(self, name, int(value))
        if self.join not in (None, "ids", "text"):
            raise MethodError(f"join={self.join!r}: choose 'ids' or 'text'")
        if self.truncate not in ("before", "after", "whole"):
            raise MethodError(f"truncate={self.truncate!r}: choose 'before', 'after' or 'whole'")
        if self.punctuate not in (None, "stop", "all"):
            raise MethodError(f"punctuate={self.punctuate!r}: choose 'stop' or 'all'")
        if self.chunk is not None and (self.template is not None or self.join == "text" or self.separator):
            raise MethodError(f"chunk={self.chunk} repeats token ids: it takes no template, separator or join='text'")
        if len(self.fields - {TEXT}) and self.fields != {TEXT, "condition"}:
            raise MethodError(
                f"template {self.template!r} holds {sorted(self.fields)}: only {{text}} and {{condition}}"
            )
        if TEXT not in self.fields:
            raise MethodError(f"template {self.template!r} has no {{text}}: write where the text goes")
        times = self.parts.count(None)
        if self.template is not None and times > 1 and self.copies not in (1, times):
            raise MethodError(f"the template holds {{text}} {times} times: copies={self.copies} contradicts it")

    @property
    def fields(self) -> set[str]:
        """The placeholders of the template."""
        try:
            return {f for _, f, _, _ in string.Formatter().parse(self.template or "{text}") if f is not None}
        except ValueError as e:
            raise MethodError(f"template {self.template!r}: {e}; write a literal brace twice, {{{{ or }}}}") from None

    @property
    def parts(self) -> list[str | None]:
        """The literals in order, None where a copy of the text goes; ``{condition}`` stays in its literal."""
        parts: list[str | None] = [""]
        for literal, field, _, _ in string.Formatter().parse(self.template or "{text}"):
            parts[-1] = f"{parts[-1]}{literal}"
            if field == TEXT:
                parts += [None, ""]
            elif field is not None:
                parts[-1] = f"{parts[-1]}\0"  # a NUL cannot be in a text: it marks the condition
        if parts.count(None) == 1 and self.copies > 1:
            at = parts.index(None)
            parts[at : at + 1] = [None, *[p for _ in range(self.copies - 1) for p in (self.separator, None)]]
        return [p for p in parts if p != ""]

    @property
    def total_copies(self) -> int:
        """How often the text stands in the writing."""
        return self.parts.count(None)

    @property
    def plain(self) -> bool:
        """Whether the writing is nothing but special tokens and copies of the ids."""
        return self.template is None and self.join != "text" and not self.separator and self.chunk is None

    def write(
        self,
        texts: Sequence[Text],
        tokenizer: Tokenizer,
        max_length: int | None = None,
        *,
        conditions: Sequence[str] | None = None,
        offsets: bool = False,
    ) -> list[Writing]:
        """Write each text.

        Args:
            texts: strings, or lists of content token ids.
            tokenizer: the model's.
            max_length: tokens at most in one segment, special tokens and template included.
            conditions: one per text, for a template with ``{condition}``.
            offsets: keep character offsets, for words.

        Returns:
            One `Writing` per text, in order.

        Raises:
            InputError: a text with no room left by its template; a condition missing or not asked for.
            NoMaskToken: ``[MASK]`` in the template, none in the tokenizer.
        """
        self._check_conditions(texts, conditions)
        special = len(tokenizer.prefix) + len(tokenizer.suffix) if self.add_special_tokens else 0
        if max_length is not None and max_length <= special:
            raise InputError(f"max_length={max_length} leaves no room for a token beside {special} special ones")
        lead = self._lead(tokenizer)
        whole = self.join == "text" or (self.join is None and self.template is not None)
        strings = [i for i, t in enumerate(texts) if isinstance(t, str)]
        spelled: dict[int, Spelled] = {}
        if not whole or len(strings) < len(texts):
            spelled = self._spell(texts, strings if not whole else [], tokenizer, offsets)
        written = []
        for i, text in enumerate(texts):
            parts = self._literals(tokenizer, conditions[i] if conditions is not None else None)
            if i in spelled:
                written.append(self._join(spelled[i], parts, tokenizer, max_length, offsets))
            else:
                written.append(self._whole(self._clean(str(text)), parts, tokenizer, max_length, offsets))
        return [w.led(lead) for w in written] if lead else written

    def _check_conditions(self, texts: Sequence[Text], conditions: Sequence[str] | None) -> None:
        wanted = "condition" in self.fields
        if wanted and conditions is None:
            raise InputError("the template holds {condition}: pass conditions=, one per text")
        if not wanted and conditions is not None:
            raise InputError("conditions were given, but the template holds no {condition}")
        if conditions is not None and len(conditions) != len(texts):
            raise InputError(f"{len(conditions)} conditions for {len(texts)} texts: give one per text")

    def _clean(self, text: str) -> str:
        if self.punctuate is None or not text:
            return text
        text = text if text[-1] in ".?\"'" else text + "."
        if self.punctuate == "stop":
            return text
        text = text.replace('"', "'")
        return text[:-1] + "." if text[-1] == "?" else text

    def _spell(
        self, texts: Sequence[Text], strings: Sequence[int], tokenizer: Tokenizer, offsets: bool
    ) -> dict[int, Spelled]:
        """Ids of every text that is tokenized by itself; where offsets are not wanted they are left out."""
        plain = [self._clean(str(texts[i])) for i in strings]
        found = tokenizer.spell(plain) if offsets else [Spelled(ids, []) for ids in tokenizer.ids(plain)]
        spelled = dict(zip(strings, found, strict=True))
        for i, text in enumerate(texts):
            if not isinstance(text, str):
                spelled[i] = Spelled(list(text), [(j, j + 1) for j in range(len(text))] if offsets else [])
        return spelled

    def _literals(self, tokenizer: Tokenizer, condition: str | None) -> list[str | None]:
        parts = self.parts
        if any(p and MASK in p for p in parts):
            mask = tokenizer.tokens([tokenizer.mask_id])[0]
            parts = [p.replace(MASK, mask) if p else p for p in parts]
        return parts if condition is None else [p.replace("\0", condition) if p else p for p in parts]

    def _lead(self, tokenizer: Tokenizer) -> list[int]:
        """The tokens that stand in front of every text, but for those that the text's first letter may change."""
        front = (self._literals(tokenizer, None)[0] or "").split("\0")[0]
        prefix = tokenizer.prefix if self.add_special_tokens else []
        if not front:
            return []
        bare, followed = tokenizer.ids([front, front + "a"])
        same = next((i for i, token in enumerate(bare) if [token] != followed[i : i + 1]), len(bare))
        return prefix + bare[:same]

    def _join(
        self, text: Spelled, parts: list[str | None], tokenizer: Tokenizer, max_length: int | None, offsets: bool
    ) -> Writing:
        """Join parts that were tokenized one by one."""
        literals = tokenizer.ids([p for p in parts if p is not None]) if any(parts) else []
        prefix, suffix = (tokenizer.prefix, tokenizer.suffix) if self.add_special_tokens else ([], [])
        fixed = len(prefix) + len(suffix) + sum(map(len, literals))
        copies, ids, kept = parts.count(None), text.ids, len(text.ids)
        if self.chunk is not None:
            return self._chunks(text, tokenizer, max_length, offsets)
        if max_length is not None and self.truncate == "before":
            kept = min(kept, _room(max_length - fixed, copies, max_length))
            ids = ids[:kept]
        body, spans, rest = list(prefix), [], iter(literals)
        for part in parts:
            if part is None:
                spans.append((len(body), len(body) + len(ids)))
                body += ids
            else:
                body += next(rest)
        if max_length is not None and len(body) + len(suffix) > max_length:
            if self.truncate == "whole":
                suffix = suffix[: max(max_length - len(body), 0)]
            body = body[: max_length - len(suffix)]
            spans = [(min(a, len(body)), min(b, len(body))) for a, b in spans]
            kept = spans[0][1] - spans[0][0]
        segment = Segment(body + suffix, tuple(spans), (len(prefix), len(suffix)))
        seen = tuple(tuple(text.offsets[: b - a]) for a, b in spans) if offsets else ()
        return Writing((segment,), seen, kept, len(text.ids))

    def _whole(
        self, text: str, parts: list[str | None], tokenizer: Tokenizer, max_length: int | None, offsets: bool
    ) -> Writing:
        """Tokenize the whole string; which tokens are a copy's is read off the character offsets."""
        prefix, suffix = (tokenizer.prefix, tokenizer.suffix) if self.add_special_tokens else ([], [])
        room = None if max_length is None else max_length - len(prefix) - len(suffix)
        cut, total = text, None
        bare = parts[-1] is None and parts.count(None) == 1  # nothing behind the text: its last tokens are dropped
        while True:
            ranges, at = [], 0
            for part in parts:
                at += len(cut if part is None else part)
                if part is None:
                    ranges.append((at - len(cut), at))
            spelled = tokenizer.spell(["".join(cut if p is None else p for p in parts)])[0]
            spans = [_tokens_of(spelled.offsets, r) for r in ranges]
            total = total if total is not None else spans[0][1] - spans[0][0]
            over = 0 if room is None else len(spelled.ids) - room
            if over <= 0 or self.truncate != "before" or (bare and room is not None and spans[0][0] < room):
                break
            if not cut:
                raise InputError(
                    f"the template alone is {len(spelled.ids)} tokens, max_length={max_length} leaves {room}"
                )
            keep = max(spans[0][1] - spans[0][0] - -(-over // len(spans)), 0)
            last = spelled.offsets[spans[0][0] + keep][0] if spans[0][0] + keep < len(spelled.ids) else ranges[0][0]
            cut = cut[: min(max(last - ranges[0][0], 0), len(cut) - 1)]
        if room is not None and over > 0 and self.truncate == "whole":
            suffix = suffix[: max(room + len(suffix) - len(spelled.ids), 0)]
            room = max_length - len(prefix) - len(suffix) if max_length is not None else None
        ids = prefix + spelled.ids[:room] + suffix
        end = len(ids) - len(suffix)
        shifted = [(min(a + len(prefix), end), min(b + len(prefix), end)) for a, b in spans]
        segment = Segment(ids, tuple(shifted), (len(prefix), len(suffix)))
        seen = [
            tuple((s - r[0], e - r[0]) for s, e in spelled.offsets[a - len(prefix) : b - len(prefix)])
            for (a, b), r in zip(shifted, ranges, strict=True)
        ]
        return Writing((segment,), tuple(seen) if offsets else (), shifted[0][1] - shifted[0][0], total)

    def _chunks(self, text: Spelled, tokenizer: Tokenizer, max_length: int | None, offsets: bool) -> Writing:
        """The full pass, then each chunk repeated by itself (ReBA, section 6)."""
        assert self.chunk is not None
        prefix, suffix = (tokenizer.prefix, tokenizer.suffix) if self.add_special_tokens else ([], [])
        fixed, kept, size = len(prefix) + len(suffix), len(text.ids), self.chunk
        if max_length is not None:
            kept = min(kept, _room(max_length - fixed, 1, max_length))
            size = min(size, _room(max_length - fixed, self.copies, max_length))
        special = (len(prefix), len(suffix))
        full = Segment(prefix + text.ids[:kept] + suffix, ((len(prefix), len(prefix) + kept),), special, pooled=False)
        chunks = []
        for first in range(0, kept, size):
            ids = text.ids[first : min(first + size, kept)]
            spans = [(len(prefix) + c * len(ids), len(prefix) + (c + 1) * len(ids)) for c in range(self.copies)]
            body, part, final = prefix + ids * self.copies + suffix, len(ids) / kept, first + size >= kept
            chunks.append(Segment(body, tuple(spans), special, first, part=part, final=final))
        seen = (tuple(text.offsets[:kept]),) * self.copies if offsets else ()
        return Writing((full, *chunks), seen, kept, len(text.ids))


def _room(tokens: int, copies: int, max_length: int) -> int:
    """Content tokens that each copy may have."""
    if tokens < copies:
        raise InputError(f"max_length={max_length} leaves no room for {copies} copies of the text beside its template")
    return tokens // copies


def _tokens_of(offsets: Sequence[Offset], characters: Span) -> Span:
    """The half-open span of tokens that overlap a range of characters."""
    at = [i for i, (s, e) in enumerate(offsets) if s < characters[1] and e > characters[0]]
    return (at[0], at[-1] + 1) if at else (0, 0)
