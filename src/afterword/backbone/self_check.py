"""The self-check: which way of running a model gives the model's own vectors.

Ways are tried, the fastest first. Each must reproduce, on a few texts that share a batch, what the model's own eager
attention gives for each text alone, and answer a few questions about what these texts are too short to show. A model
that no way reproduces is refused: never a silent wrong vector.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import AfterwordError, UnsupportedModel
from ..text.batch import lay
from ..text.segments import Segment, TokenizedText
from ..text.tokenizer import Tokenizer
from . import introspection as anatomy
from .attention import NAME
from .backbone import LAST, Backbone
from .facts import Facts
from .float32_weights import half, in_float32, layers_in_float32
from .model_lock import lock_of
from .positions import skipped_token
from .self_check_trials import (
    Matrices,
    Reached,
    apart,
    counting_from_afar,
    heads_of,
    last_bits_moved,
    proper,
    said,
    short_windows,
    size,
    stop_before,
)

TOLERANCE = 1e-4  # of the largest value: float32 kernels differ by less than 1e-5, a missing mask by more than 1e-2
NOISE = 4  # quantised weights may differ by so many times what rounding alone does to them
COPIES = 8  # of the text that shows what rounding does, each with other last bits
LOUDEST = 5e-2  # rounding that does more than this to a text hides a wrong mask: nothing could be checked
SHORTEST_TRIED = 32  # tokens, where a model cannot run texts of fewer
LENGTHS = (7, 3, 1, 5, 7)  # texts of the self-check, two of one length, one of one token
LONGEST_EDGE = 1024  # lengths up to here at which a model changes its ways are crossed by a text of the self-check
LONGEST_WINDOW = 512  # and windows up to here; longer ones are shortened for the check
LONGEST_STREAM = 8192  # tokens that are fed to the first layer, to see whether a stream may be longer than a text


def check(model: nn.Module, tokenizer: Tokenizer) -> Backbone:
    """The self-check: the first way of running that reproduces the model's own eager attention.

    Args:
        model: in eval mode. Half-precision weights are checked in float32, one layer at a time, and are bit for bit
            what they were afterwards; quantised ones are checked as they are.
        tokenizer: its tokenizer.

    Returns:
        The backbone; ``facts.checks`` says what each way gave.

    Raises:
        UnsupportedModel: no way does, or the model does not run by itself on token ids; with the reasons.
    """
    kind = str(getattr(model.config, "model_type", type(model).__name__))
    try:
        with lock_of(model).exclusive(), torch.no_grad():
            return _checked(model, tokenizer, kind)
    except AfterwordError:
        raise
    except Exception as e:  # a model may trip over anything
        raise UnsupportedModel(f"{kind} cannot be checked: {said(e)}") from e


def _checked(model: Any, tokenizer: Tokenizer, kind: str) -> Backbone:
    """The self-check with the weights as they must be for it."""
    facts = _facts(model, tokenizer, kind)
    if quantised := anatomy.quantised(model):
        if quantised == "LLM.int8":
            raise UnsupportedModel(
                f"{kind} in LLM.int8 (load_in_8bit) picks outlier columns by the whole batch: a text's vector would "
                "depend on its company. Load it in 4 bits (load_in_4bit, nf4) or in bfloat16"
            )
        return _Check(model, tokenizer, facts, quantised).run()
    try:
        with layers_in_float32(model):
            return _Check(model, tokenizer, facts).run()
    except UnsupportedModel:
        if not half(model):
            raise
    with in_float32(model):  # its layers use each other's weights
        return _Check(model, tokenizer, facts).run()


def _facts(model: Any, tokenizer: Tokenizer, kind: str) -> Facts:
    """What is known before anything is run."""
    config = model.config
    offset = anatomy.position_offset(model)
    split_at, grows = anatomy.rotary_split(config)
    limits = [n for n in (tokenizer.max_length, anatomy.position_limit(config, offset)) if n is not None]
    return Facts(
        kind=kind,
        layers=anatomy.count_attention(config),
        depth=anatomy.count_layers(config),
        heads=anatomy.count_heads(config),
        width=0,
        offset=offset,
        skips=skipped_token(model, offset, _special(model, tokenizer)),
        max_length=min(limits, default=None),
        split_at=split_at,
        grows=grows,
        remembers=anatomy.remembers(model),
    )


def _special(model: Any, tokenizer: Tokenizer) -> list[int]:
    """The special tokens that a user can write into a text and the model has an embedding for, padding first."""
    names = [f"{name}_token_id" for name in ("pad", "mask", "unk", "bos", "eos", "cls", "sep")]
    found = [getattr(holder, n, None) for n in names for holder in (anatomy.text_config(model.config), tokenizer.hf)]
    known = anatomy.vocabulary(model)
    return list(dict.fromkeys(i for i in found if isinstance(i, int) and 0 <= i < known))


class _Check:
    """One model's self-check.

    Args:
        model: in eval mode.
        tokenizer: its tokenizer.
        facts: what its configuration says.
        quantised: the name of its quantisation, "" for none.
    """

    def __init__(self, model: Any, tokenizer: Tokenizer, facts: Facts, quantised: str = "") -> None:
        self.model, self.tokenizer, self.facts, self.quantised = model, tokenizer, facts, quantised
        self.tolerance = TOLERANCE
        self.texts = self._texts()
        self.tried: dict[str, str] = {}

    def run(self) -> Backbone:
        """Ask each way every question, and take the first that answers all of them.

        Raises:
            UnsupportedModel: none does.
        """
        own = self._own()
        if self.quantised:
            self._allow_for_rounding(own)
        through_seam = self.model.config._attn_implementation == NAME
        for way in ("flat", "stacked") if through_seam else ():
            if backbone := self._through_seam(way, own):
                return backbone
        if through_seam:
            self.model.set_attn_implementation("eager")
        for alone in (False, True):
            if backbone := self._by_itself(alone, own):
                return backbone
        reasons = "; ".join(f"{way}: {what}" for way, what in self.tried.items())
        raise UnsupportedModel(f"{self.facts.kind} cannot be run exactly ({reasons})")

    def _texts(self) -> list[list[int]]:
        """Random texts, one of special tokens, and the first of all once more with another last token."""
        edges = [(anatomy.window(self.model.config), LONGEST_WINDOW), (self.facts.split_at, LONGEST_WINDOW)]
        edges.append((anatomy.sparse_from(self.model.config), LONGEST_EDGE))
        lengths = [*LENGTHS, *(edge + 3 for edge, most in edges if edge is not None and edge <= most)]
        if self.facts.max_length is not None:
            lengths = [min(n, self.facts.max_length) for n in lengths]
        g = torch.Generator().manual_seed(0)
        special = _special(self.model, self.tokenizer)
        usable = [t for t in range(min(anatomy.vocabulary(self.model), 2000)) if t not in special]
        texts = [[usable[int(i)] for i in torch.randint(len(usable), (n,), generator=g)] for n in lengths]
        other = next(t for t in usable if t != texts[0][-1])
        between = [t for pair in zip(special, usable, strict=False) for t in pair]
        texts += [part for part in (between[: self.facts.max_length], special[:1]) if part]
        return [*texts, [*texts[0][:-1], other]]

    def _backbone(self, **known: Any) -> Backbone:
        """The model run in some way, with its own linear layers."""
        backbone = Backbone(self.model, self.tokenizer, replace(self.facts, **known))
        backbone.packed.on = False
        return backbone

    def _own(self) -> list[Tensor]:
        """What does the model give for each text alone, with its own attention? Does it see what comes after?"""
        try:
            states = self._eagerly(lambda: [self._states(self._backbone(way="eager"), [t])[0] for t in self.texts])
        except Exception as e:  # a kernel that lacks a type, a model that needs more than tokens
            wants, short = self._wants()
            reason = f"{said(e)}; a text may be as short as that" if short else said(e)
            raise UnsupportedModel(f"{self.facts.kind} does not run by itself on {wants}: {reason}") from e
        if not all(bool(s.isfinite().all()) for s in states):
            raise UnsupportedModel(f"{self.facts.kind} gives states that are not finite: its weights are broken")
        first, again = states[0], states[-1]
        causal = len(first) > 1 and torch.allclose(first[:-1], again[:-1], rtol=0, atol=TOLERANCE * size(states))
        self.facts = replace(self.facts, causal=causal, width=first.shape[1])
        return list(states)

    def _wants(self) -> tuple[str, bool]:
        """What a model that trips over the texts of the check does not run on, and whether it is short texts only."""
        for n in range(2, SHORTEST_TRIED + 1):
            text = (self.texts[0] * n)[:n]
            try:
                self._eagerly(partial(self._states, self._backbone(way="eager"), [text]))
            except Exception:
                continue
            return f"texts of fewer than {n} tokens", True
        return "token ids alone", False

    def _eagerly(self, ask: Callable[[], Any]) -> Any:
        """What the model answers with its own eager attention."""
        if self.model.config._attn_implementation != NAME:
            return ask()
        self.model.set_attn_implementation("eager")
        try:
            return ask()
        finally:
            self.model.set_attn_implementation(NAME)

    def _allow_for_rounding(self, own: list[Tensor]) -> None:
        """How far does rounding alone move a text: the same in a stack of equal copies, and between two kernels?"""
        longest = max(range(len(self.texts)), key=lambda i: len(self.texts[i]))
        text, state = self.texts[longest], own[longest]

        def moved() -> float:
            copies = self._states(self._backbone(way="eager"), [text] * COPIES)
            with last_bits_moved(self.model):
                nudged = self._states(self._backbone(way="eager"), [text] * COPIES)
            return max(float((s - state).abs().max()) for s in (*copies, *nudged)) / size(own)

        noise = self._eagerly(moved)
        self.tried["rounding"] = f"{noise:.1e} of {self.quantised} weights"
        self.tolerance = max(TOLERANCE, NOISE * noise)
        if self.tolerance > LOUDEST:
            raise UnsupportedModel(
                f"{self.facts.kind} cannot be checked: rounding alone moves its states by {noise:.1e} with "
                f"{self.quantised} weights. Load it without quantisation, in bfloat16"
            )

    def _through_seam(self, way: Any, own: list[Tensor]) -> Backbone | None:
        """One way through the seam, if it answers every question."""
        if way == "flat" and "position_ids" not in inspect.signature(self.model.forward).parameters:
            self.tried[way] = "takes no position_ids"
            return None
        backbone = self._backbone(way=way, attention=True)
        backbone.observed = []
        if self._error(way, backbone, self.texts, own) > self.tolerance or not self._all_layers_ask(way, backbone):
            return None
        by_id = {id(m): m for m in self.model.modules()}
        modules = [by_id[i] for i in backbone.observed[-1].order]
        if way == "flat" and not (
            self._takes_long_streams(backbone, modules) and self._ignores_the_stream(backbone, own)
        ):
            return None
        if not (self._keeps_windows(way, backbone) and self._shows_true_weights(way, backbone)):
            return None
        if way == "flat" and self.facts.causal:
            self.facts = replace(self.facts, shares=self._shares(backbone, own))
        return self._finish(way, modules, attention=self.facts.layers > 0)

    def _by_itself(self, alone: bool, own: list[Tensor]) -> Backbone | None:
        """The model's own attention, in batches of one length or one text at a time, if that is exact."""
        backbone = self._backbone(way="eager", alone=alone)
        if self._error("alone" if alone else "eager", backbone, self.texts, own) > self.tolerance:
            return None
        found = self._attentions(self.texts[0])
        heads = heads_of(found, len(self.texts[0])) if len(found) == self.facts.layers else 0
        causal = self.facts.causal and not (heads and any(bool(a.triu(1).any()) for a in found))
        self.facts = replace(self.facts, alone=alone, heads=heads or self.facts.heads, causal=causal)
        return self._finish("eager", attention=heads > 0)

    def _finish(self, way: Any, modules: Sequence[nn.Module] = (), *, attention: bool) -> Backbone:
        facts = replace(self.facts, way=way, attention=attention, checks=self.tried)
        return Backbone(self.model, self.tokenizer, facts, modules)

    @staticmethod
    def _states(backbone: Backbone, texts: Sequence[Sequence[int]], prefix: Sequence[int] = ()) -> list[Tensor]:
        writings = [TokenizedText((Segment(list(t), ((0, len(t)),)),)).with_shared_prefix(prefix) for t in texts]
        batch = lay(writings, backbone.device)
        flat = backbone.forward(batch).states[LAST]
        found: dict[int, Tensor] = {}
        for group in batch.groups:
            found.update(zip(group.text.tolist(), group.slice(flat), strict=True))
        return [found[i] for i in range(len(texts))]

    def _error(
        self, what: str, backbone: Backbone, texts: list[list[int]], own: list[Tensor], prefix: Sequence[int] = ()
    ) -> float:
        """The largest difference from the model's own states, of their largest value; or what a model trips over."""
        try:
            got = self._states(backbone, texts, prefix)
        except Exception as e:  # the next way may do
            self.tried[what] = f"{type(e).__name__}: {said(e):.140}"
            return math.inf
        error = apart(got, own)
        self.tried[what] = f"{error:.1e} from eager"
        return error

    def _all_layers_ask(self, way: str, backbone: Backbone) -> bool:
        """Does each layer with attention ask the seam for it?"""
        calls = {len(plan.order) for plan in backbone.observed or ()}
        if calls == {self.facts.layers}:
            return True
        self.tried[way] += f", but {sorted(calls)} of {self.facts.layers} layers ask the seam for their attention"
        return False

    def _takes_long_streams(self, backbone: Backbone, modules: Sequence[nn.Module]) -> bool:
        """May a stream be longer than the longest text? (CLIP counts its tokens.) Only embeddings need to be run."""
        limit = self.facts.max_length
        if limit is None or limit > LONGEST_STREAM or not modules:
            return True
        short = [t for t in self.texts if len(t) <= limit]
        many = short * (limit // sum(map(len, short)) + 1)
        try:
            with stop_before(modules[0]):
                self._states(backbone, many)
        except Reached:
            return True
        except Exception as e:
            self.tried["flat"] += f", but not over {limit} tokens in all: {said(e):.100}"
        return False

    def _ignores_the_stream(self, backbone: Backbone, own: list[Tensor]) -> bool:
        """Do states stay as they are when whatever counts the stream's tokens counts from afar?"""
        for times in (1, 2):  # what counts something else has another length the second time
            texts, before = self.texts * times, self._states(backbone, self.texts * times)
            assert backbone.observed is not None
            length = sum(run.segments * run.length for run in backbone.observed[-1].groups)
            try:
                with counting_from_afar(length):
                    moved = apart(self._states(backbone, texts), before)
            except Exception as e:
                self.tried["flat"] += f", but far down the stream {type(e).__name__}: {said(e):.100}"
                return False
            if moved <= self.tolerance / 10:
                return True
        self.tried["flat"] += f", but {moved:.1e} off far down the stream: positions are counted through all texts"
        return False

    def _keeps_windows(self, way: str, backbone: Backbone) -> bool:
        """Are windows kept that are longer than a text of the check? They are shortened, for the model itself too."""
        with short_windows(self.model, LONGEST_WINDOW) as shortened:
            if not shortened:
                return True
            try:
                own = self._eagerly(lambda: [self._states(self._backbone(way="eager"), [t])[0] for t in self.texts])
                error = apart(self._states(backbone, self.texts), own)
            except Exception:  # a model that cannot have other windows
                return True
        self.tried["windows"] = f"{error:.1e} from eager, with windows of few tokens"
        return error <= self.tolerance

    def _shows_true_weights(self, way: str, backbone: Backbone) -> bool:
        """Are the weights that are read, of texts that share a batch, those that the model's own attention hands out?

        Some models hand out weights without the share that a sink takes (Granite with sliding windows).
        """
        if not self.facts.layers:
            return True
        sinks = any("sink" in name for name, _ in self.model.named_parameters())
        texts = [text for text in self.texts if len(text) == len(self.texts[0])]
        found = [self._eagerly(partial(self._attentions, text)) for text in texts]
        if any(len(f) != self.facts.layers or not all(proper(a, sinks) for a in f) for f in found):
            return True
        batch = lay([TokenizedText((Segment(text, ((0, len(text)),)),)) for text in texts], backbone.device)
        for counted in (True, False)[: 1 + sinks]:
            backbone.facts = replace(backbone.facts, sinks_count=counted)
            backbone.forward(batch, taps=[tap := Matrices()])
            error = max(
                float((ours - torch.cat(theirs)).abs().max()) for ours, *theirs in zip(tap.found, *found, strict=True)
            )
            if error <= self.tolerance:
                break
        self.facts = replace(self.facts, sinks_count=backbone.facts.sinks_count)
        self.tried["weights"] = f"{error:.1e} from eager"
        if error > self.tolerance:
            self.tried[way] += f", but its attention weights are {error:.1e} off"
        return error <= self.tolerance

    def _attentions(self, text: list[int]) -> list[Tensor]:
        """What the model's own attention hands out for a text: (1, H, n, n) for each layer with attention."""
        ids = torch.tensor([text], device=next(self.model.parameters()).device)
        try:
            found = self.model(input_ids=ids, output_attentions=True).attentions or ()
        except (TypeError, AttributeError, ValueError, KeyError):
            return []
        return [a for a in found if a is not None]

    def _shares(self, backbone: Backbone, own: list[Tensor]) -> bool:
        """Can half of the longest text be run once where that text stands there twice?"""
        ids, states = max(zip(self.texts, own, strict=True), key=lambda text: len(text[0]))
        backbone.facts = replace(backbone.facts, causal=True, shares=True)
        prefix = ids[: len(ids) // 2]
        return self._error("shared", backbone, [*self.texts, ids], [*own, states], prefix) <= self.tolerance
