"""Chat models: a template in the turns of a chat, and texts whose marks are spelled as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import InputError, MethodError
from .tokenizer import Spelled, Tokenizer

USER, ANSWER = "[USER]", "[ANSWER]"
"""Marks in a template: the system's message is before `USER`, the begun answer after `ANSWER`."""

HOLE = "\ue000"  # the text, while a chat template is run: a character of the private use area

DAY = "26 Jul 2024"
TODAY = (
    "{%- macro strftime_now(form) -%}{{ form | replace('%d', '26') | replace('%m', '07') | replace('%b', 'Jul') "
    "| replace('%B', 'July') | replace('%Y', '2024') | replace('%A', 'Friday') }}{%- endmacro -%}"
)
"""The date for chat templates that write today's, so that vectors do not change from day to day. It is Llama 3's."""

Parts = list[str | None]


def in_turns(parts: Parts, chat: bool | str, tokenizer: Tokenizer, condition: str | None = None) -> Parts:
    """A template's literals with the turns of a chat around them, None for each copy of the text.

    Args:
        parts: the template's literals, None for each copy of the text.
        chat: True = the tokenizer's chat template, with the prompt for an answer; or a string with {text}.
        tokenizer: the model's.
        condition: the text for {condition}.
    """
    template = "".join(HOLE if part is None else part for part in parts)
    written = chat.replace("{text}", template) if isinstance(chat, str) else _written(template, tokenizer.hf)
    if written.count(HOLE) != parts.count(None):
        raise MethodError("chat=True: the model's chat template does not write the user's turn once: remove chat")
    if chat is True and (inside := [m for m in marks(tokenizer.hf).values() if m in (condition or "")]):
        raise InputError(f"condition {condition!r:.60} holds {inside[0]!r}, a mark of the chat: remove it")
    pieces = [piece for literal in written.split(HOLE) for piece in (None, literal)][1:]
    return [piece for piece in pieces if piece != ""]


def _written(template: str, hf: Any) -> str:
    if not getattr(hf, "chat_template", None):
        raise MethodError("chat=True: the model's tokenizer has no chat template: remove chat, or set chat_template")
    system, _, rest = template.rpartition(USER)
    question, _, answer = rest.partition(ANSWER)
    turns = [{"role": "system", "content": system}] if system else []
    try:
        written = hf.apply_chat_template(
            [*turns, {"role": "user", "content": question}], tokenize=False, add_generation_prompt=True,
            chat_template=TODAY + hf.get_chat_template(), enable_thinking=False, date_string=DAY,
        )  # fmt: skip
    except Exception as e:  # a template may raise anything, for example where there is no system's turn
        why = " ".join(str(e).split()) or type(e).__name__
        raise MethodError(f"chat=True: the model's chat template cannot write this prompt: {why:.200}") from None
    return f"{written}{answer}"


def marks(hf: Any) -> dict[int, str]:
    """The tokens that mark the turns of a chat: special tokens, and added tokens that the chat template writes."""
    template = str(hf.chat_template)
    added = {i: (str(t), t.special) for i, t in hf.added_tokens_decoder.items()}
    return {i: t for i, (t, special) in added.items() if special or (t in template and not t.isspace())}


def as_text(spelled: Spelled, string: str, ranges: Sequence[tuple[int, int]], tokenizer: Tokenizer) -> Spelled:
    """A tokenized string in which marks inside the texts, at some ranges, are spelled as text and end no turn."""
    special = marks(tokenizer.hf)
    if special.keys().isdisjoint(spelled.ids):
        return spelled
    out = Spelled([], [])
    for i, (start, end) in zip(spelled.ids, spelled.offsets, strict=True):
        inside = i in special and any(a <= start and end <= b for a, b in ranges)
        ids = _mark_as_text(string[start:end], special, tokenizer) if inside else [i]
        out.ids.extend(ids)
        out.offsets.extend([(start, end)] * len(ids))
    return out


def _mark_as_text(mark: str, special: Mapping[int, str], tokenizer: Tokenizer) -> list[int]:
    """The ids of a mark as text; a mark that is not a special token is still one token, and is spelled in two parts."""
    ids = tokenizer.ids_as_text(mark)
    if len(mark) < 2 or special.keys().isdisjoint(ids):
        return ids
    return _mark_as_text(mark[:1], special, tokenizer) + _mark_as_text(mark[1:], special, tokenizer)
