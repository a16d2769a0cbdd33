"""A text's vector as the sum of its parts: one for each token that the model reads, joined into words.

A method's vector is ``weights @ states``, so token i adds w_i s_i. Linear post-processing steps apply to each part; a
step's constant, such as whitening's, is one more part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..backbone.backbone import Backbone
from ..encode.limits import Limits, Truncation
from ..encode.sentences import tokenize
from ..encode.tokens import WeighedTokens, weighed_tokens
from ..errors import MethodError
from ..methods import Method
from ..post import Dense, Normalise, Post, Truncate, width_after
from ..text.inputs import check_ids, refuse_blank
from ..text.layout import Text
from ..text.segments import SPECIAL, TokenizedText
from ..text.words import words_in, words_of_tokens
from . import draw
from .draw import Kind, Part

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TextParts:
    """The parts of a text's vector; a notebook shows the words shaded by their weights.

    Attributes:
        tokens: the n tokens that the model reads, then the constant if there is one.
        words: the p words of the text, each with its tokens in all copies, between the template and special tokens.
        word: the index of each token's word (n,).
        weights: the weight of each token (n,); a constant has 1.
        rows: what each token adds to the vector (n, D); their sum is the vector.
    """

    tokens: tuple[Part, ...]
    words: tuple[Part, ...]
    word: NDArray[np.int64]
    weights: Array
    rows: Array

    def by_word(self, values: Array) -> Array:
        """Add up the values (n, ...) of the tokens of each word: (p, ...)."""
        sums = np.zeros((len(self.words), *values.shape[1:]))
        np.add.at(sums, self.word, values)
        return sums

    def _repr_html_(self) -> str:
        return draw.card([draw.shaded(self.words, self.by_word(self.weights))], [draw.WEIGHTS])

    def __repr__(self) -> str:
        rows = zip(self.by_word(self.weights), self.words, strict=True)
        return "\n".join(f"{weight:8.4f}  {draw.shortened(part.text)}" for weight, part in rows)


def text_parts(
    backbone: Backbone, method: Method, texts: Sequence[Text], limits: Limits, post: Sequence[Post] = (),
    conditions: Sequence[str] | None = None,
) -> list[TextParts]:  # fmt: skip
    """Divide the vector of each text; arguments as for `sentence_vectors`.

    Raises:
        InputError: a text is blank, or contains an id that is not in the vocabulary.
        MethodError: a post-processing step is not linear.
    """
    width_after(method.width(backbone), post)
    check_ids(texts, backbone.vocabulary_size)
    refuse_blank(list(texts))
    written = tokenize(backbone, method.layout, texts, limits.max_length, conditions=conditions, offsets=True)
    truncated = Truncation(unknown_id=backbone.tokenizer.unknown_id)
    truncated.note(written, limits)
    parts = [_parts(backbone, method, *pair, post) for pair in zip(texts, written, strict=True)]
    truncated.warn(limits)
    return parts


def _parts(backbone: Backbone, method: Method, text: Text, written: TokenizedText, post: Sequence[Post]) -> TextParts:
    read = weighed_tokens(backbone, method, written)
    rows = through(read.weights[:, None] * read.states, post)
    tokens = [Part(letters, _kind(copy)) for letters, copy in zip(_letters(backbone, read), read.copies, strict=True)]
    words, word, weights = *_words(backbone, text, written, read), read.weights.numpy()
    if len(rows) > len(tokens):
        constant = Part("constant", "constant")
        tokens, words, word = [*tokens, constant], [*words, constant], [*word, len(words)]
        weights = np.append(weights, 1.0)
    return TextParts(tuple(tokens), tuple(words), np.array(word), weights, rows.numpy())


def through(rows: Tensor, post: Sequence[Post]) -> Tensor:
    """Apply linear steps to the parts (n, D) of a vector: (n, D'), or (n + 1, D') if a step adds a constant.

    Raises:
        MethodError: a step is not linear.
    """
    rows = torch.cat([rows, rows.new_zeros(1, rows.shape[1])])
    for step in post:
        if isinstance(step, Normalise):
            rows = rows / rows.sum(0).norm().clamp(min=torch.finfo(rows.dtype).tiny)
        elif isinstance(step, Truncate):
            rows = step(rows)
        elif isinstance(step, Dense) and step.activation == "Identity":
            rows = rows @ step.weight.to(rows).T
            rows[-1] += 0 if step.bias is None else step.bias.to(rows)
        else:
            name = getattr(step, "activation", type(step).__name__)
            raise MethodError(
                f"{name} is not linear, so a score after it is not a sum over words: explain the vectors before it, "
                "with dataclasses.replace(encoder, post=())"
            )
    return rows if bool(rows[-1].any()) else rows[:-1]


def _kind(copy: int) -> Kind:
    return "word" if copy > 0 else "special" if copy == SPECIAL else "template"


def _letters(backbone: Backbone, read: WeighedTokens) -> list[str]:
    letters = backbone.tokenizer.letters(read.ids)
    names = backbone.tokenizer.tokens(read.ids)
    return [name if copy == SPECIAL else one for one, name, copy in zip(letters, names, read.copies, strict=True)]


def _words(backbone: Backbone, text: Text, written: TokenizedText, read: WeighedTokens) -> tuple[list[Part], list[int]]:
    """The words of a text, between the special tokens and the runs of template tokens around it; each token's word."""
    spans = words_in(text, max(written.offsets, key=len))
    word_of = [words_of_tokens(spans, offsets, text) for offsets in written.offsets]
    letters, seen = _letters(backbone, read), False
    front, middle, back, keys = list[Part](), list[Part](), list[Part](), list[tuple[int, int]]()
    for i, (start, end) in enumerate(spans):
        if isinstance(text, str):
            middle.append(Part.word(text[start:end].strip(), joined=i > 0 and not text[start - 1].isspace()))
        else:
            middle.append(Part.word(letters[read.places.index(i)]))
    for at, (copy, place) in enumerate(zip(read.copies, read.places, strict=True)):
        if copy > 0:
            seen = True
            keys.append((1, word_of[copy - 1][place]))
            continue
        side = back if seen else front
        if copy == SPECIAL or at == 0 or read.copies[at - 1] != copy:
            end = next((k for k in range(at, len(read.copies)) if read.copies[k] != copy), len(read.copies))
            template = str(backbone.tokenizer.hf.decode(read.ids[at:end])).strip()
            side.append(Part(letters[at] if copy == SPECIAL else template or "␣", _kind(copy)))
        keys.append((2 if seen else 0, len(side) - 1))
    first = (0, len(front), len(front) + len(middle))
    return [*front, *middle, *back], [first[group] + i for group, i in keys]
