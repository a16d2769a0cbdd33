"""The catalogue of the papers' methods: a function for each, which returns a `Method`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal

from ..backbone.bidirectional import Couple, Sight
from ..errors import MethodError
from ..text.layout import MASK, Layout
from .frequency import TfIdf, WithoutBiases
from .method import Method
from .states import States
from .templates import TEMPLATES
from .weights import Backward, Plain, SelfAttention, Table1, Weighting, unread


def classical(
    pool: Literal["mean", "last", "cls"] = "mean",
    states: str = "last",
    *,
    add_special_tokens: bool = True,
    pool_special_tokens: bool = True,
) -> Method:
    """Average the hidden states of the text, or take that of one token.

    Source: ReBA, Table 1; Ditto, section 3 (last, static and first-last average).

    Cost: 1 pass.

    Args:
        pool: "mean", "last" or "cls" (the first token).
        states: "last", "first_last", "first_last_h1", "last_two", "static", "static_h0" or "layer:k".
        add_special_tokens: give the model the tokenizer's special tokens.
        pool_special_tokens: also pool the special tokens.

    >>> classical("last").weigh.pool
    'last'
    """
    layout = Layout(add_special_tokens=add_special_tokens)
    return Method(layout, States(states), Plain(pool, "all", pool_special_tokens), name=f"classical {pool} {states}")


def echo(
    copies: int = 2,
    pool: Literal["mean", "last"] = "mean",
    states: str = "last",
    *,
    template: str | None = None,
    variant: Literal["paper", "table1", "released"] = "paper",
    repeat: Literal["ids", "text"] | None = None,
    separator: str = "",
    truncate: Literal["before", "after", "whole"] | None = None,
    add_special_tokens: bool = True,
    pool_special_tokens: bool = False,
    tail: bool = False,
) -> Method:
    """Repeat the text and pool the last copy, whose tokens attend to the whole text.

    Source: Springer et al. 2025 (Echo); ReBA, section 3.2 and Table 1.

    Cost: 1 pass, 2x tokens.

    Args:
        copies: number of copies of the text.
        pool: mean or last token of the last copy.
        states: hidden states, as for `classical`.
        template: None repeats the text; "rewrite" is the template of Springer et al.; or a string with {text} twice.
        variant: "table1" sums from the first copy's last token on and divides by 2n, as ReBA's Table 1 prints;
            "released" takes the very last token alone, as that paper's code does (cqdyf099/ReBA@6448aa9).
        repeat: repeat token "ids", or the "text" itself, joined by the separator.
        separator: text between the copies.
        truncate: cut "before" or "after" the repetition, or the "whole" with its special tokens.
        add_special_tokens: give the model the tokenizer's special tokens.
        pool_special_tokens: also pool the special tokens.
        tail: also pool the template's tokens after the last copy, as Springer et al.'s code can.

    >>> echo(copies=3).layout.copies
    3
    """
    _choose("variant", variant, ("paper", "table1", "released"))
    released = variant == "released"
    if variant == "table1" or (released and pool == "mean"):
        unread(f"variant={variant!r}", tail=tail, pool_special_tokens=pool_special_tokens, pool=pool != "mean")
    layout = Layout(
        template=TEMPLATES.get(template or "", template),
        copies=copies,
        join="ids" if template is not None and repeat is None else (repeat or ("text" if released else None)),
        separator=separator,
        truncate=truncate or ("whole" if released else "before"),
        add_special_tokens=add_special_tokens,
    )
    weigh: Weighting = Plain(pool, "tail" if tail else "last", pool_special_tokens)
    if variant == "table1":
        weigh = Table1(pool, "last", pool_special_tokens)
    elif released and pool == "mean":
        weigh = Plain("last", "tail", True)
    return Method(layout, States(states), weigh, name=f"echo-{layout.total_copies} {pool}{_note(variant)}")


def reba(
    copies: int = 2,
    pool: Literal["last", "mean"] = "last",
    states: str = "last",
    *,
    columns: Literal["all", "content"] = "all",
    normalise: Literal["token", "total"] | None = None,
    attention: Literal["max", "last_layer"] = "max",
    triangle: Literal["upper", "full"] = "upper",
    repeat: Literal["ids", "text"] | None = None,
    separator: str = "",
    truncate: Literal["before", "after", "whole"] | None = None,
    chunk: int | None = None,
    variant: Literal["paper", "released"] = "paper",
    add_special_tokens: bool = True,
    pool_special_tokens: bool = False,
) -> Method:
    """Repeat the text; each token of the first copy adds the states of later tokens, as far as they attend to it.

    Source: ReBA, Equations 4 and 5, Algorithms 1 to 3; chunks: section 6.

    Cost: 1 pass, 2x tokens.

    Args:
        copies: number of copies of the text, 1 or more.
        pool: e_n of the last token, or the mean of all e_i.
        states: hidden states v_k, as for `classical`.
        columns: "content" leaves special tokens out of the sum.
        normalise: None as in the paper; "token" divides each e_i by the sum of its weights, "total" the vector by the
            sum of all weights.
        attention: the maximum over the heads of all layers, or of the last layer.
        triangle: "upper" sums over k >= i, "full" over every k.
        repeat: repeat token "ids", or the "text" itself, joined by the separator.
        separator: text between the copies.
        truncate: cut "before" or "after" the repetition, or the "whole" with its special tokens.
        chunk: repeat chunks of so many tokens instead of the whole text.
        variant: "released" is what the authors' code computes (cqdyf099/ReBA@6448aa9): the string repeated, cut
            after; last: the last row of the whole symmetric matrix, normalised; mean: the upper rows of the
            sequence's first half, normalised, divided by that half's length; words: rows normalised.
        add_special_tokens: give the model the tokenizer's special tokens.
        pool_special_tokens: include their e_i in the mean.

    >>> reba(copies=3, pool="mean").name
    'reba-3 mean'
    """
    _choose("variant", variant, ("paper", "released"))
    _choose("pool", pool, ("last", "mean"))
    released = variant == "released"
    layout = Layout(
        copies=copies,
        join=repeat or ("text" if released else None),
        separator=separator,
        truncate=truncate or ("whole" if released else "before"),
        add_special_tokens=add_special_tokens,
        chunk=chunk,
    )
    if released:
        unread(
            "variant='released'", columns=columns != "all", normalise=normalise, triangle=triangle != "upper",
            pool_special_tokens=pool_special_tokens,
        )  # fmt: skip
        whole: dict[str, Any] = {"pool": "last", "copy": "all", "normalise": "token", "triangle": "full"}
        half: dict[str, Any] = {"pool": "half", "copy": "first", "normalise": "total"}
        weigh = Backward(**whole if pool == "last" else half, attention=attention, released=True)
    else:
        asked: dict[str, Any] = {"columns": columns, "normalise": normalise, "triangle": triangle}
        weigh = Backward(pool, "first", pool_special_tokens, **asked, attention=attention)
    return Method(layout, States(states), weigh, name=f"reba-{copies} {pool}{_note(variant)}")


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
            bert-base-uncased: every model has its own, which `afterword analyse heads --dev` finds.
        states: "first_last", "last" or "static" (the input embeddings, as in the code; "static_h0" as in the paper).
        pool: the sum of A_kk v_k, as in the paper; or their mean, which has the same direction.
        normalise: divide by the sum of A_kk.
        add_special_tokens: give the model the tokenizer's special tokens.
        pool_special_tokens: also pool [CLS] and [SEP], as the authors' code does.

    >>> ditto("1-10").weigh.layer, ditto("1-10").weigh.head
    (0, 9)
    """
    layer, number = parse_head(head)
    _choose("pool", pool, ("sum", "mean"))
    weigh = SelfAttention(pool, "all", pool_special_tokens, layer=layer, head=number, normalise=normalise)
    name = f"ditto {layer + 1}-{number + 1} (layer {layer}, head {number} from 0) {states}"
    return Method(Layout(add_special_tokens=add_special_tokens), States(states), weigh, name=name)


