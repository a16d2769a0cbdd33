"""Whatever a user writes gives a result or an error of ours, never a traceback; offsets agree with brute force."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from afterword.codec import from_json, make, parse_method, to_json
from afterword.errors import AfterwordError, InputError, MethodError, WordNotFound
from afterword.layout import Layout
from afterword.loading import load_backbone
from afterword.methods import CATALOGUE
from afterword.tokens import Tokenizer, check_text
from afterword.words import place, span_of

BYTES = {b: c for c, b in zip(
    [*map(chr, range(33, 127)), *map(chr, range(161, 173)), *map(chr, range(174, 256))],
    [*range(33, 127), *range(161, 173), *range(174, 256)], strict=True)}  # fmt: skip
BYTES |= {b: chr(256 + i) for i, b in enumerate(b for b in range(256) if b not in BYTES)}
OF_BYTE = {c: b for b, c in BYTES.items()}
"""GPT-2's spelling of the 256 bytes, written out anew."""

scripts = st.sampled_from(
    "the cat sat on a bank . , ' \n \t 世界 中学教育 é é नमस्ते 👩‍👩‍👧 🇩🇪 ﷺ ﬁ Ǆ İ ß ﻝﺎ 𝔘 ︎ ‏ ​ Å".split(" ") + ["  ", " "]
)
texts = st.one_of(
    st.lists(scripts, min_size=1, max_size=10).map(" ".join),
    st.lists(scripts, min_size=1, max_size=10).map("".join),
    st.text(max_size=24),
)


@lru_cache
def tokenizer(oracle: Path, model: str) -> Tokenizer:
    return load_backbone(oracle / "models" / model).tokenizer


def brute(tokens: list[str], text: str, sentencepiece: bool) -> list[set[int]]:
    """The characters whose bytes each token holds: bytes counted one by one, no offsets asked for."""
    owner = [i for i, c in enumerate(text) for _ in c.encode()]
    if sentencepiece:
        owner = [-1, *owner]  # the blank that it puts in front
    at, found = 0, []
    for token in tokens:
        if not sentencepiece:
            size = len([OF_BYTE[c] for c in token])
        elif token.startswith("<0x") and len(token) == 6:
            size = 1
        else:
            size = len(token.replace("▁", " ").encode())
        found.append(set(owner[at : at + size]) - {-1})
        at += size
    assert at == len(owner), (tokens, text)
    return found


@pytest.mark.parametrize("model", ["gpt2", "llama_gqa"])
@given(text=texts, cut=st.tuples(st.integers(0, 40), st.integers(1, 8)))
@example(text="👩‍👩‍👧 x", cut=(0, 5))
@example(text="A", cut=(0, 1))
def test_offsets(oracle: Path, model: str, text: str, cut: tuple[int, int]) -> None:
    """The tokens of a word are those that hold one of its bytes."""
    assume(text.strip() and "\0" not in text and text.isprintable() | ("\n" in text))
    try:
        check_text(text)
    except InputError:
        return
    own = tokenizer(oracle, model)
    start = min(cut[0], len(text) - 1)
    end = min(start + cut[1], len(text))
    word = text[start:end]
    assume(word.strip() == word and "  " not in text and "▁" not in text and "Ġ" not in text)
    writing = Layout().write([text], own, offsets=True)[0]
    a, b = writing.segments[0].copies[0]
    spelled = own.tokens(writing.segments[0].ids[a:b])
    assume(own.hf.unk_token not in spelled or model == "llama_gqa")
    characters = set(range(start, end))
    expected = [i for i, held in enumerate(brute(spelled, text, model == "llama_gqa")) if held & characters]
    assert place([[(start, end)]], [text], [writing], 1)[0][0] == expected


@given(text=texts, word=st.one_of(texts, st.integers(), st.none()), n=st.integers(-3, 3))
def test_words(text: str, word: object, n: int) -> None:
    """A word is found where it stands, or it is an error of ours."""
    try:
        start, end = span_of((word, n), text)  # type: ignore[arg-type]
    except (WordNotFound, InputError):
        return
    if isinstance(word, str):
        assert text[start:end] == word


templates = st.one_of(
    st.just("{text}"),
    st.text(max_size=12),
    st.lists(
        st.sampled_from(
            ["{text}", "{", "}", "{{", "x ", "[MASK]", "{condition}", "{0}", "“", "{text!r}", "{text:>5}", "{text.x}"]
        ),
        max_size=5,
    ).map("".join),  # fmt: skip
)


