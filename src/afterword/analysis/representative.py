"""Representative words: the word that a language model predicts at the token whose state is the sentence vector.

Source: BeLLM, section 3.3 and appendix A.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from ..backbone.loading import load_head
from ..encode.limits import Limits
from ..encoder import Encoder
from ..text.layout import Text
from .result import Measurement
from .sweep import sweep
from .word_counts import most_frequent

TOP = 100
"""Default number of high-frequency words; in English they are about half of all words in a text."""


@dataclass(frozen=True)
class RepresentativeWords(Measurement):
    """The words that the language-modelling head predicts after texts.

    A word is the most likely token, without spaces around it; a token without a letter or digit is no word. A long
    word may be incomplete, since only one token is predicted. The paper does not define high-frequency words; here they
    are the `top` most frequent words of a list, ignoring case.

    Attributes:
        name: name of the encoder's method.
        words: one per text; "" if the token is no word.
        share: share of texts with a word that is not a high-frequency word: appendix A's number.
        frequent: share of texts whose word is a high-frequency word.
        wordless: share of texts without a word.
        top: number of high-frequency words.
        different: number of different words.
        commonest: the words predicted most often, with their counts.
    """

    name: str
    words: tuple[str, ...]
    share: float
    frequent: float
    wordless: float
    top: int
    different: int
    commonest: tuple[tuple[str, int], ...]


def representative_words(
    encoder: Encoder,
    texts: Sequence[Text],
    counts: Mapping[str, int],
    *,
    top: int = TOP,
    head: str | None = None,
    name: str | None = None,
    limits: Limits | None = None,
) -> RepresentativeWords:
    """Predict a word at the last token of each text, and count high-frequency words.

    Args:
        encoder: an encoder of a causal model; its method should be `bellm` or `prompt`, whose template asks for a
            word.
        texts: sentences.
        counts: word frequencies, from `read_counts`.
        top: number of high-frequency words.
        head: name or folder of the model whose head predicts; None = the encoder's own. A saved encoder has no head:
            name the model that it was trained or tuned from.
        name: name of the result; None = the method's name.
        limits: batch size and maximum length.

    Raises:
        ModelError: the model is not causal, or has no language-modelling head.
        InputError: there is no text, or a text is blank.
    """
    predict, hf = load_head(encoder.backbone, head), encoder.backbone.tokenizer.hf

    def read(states: Tensor) -> list[int]:
        best: list[int] = predict(states[:, -1].to(encoder.backbone.dtype)).argmax(-1).tolist()
        return best

    tokens = sweep(encoder, texts, read, limits)
    spelled = {t: _word(hf.decode([t], skip_special_tokens=True)) for t in set(tokens)}
    words = tuple(spelled[t] for t in tokens)
    high, n = most_frequent({word.casefold(): count for word, count in counts.items()}, top), len(words)
    wordless = sum(not w for w in words)
    frequent = sum(w.casefold() in high for w in words)
    predicted = Counter(w for w in words if w)
    share = (n - wordless - frequent) / n
    return RepresentativeWords(
        name or encoder.method.name, words, share, frequent / n, wordless / n, top, len(predicted),
        tuple(predicted.most_common(10)),
    )  # fmt: skip


def _word(token: str) -> str:
    """The token as a word; "" if it has no letter or digit."""
    return token.strip() if any(c.isalnum() for c in token) else ""
