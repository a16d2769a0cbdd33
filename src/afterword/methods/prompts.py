"""Methods that write a prompt around the text: `prompt`, `token_prepending` and `bellm`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from ..backbone.bidirectional import Couple, Sight, Window
from ..errors import MethodError, warn
from ..text.layout import MASK, Layout
from ..text.placeholder import PLACEHOLDER
from .method import Method
from .options import choose, unread
from .states import States
from .templates import STATES, TEMPLATES
from .weights import Plain


def prompt(
    template: str = "eol",
    pool: Literal["last", "mean", "mask", "weighted"] | None = None,
    states: str | None = None,
    *,
    variant: Literal["raw", "released"] = "raw",
    chat: bool = False,
    add_special_tokens: bool = True,
    pool_special_tokens: bool = False,
) -> Method:
    """Ask for the text in one word, and take the hidden state of the last token or of the mask token.

    Source: PromptBERT (Jiang et al. 2022), PromptEOL (Jiang et al. 2023); BeLLM, sections 3.3 and 5.1; Pretended CoT
    and Knowledge Enhancement (Zhang et al. 2024); PonTE (arXiv 2504.16411); PromptReps' dense half (Zhuang et al.
    2024), section 3; AlignedWVA (arXiv 2602.01572, states="attention:all", variant="released"); MoEE (Li & Zhou 2025,
    states="router").

    Cost: 1 pass, with the template.

    Args:
        template: a name of `TEMPLATES`, or any string with {text} and perhaps {condition} or [MASK].
        pool: None = the [MASK] token if the template has one, else the last token.
        states: hidden states, as for `classical`; None = those that the template was published with: "layer:-2" for
            cot and ke, "last" for the others.
        variant: "released" cleans the text up as the authors' code does: a full stop at the end; without [MASK]
            also no double quotes and no final question mark (see `Layout`).
        chat: put the template into the user's turn of the model's chat template, for Instruct models; what stands
            behind [ANSWER] begins the answer, what stands in front of [USER] is the system's message.
        add_special_tokens: give the model the tokenizer's special tokens; a chat template brings its own.
        pool_special_tokens: also pool the special tokens.

    >>> prompt("promptbert").weigh.pool
    'mask'
    """
    choose("variant", variant, ("raw", "released"))
    text = TEMPLATES.get(template, template)
    masked = MASK in text
    if pool == "mask" and not masked:
        raise MethodError(f"pool='mask': template {text!r} holds no {MASK}")
    clean: Literal["stop", "all"] = "stop" if masked else "all"
    if chat:
        unread("chat=True", add_special_tokens=not add_special_tokens)
    punctuate = clean if variant == "released" else None
    layout = Layout(text, add_special_tokens=add_special_tokens, punctuate=punctuate, chat=chat)
    weigh = Plain(pool or ("mask" if masked else "last"), "all", pool_special_tokens)
    states = states or STATES.get(template, "last")
    name = f"prompt {template if template in TEMPLATES else text!r}{' chat' if chat else ''}"
    return Method(layout, States(states), weigh, name=name)


def token_prepending(
    template: str = "eol",
    start: int = 1,
    stop: int | None = None,
    states: str = "layer:-2",
    *,
    pool: Literal["last", "mean"] = "last",
    variant: Literal["raw", "released"] = "raw",
    chat: bool = False,
    add_special_tokens: bool = True,
    pool_special_tokens: bool = False,
) -> Method:
    """Carry the last token's state back to a placeholder in front of the text, which the text's tokens attend to.

    Before each layer i, start <= i < stop, the placeholder's state becomes that of the last token. For causal models.

    Source: Fu et al. 2025 (Token Prepending), section 3; github.com/fuyuchenIfyw/token_prepending.

    Cost: 1 pass, with the template.

    Args:
        template: as for `prompt`, with the placeholder <PST>; without one it is written in front of the text.
        start: the first layer, from 0; the paper's is 1.
        stop: the first layer without; None = 7 as for LLaMA-2-7B, or the end of a smaller model.
        states: hidden states, as for `classical`; the last but one is the authors' for all prompts but "eol".
        pool: the last token, or the mean over the prompt's and the text's tokens.
        variant: "released" cleans the text up as the authors' code does (see `prompt`).
        chat: as for `prompt`.
        add_special_tokens: give the model the tokenizer's special tokens.
        pool_special_tokens: also pool the special tokens.

    >>> token_prepending().layout.template
    'This sentence : <PST> "{text}" means in one word:"'
    """
    text = TEMPLATES.get(template, template)
    if PLACEHOLDER not in text:
        text = re.sub(r"\s*([\"'“‘]?)\{text\}", rf" {PLACEHOLDER} \1{{text}}", text, count=1).lstrip()
    special = {"add_special_tokens": add_special_tokens, "pool_special_tokens": pool_special_tokens}
    asked = prompt(text, pool, states, variant=variant, chat=chat, **special)
    sight = Sight(carry=(start,) if stop is None else (start, stop))
    layers = f"start {start}" if stop is None else f"start {start} stop {stop}"
    name = f"token_prepending {template if template in TEMPLATES else repr(text)} {layers}"
    return replace(asked, sight=sight, name=name)


def bellm(
    last: int | Literal["auto"] | None = None,
    pool: Literal["mean", "last", "weighted"] = "mean",
    states: str = "last",
    *,
    layers: Sequence[int] = (),
    couple: Couple = "replace",
    window: Window = "keep",
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
            3.1); `afterword.papers.turning.resolve` finds the number.
        pool: the mean, or position-weighted mean, over the prompt's and the text's tokens, or the last token.
        states: hidden states, as for `classical`.
        layers: numbers of the layers from 0, instead of `last`.
        couple: "replace", or one of Equation 5's sums (see `Sight`).
        window: "keep" a sliding window on both sides in these layers, or "drop" it, as the authors' code does.
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
    note = ("" if couple == "replace" else f" {couple}") + ("" if window == "keep" else " without window")
    weigh = Plain(pool, "all", pool_special_tokens)
    sight = Sight(last, tuple(layers), couple, window)
    method = Method(layout, States(states), weigh, sight, name=f"bellm {which} {pool}{note}")
    warn_if_idle(method)
    return method


def warn_if_idle(method: Method) -> None:
    """Warn if bidirectional layers provably change nothing."""
    alone = method.sight == Sight(last=1) and method.states == States()
    if alone and isinstance(method.weigh, Plain) and method.weigh.pool == "last":
        warn(
            "bellm(last=1, pool='last') equals the causal model: the last token sees everything already; "
            "use pool='mean' or last=2"
        )