@pytest.mark.parametrize("model", ["gpt2", "bert", "llama_gqa"])
@given(
    text=st.one_of(texts, st.lists(st.integers(5, 200), max_size=12)),
    template=st.one_of(st.none(), templates),
    copies=st.integers(0, 4),
    join=st.sampled_from([None, "ids", "text"]),
    separator=st.sampled_from(["", " ", "; "]),
    truncate=st.sampled_from(["before", "after", "whole"]),
    special=st.booleans(),
    length=st.one_of(st.none(), st.integers(1, 30)),
    chunk=st.one_of(st.none(), st.none(), st.integers(0, 5)),
    punctuate=st.sampled_from([None, "stop", "all"]),
)
def test_layout(oracle: Path, model: str, text, template, copies, join, separator, truncate, special, length, chunk, punctuate) -> None:  # fmt: skip  # noqa: E501
    """A writing keeps what it promises: no longer than allowed, copies in order, specials where they belong."""
    own = tokenizer(oracle, model)
    try:
        if isinstance(text, str):
            check_text(text)
        layout = Layout(template, copies, join, separator, truncate, special, punctuate, chunk)
        conditions = ["a, {b}"] if "condition" in layout.fields else None
        (writing,) = layout.write([text], own, length, conditions=conditions, offsets=True)
    except AfterwordError as e:
        assert "\n" not in str(e).replace("\\n", "")[:0] + str(e).splitlines()[0]
        return
    for segment in writing.segments:
        assert length is None or len(segment.ids) <= length
        ends = [0, *[x for span in segment.copies for x in span]]
        assert ends == sorted(ends) or any(a == b for a, b in segment.copies)
        assert ends[-1] <= len(segment.ids)
        front, behind = segment.special
        if special and truncate != "whole":
            assert segment.ids[:front] == own.prefix
            assert segment.ids[len(segment.ids) - behind :] == own.suffix
    assert writing.kept <= writing.total
    if length is None and isinstance(text, str) and template is not None and join != "ids" and "[MASK]" not in template:
        whole = "".join(p if p is not None else layout._clean(text) for p in layout._literals(own, "a, {b}"))
        assert writing.segments[0].ids == (
            own.prefix + own.ids([whole])[0] + own.suffix if special else own.ids([whole])[0]
        )


names = st.one_of(st.sampled_from([*CATALOGUE, "", "Reba", "@", "@nowhere.json"]), st.text(max_size=8))
options = st.lists(
    st.tuples(
        st.sampled_from(
            "copies pool states template head layers last couple chunk variant normalise columns repeat x".split()
        ),
        st.one_of(
            st.sampled_from(
                "2 0 -1 mean last true none 1-10 0-9 3-4-5 layer:2 layer:x 1+2 1+ eol csts first_last".split()
            ),
            st.text(max_size=6),
            st.text(max_size=6).map(json.dumps),
        ),
    ),
    max_size=4,
)


@given(name=names, given_options=options, tail=st.text(max_size=5))
@example(name="reba", given_options=[("copies", "99999999999999999999")], tail="")
def test_parser(name: str, given_options: list[tuple[str, str]], tail: str) -> None:
    """A method or a MethodError."""
    text = name + (":" if given_options else "") + ",".join(f"{k}={v}" for k, v in given_options) + tail
    try:
        method = parse_method(text)
    except MethodError as e:
        assert str(e)
        return
    assert from_json(json.loads(json.dumps(to_json(method)))) == method


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 99), st.floats(allow_nan=False), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=5,
)
parts = {k: st.one_of(values, st.dictionaries(st.sampled_from(
    "kind pool copy copies template layer head last layers couple pool_special_tokens triangle".split()), values, max_size=4))
    for k in ("layout", "states", "weigh", "sight", "name")}  # fmt: skip


@given(st.fixed_dictionaries({}, optional=parts))
def test_json(read: dict) -> None:
    """A method or a MethodError."""
    try:
        from_json(read)
    except MethodError as e:
        assert str(e)


@given(name=st.sampled_from(list(CATALOGUE)), given_options=st.dictionaries(st.sampled_from(
    "copies pool states template head layers last couple chunk variant".split()), values, max_size=3))  # fmt: skip
def test_make(name: str, given_options: dict) -> None:
    """A method or a MethodError."""
    try:
        make(name, given_options)
    except MethodError as e:
        assert str(e)