def prompt(
    template: str = "eol",
    pool: Literal["last", "mean", "mask"] | None = None,
    states: str = "last",
    *,
    variant: Literal["raw", "released"] = "raw",
    add_special_tokens: bool = True,
    pool_special_tokens: bool = False,
) -> Method:
    """Ask for the text in one word, and take the hidden state of the last token or of the mask token.

    Source: PromptBERT (Jiang et al. 2022), PromptEOL (Jiang et al. 2023); BeLLM, sections 3.3 and 5.1.

    Cost: 1 pass, with the template.

    Args:
        template: a name of `TEMPLATES`, or any string with {text} and perhaps {condition} or [MASK].
        pool: None = the [MASK] token if the template has one, else the last token.
        states: hidden states, as for `classical`.
        variant: "released" cleans the text up as the authors' code does: a full stop at the end; without [MASK]
            also no double quotes and no final question mark (see `Layout`).
        add_special_tokens: give the model the tokenizer's special tokens.
        pool_special_tokens: also pool the special tokens.

    >>> prompt("promptbert").weigh.pool
    'mask'
    """
    _choose("variant", variant, ("raw", "released"))
    text = TEMPLATES.get(template, template)
    masked = MASK in text
    if pool == "mask" and not masked:
        raise MethodError(f"pool='mask': template {text!r} holds no {MASK}")
    clean: Literal["stop", "all"] = "stop" if masked else "all"
    layout = Layout(text, add_special_tokens=add_special_tokens, punctuate=clean if variant == "released" else None)
    weigh = Plain(pool or ("mask" if masked else "last"), "all", pool_special_tokens)
    return Method(layout, States(states), weigh, name=f"prompt {template if template in TEMPLATES else text!r}")


