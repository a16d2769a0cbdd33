"""Representative words: what a language model would say next where a sentence's vector is read.

Source: BeLLM, section 3.3 and appendix A.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from ..backbone.loading import load_head
from ..encode.limits import Limits
from ..encoder import Encoder
from ..files.atomic import refuse_while_written
from ..text.layout import Text
from .result import Measurement
from .sweep import sweep
from .word_counts import most_frequent

TOP = 100
"""So many words are high-frequency words; in English they are about half of all running words."""


@dataclass(frozen=True)
class RepresentativeWords(Measurement):
    """What the head predicts behind each text.

    A word is the likeliest token, without blanks around it; a token that holds no letter or digit is no word. The
    paper does not say which words are high-frequency; here they are the `top` most frequent of the list, in whatever
    case. Longer words may be cut: what is predicted is a token.

    Attributes:
        name: of the encoder's method.
        words: one per text, "" where it is no word.
        share: of the texts, those whose word is there and is not a high-frequency word: appendix A's number.
        frequent: share of the texts whose word is a high-frequency word.
        wordless: share of the texts without a word.
        top: how many words are high-frequency words.
        different: how many different words there are.
        commonest: the words that are predicted most often, and how often.
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
    """Predict a word at the last token of each text and tell how many are high-frequency words.

    Args:
        encoder: of a causal model; its method should be `bellm` or `prompt`, whose template asks for a word.
        texts: sentences.
        counts: how often words occur, as `read_counts` gives it.
        top: see `RepresentativeWords`.
        head: the model whose head predicts; None takes the encoder's own. A model that was saved without one, as a
            tuned encoder is, needs the model that it was tuned from.
        name: what the result is called; the method's name by default.
        limits: how much at a time.

    Raises:
        ModelError: the model is no causal one, or has no head.
        InputError: no text, or a blank one.
    """
    with refuse_while_written(Path(head or encoder.backbone.model.name_or_path)):  # type: ignore[arg-type]
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
    found = Counter(w for w in words if w)
    share = (n - wordless - frequent) / n
    return RepresentativeWords(
        name or encoder.method.name, words, share, frequent / n, wordless / n, top, len(found),
        tuple(found.most_common(10)),
    )  # fmt: skip


def _word(token: str) -> str:
    """The token as a word, "" where it holds no letter or digit."""
    return token.strip() if any(c.isalnum() for c in token) else ""
