"""Methods that average or weight the tokens of the unchanged text: `classical`, `ditto`, `tfidf`, `sif` and others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from ..backbone.bidirectional import Sight
from ..errors import MethodError
from ..text.layout import Layout
from .frequency import Sif, TfIdf, WithoutBiases
from .method import Method
from .states import States
from .weights import Plain, Pool, SelfAttention


def classical(
    pool: Pool = "mean",
    states: str = "last",
    *,
    temperature: float = 1.0,
    add_special_tokens: bool = True,
    pool_special_tokens: bool = True,
) -> Method:
    """Average the hidden states of the text, or take that of one token.

    Source: ReBA, Table 1; Ditto, section 3 (last, static and first-last average); SGPT (Muennighoff 2022), section
    3.1 (weighted); TempScale (Zhou et al. 2025; temperature); Value Aggregation (arXiv 2602.01572; values:all).

    Cost: 1 pass.

    Args:
        pool: "mean", "last", "cls" (the first token), or "weighted": token i of n counts i / (1 + ... + n).
        states: "last", "first_last", "first_last_h1", "last_two", "static", "static_h0" or "layer:k"; or from inside
            the layers, such as "attention:all", "values:all" (Value Aggregation) or "router": see `States`.
        temperature: divide the attention scores of every layer by it before the softmax; under 1 attention is sharper.
        add_special_tokens: add the tokenizer's special tokens.
        pool_special_tokens: also pool the special tokens.
    """
    layout, sight = Layout(add_special_tokens=add_special_tokens), Sight(temperature=temperature)
    name = f"classical {pool} {states}" + (f" temperature {temperature:g}" if temperature != 1 else "")
    weigh = Plain(pool, "all", pool_special_tokens)
    return Method(layout, States(states), weigh, sight, name)


def ditto(
    head: str | tuple[int, int] = "1-10",
    states: str = "first_last",
    *,
    pool: Literal["sum", "mean"] = "sum",
    normalise: bool = False,
    add_special_tokens: bool = True,
    pool_special_tokens: bool = True,
) -> Method:
    """Weight each token by how much it attends to itself in one head. For encoders; on a decoder A_11 is always 1.

    Source: Ditto, section 3 (Figure 3); heads by Table 4 and appendix A.2.

    Cost: 1 pass.

    Args:
        head: "1-10" as the paper spells layer 1, head 10, both from 1; or (layer, head) from 0. 1-10 is the head of
            bert-base-uncased; `afterword.tune.head_map` finds that of another model.
        states: "first_last", "last" or "static" (the input embeddings, as in the code; "static_h0" as in the paper).
        pool: the sum of A_kk v_k, as in the paper; or their mean, which has the same direction.
        normalise: divide by the sum of A_kk.
        add_special_tokens: add the tokenizer's special tokens.
        pool_special_tokens: also pool [CLS] and [SEP], as the authors' code does.

    >>> ditto("1-10").weigh.layer, ditto("1-10").weigh.head
    (0, 9)
    """
    layer, number = parse_head(head)
    weigh = SelfAttention(pool, "all", pool_special_tokens, layer=layer, head=number, normalise=normalise)
    name = f"ditto {spelled_head((layer, number))} (layer {layer}, head {number} from 0) {states}"
    return Method(Layout(add_special_tokens=add_special_tokens), States(states), weigh, name=name)


def tfidf(
    states: str = "first_last", *, pool: Literal["sum", "mean"] = "sum", add_special_tokens: bool = True
) -> Method:
    """Weight each token by TF-IDF. It must be fitted first: encoder.fit(texts).

    Source: Ditto, sections 3 and 4 (first-last TF-IDF).

    Cost: 1 pass, after a fit.

    Args:
        states: hidden states, as for `classical`.
        pool: the sum of tf * idf * v_k, or the mean of idf * v_k, which has the same direction.
        add_special_tokens: add the tokenizer's special tokens; they have no weight.
    """
    weigh = TfIdf(pool, "all", False)
    return Method(Layout(add_special_tokens=add_special_tokens), States(states), weigh, name=f"tfidf {pool} {states}")


def sif(a: float = 1e-3, states: str = "static", *, add_special_tokens: bool = True) -> Method:
    """Average the tokens, the frequent ones with less weight: a / (a + p). It must be fitted first: encoder.fit(texts).

    The second half of SIF is a step on the vectors, the removal of their first singular vector: "remove_top:k=1" with
    "centre=false" as in the paper, or without it, which also subtracts the mean.

    Source: Arora, Liang & Ma 2017, "A Simple but Tough-to-Beat Baseline for Sentence Embeddings", Algorithm 1.

    Cost: 1 pass, after a fit.

    Args:
        a: the smaller, the less frequent tokens count; the paper takes 0.001 to 0.0001.
        states: hidden states, as for `classical`; "static" is the input embeddings, the paper's are word vectors.
        add_special_tokens: add the tokenizer's special tokens; they have no weight.
    """
    weigh = Sif("mean", "all", False, a=a)
    return Method(Layout(add_special_tokens=add_special_tokens), States(states), weigh, name=f"sif {a:g} {states}")


def remove_biases(
    states: str = "static",
    *,
    frequent: int = 36,
    subwords: bool = True,
    upper: bool = True,
    punctuation: bool = True,
    add_special_tokens: bool = True,
) -> Method:
    """Average the tokens of the text without those that bias the mean. It must be fitted first: encoder.fit(texts).

    A space is added before the text, as in kongds/Prompt-BERT, evaluation.py:173, so that its first word is tokenized
    like the following ones.

    Source: PromptBERT (Jiang et al. 2022), section 3; Ditto, section 1 (static remove biases avg.).

    Cost: 1 pass, after a fit.

    Args:
        states: hidden states, as for `classical`; "static" is the input embeddings.
        frequent: number of the most frequent tokens in the fitted texts to leave out.
        subwords: leave out tokens that continue a word.
        upper: leave out tokens with an upper-case letter.
        punctuation: leave out tokens without a letter or a digit.
        add_special_tokens: add the tokenizer's special tokens; they have no weight.
    """
    weigh = WithoutBiases(
        pool_special_tokens=False, normalise=True, frequent=frequent, subwords=subwords, upper=upper,
        punctuation=punctuation,
    )  # fmt: skip
    layout = Layout(" {text}", add_special_tokens=add_special_tokens)
    return Method(layout, States(states), weigh, name=f"remove_biases {states}")


def parse_head(head: str | Sequence[int]) -> tuple[int, int]:
    """A head as (layer, head) from 0.

    Args:
        head: "1-10", both from 1 as the Ditto paper writes it; or a pair from 0, as its code does.

    Raises:
        MethodError: it is neither.

    >>> parse_head("1-10"), parse_head((0, 9))
    ((0, 9), (0, 9))
    """
    if isinstance(head, str):
        if match := re.fullmatch(r"([1-9][0-9]*)-([1-9][0-9]*)", head):
            return int(match[1]) - 1, int(match[2]) - 1
    elif len(head) == 2 and all(type(number) is int and number >= 0 for number in head):
        return head[0], head[1]
    raise MethodError(f"head={head!r}: pass layer-head from 1, as in '1-10', or (layer, head) from 0")


def spelled_head(head: tuple[int, int]) -> str:
    """A head as ``layer-head`` from 1, as in the Ditto paper.

    >>> spelled_head((0, 9))
    '1-10'
    """
    return f"{head[0] + 1}-{head[1] + 1}"