def bellm(
    last: int | Literal["auto"] | None = None,
    pool: Literal["mean", "last"] = "mean",
    states: str = "last",
    *,
    layers: Sequence[int] = (),
    couple: Couple = "replace",
    template: str | None = "bellm",
    add_special_tokens: bool = True,
    pool_special_tokens: bool = False,
) -> Method:
    """Use bidirectional attention in the last layers, with a prompt for the representative word. Untrained.

    Source: BeLLM, sections 3.2 and 3.3, Equations 2 to 5; github.com/4AI/BeLLM.

    If only the last layer is changed and the last token is pooled, nothing changes: that token attends to all others
    already. So the mean is the default, and that configuration warns.

    Cost: 1 pass, with the template.

    Args:
        last: number of layers at the end; 1 by default. "auto" = all layers after the model's turning point (section
            3.1); `afterword.analysis.turning.resolve` finds the number.
        pool: the mean over the prompt's and the text's tokens, or the last token.
        states: hidden states, as for `classical`.
        layers: numbers of the layers from 0, instead of `last`.
        couple: "replace", or one of Equation 5's sums (see `Sight`).
        template: a name of `TEMPLATES`, a string with {text}, or None for the text alone.
        add_special_tokens: give the model the tokenizer's special tokens.
        pool_special_tokens: also pool the special tokens.

    >>> bellm(last=2).sight.last
    2
    """
    if last is None:
        last = 0 if layers else 1
    text = TEMPLATES.get(template or "", template)
    layout = Layout(text, add_special_tokens=add_special_tokens)
    which = f"layers {list(layers)}" if layers else f"last {last}"
    note = "" if couple == "replace" else f" {couple}"
    weigh = Plain(pool, "all", pool_special_tokens)
    sight = Sight(last, tuple(layers), couple)
    method = Method(layout, States(states), weigh, sight, name=f"bellm {which} {pool}{note}")
    warn_if_idle(method, stacklevel=3)
    return method


def warn_if_idle(method: Method, stacklevel: int = 2) -> None:
    """Warn if bidirectional layers provably change nothing."""
    alone = method.sight == Sight(last=1) and method.states == States()
    if alone and isinstance(method.weigh, Plain) and method.weigh.pool == "last":
        warnings.warn(
            "bellm(last=1, pool='last') equals the causal model: the last token sees everything already; "
            "use pool='mean' or last=2",
            stacklevel=stacklevel,
        )


def tfidf(
    states: str = "first_last", *, pool: Literal["sum", "mean"] = "sum", add_special_tokens: bool = True
) -> Method:
    """Weight each token by TF-IDF. It must be fitted first: encoder.fit(texts).

    Source: Ditto, sections 3 and 4 (first-last TF-IDF).

    Cost: 1 pass, after a fit.

    Args:
        states: hidden states, as for `classical`.
        pool: the sum of tf * idf * v_k, or the mean of idf * v_k, which has the same direction.
        add_special_tokens: give the model the tokenizer's special tokens; they have no weight.

    >>> tfidf().weigh.fitted
    False
    """
    _choose("pool", pool, ("sum", "mean"))
    weigh = TfIdf(pool, "all", False)
    return Method(Layout(add_special_tokens=add_special_tokens), States(states), weigh, name=f"tfidf {pool} {states}")


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

    The text gets a space in front, as in kongds/Prompt-BERT, evaluation.py:173, so that its first word is tokenized
    as any other.

    Source: PromptBERT (Jiang et al. 2022), section 3; Ditto, section 1 (static remove biases avg.).

    Cost: 1 pass, after a fit.

    Args:
        states: hidden states, as for `classical`; "static" is the input embeddings.
        frequent: leave out so many tokens, the most frequent ones in the texts of the fit.
        subwords: leave out tokens that continue a word.
        upper: leave out tokens with a letter in upper case.
        punctuation: leave out tokens without a letter or a digit.
        add_special_tokens: give the model the tokenizer's special tokens; they have no weight.

    >>> remove_biases(frequent=100).weigh.frequent
    100
    """
    rules: dict[str, Any] = {"subwords": subwords, "upper": upper, "punctuation": punctuation}
    weigh = WithoutBiases(pool_special_tokens=False, normalise=True, frequent=frequent, **rules)
    layout = Layout(" {text}", add_special_tokens=add_special_tokens)
    return Method(layout, States(states), weigh, name=f"remove_biases {states}")


CATALOGUE: dict[str, Callable[..., Method]] = {
    f.__name__: f for f in (classical, echo, reba, ditto, prompt, bellm, tfidf, remove_biases)
}
"""Every method by name."""


def parse_head(head: str | tuple[int, int] | Sequence[int]) -> tuple[int, int]:
    """A head as (layer, head) from 0.

    Args:
        head: "1-10", both from 1 as the Ditto paper spells it; or a pair from 0, as its code does.

    Raises:
        MethodError: it is neither, or "0-9": counted from 1 there is no 0.

    >>> parse_head("1-10"), parse_head((0, 9))
    ((0, 9), (0, 9))
    """
    if isinstance(head, str):
        layer, dash, number = head.partition("-")
        if not (dash and layer.isascii() and layer.isdigit() and number.isascii() and number.isdigit()):
            raise MethodError(f"head={head!r}: write layer-head, both from 1, as in '1-10'; or a pair (0, 9) from 0")
        if int(layer) < 1 or int(number) < 1:
            raise MethodError(f"head={head!r}: in this spelling both count from 1, as in '1-10'; from 0 give a pair")
        return int(layer) - 1, int(number) - 1
    if len(head) != 2 or not all(isinstance(h, int) and not isinstance(h, bool) and h >= 0 for h in head):
        raise MethodError(f"head={head!r}: give (layer, head) from 0, or '1-10' from 1")
    return head[0], head[1]


def _choose(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise MethodError(f"{name}={value!r}: choose one of {', '.join(allowed)}")


def _note(variant: str) -> str:
    return "" if variant == "paper" else f" {variant}"
