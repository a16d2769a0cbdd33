"""The self-check: which way of running a model gives the model's own vectors.

Three ways are tried, the fastest first. Each must reproduce, on a few texts that share a batch, what the model's
own eager attention gives for each text alone; the seam must have been called once per layer. A model that no way
reproduces is refused: never a silent wrong vector.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from . import anatomy
from .attention import NAME
from .backbone import LAST, Backbone, Facts, Way
from .batch import lay
from .errors import UnsupportedModel
from .tokens import Tokenizer
from .writing import Segment, Writing

TOLERANCE = 1e-4  # of the largest value: float32 kernels differ by less than 1e-5, a missing mask by more than 1e-2
LENGTHS = (7, 3, 1, 5, 7)  # texts of the self-check, two of one length, one of one token
LONGEST_WINDOW = 512  # windows up to here are crossed by a text of the self-check


def check(model: nn.Module, tokenizer: Tokenizer) -> Backbone:
    """The self-check: the first way of running that reproduces the model's own eager attention.

    Args:
        model: in eval mode.
        tokenizer: its tokenizer.

    Returns:
        The backbone; ``facts.checks`` says what each way gave.

    Raises:
        UnsupportedModel: none does, with the reasons.
    """
    config = model.config
    offset = anatomy.position_offset(model)
    split_at, grows = anatomy.rotary_split(config)
    limits = [n for n in (tokenizer.max_length, anatomy.position_limit(config, offset)) if n is not None]
    facts = Facts(
        kind=str(getattr(config, "model_type", type(model).__name__)),
        layers=anatomy.count_layers(config),
        heads=anatomy.count_heads(config),
        width=0,
        offset=offset,
        max_length=min(limits, default=None),
        split_at=split_at,
        grows=grows,
    )
    with torch.no_grad(), anatomy.in_float32(model):
        return _Check(model, tokenizer, facts).run()


class _Check:
    """One model's self-check."""

    def __init__(self, model: Any, tokenizer: Tokenizer, facts: Facts) -> None:
        self.model, self.tokenizer, self.facts = model, tokenizer, facts
        self.texts = self._texts()
        self.tried: dict[str, str] = {}

    def _texts(self) -> list[list[int]]:
        """Random texts, and the first of them once more with another last token."""
        edges = (anatomy.window(self.model.config), self.facts.split_at)
        lengths = [*LENGTHS, *(edge + 3 for edge in edges if edge is not None and edge <= LONGEST_WINDOW)]
        if self.facts.max_length is not None:
            lengths = [min(n, self.facts.max_length) for n in lengths]
        config, g = self.model.config, torch.Generator().manual_seed(0)
        special = {getattr(config, f"{a}_token_id", None) for a in ("pad", "eos", "bos")}
        vocabulary = self.model.get_input_embeddings().num_embeddings
        usable = [t for t in range(min(vocabulary, 2000)) if t not in special]
        texts = [[usable[int(i)] for i in torch.randint(len(usable), (n,), generator=g)] for n in lengths]
        other = next(t for t in usable if t != texts[0][-1])
        return [*texts, [*texts[0][:-1], other]]

    def run(self) -> Backbone:
        through_seam = self.model.config._attn_implementation == NAME
        try:
            own = self._own()
        except Exception as e:  # a kernel that lacks a type, a model that needs more than tokens
            raise UnsupportedModel(f"{self.facts.kind} does not run by itself on token ids: {e}"[:300]) from e
        for way in ("flat", "stacked") if through_seam else ():
            if backbone := self._try(way, own):
                return backbone
        if through_seam:
            self.model.set_attn_implementation("eager")
        if backbone := self._try("eager", own):
            return backbone
        reasons = "; ".join(f"{way}: {what}" for way, what in self.tried.items())
        raise UnsupportedModel(f"{self.facts.kind} cannot be run exactly ({reasons})")

    def _own(self) -> list[Tensor]:
        """What the model gives for each text alone with its own attention."""
        implementation = self.model.config._attn_implementation
        if implementation == NAME:
            self.model.set_attn_implementation("eager")
        backbone = Backbone(self.model, self.tokenizer, replace(self.facts, way="eager"))
        try:
            states = [self._states(backbone, [t])[0] for t in self.texts]
        finally:
            if implementation == NAME:
                self.model.set_attn_implementation(NAME)
        first, again = states[0], states[-1]
        causal = len(first) > 1 and torch.allclose(first[:-1], again[:-1], rtol=0, atol=TOLERANCE * _size(states))
        self.facts = replace(self.facts, causal=causal, width=first.shape[1])
        return states

    @staticmethod
    def _states(backbone: Backbone, texts: Sequence[Sequence[int]], lead: Sequence[int] = ()) -> list[Tensor]:
        writings = [Writing((Segment(list(t), ((0, len(t)),)),)).led(lead) for t in texts]
        batch = lay(writings, backbone.device)
        flat = backbone.forward(batch).states[LAST]
        found: dict[int, Tensor] = {}
        for group in batch.groups:
            found.update(zip(group.text.tolist(), group.of(flat), strict=True))
        return [found[i] for i in range(len(texts))]

    def _try(self, way: Way, own: list[Tensor]) -> Backbone | None:
        if way == "flat" and "position_ids" not in inspect.signature(self.model.forward).parameters:
            self.tried[way] = "takes no position_ids"
            return None
        backbone = Backbone(self.model, self.tokenizer, replace(self.facts, way=way))
        backbone.observed = []
        if not self._error(way, backbone, self.texts, own) <= TOLERANCE:
            return None
        if way == "eager":
            return self._finish(way, ())
        calls = {len(plan.order) for plan in backbone.observed}
        if calls != {self.facts.layers}:
            self.tried[way] += f", but {sorted(calls)} of {self.facts.layers} layers ask the seam for their attention"
            return None
        if way == "flat" and self.facts.causal:
            self.facts = replace(self.facts, shares=self._shares(backbone, own))
        by_id = {id(m): m for m in self.model.modules()}
        return self._finish(way, [by_id[i] for i in backbone.observed[-1].order])

    def _error(
        self, what: str, backbone: Backbone, texts: list[list[int]], own: list[Tensor], lead: Sequence[int] = ()
    ) -> float:
        """The largest difference from the model's own states, of their largest value; or what a model trips over."""
        try:
            got = self._states(backbone, texts, lead)
        except Exception as e:  # the next way may do
            self.tried[what] = f"{type(e).__name__}: {e}"[:160].replace("\n", " ")
            return math.inf
        error = max(float((a - b).abs().max()) for a, b in zip(got, own, strict=True)) / _size(own)
        self.tried[what] = f"{error:.1e} from eager"
        return error

    def _shares(self, backbone: Backbone, own: list[Tensor]) -> bool:
        """Whether half of the longest text can be run once where that text stands there twice."""
        ids, states = max(zip(self.texts, own, strict=True), key=lambda text: len(text[0]))
        backbone.facts = replace(backbone.facts, shares=True)
        lead = ids[: len(ids) // 2]
        return self._error("shared", backbone, [*self.texts, ids], [*own, states], lead) <= TOLERANCE

    def _finish(self, way: Way, modules: Sequence[nn.Module]) -> Backbone:
        facts = replace(self.facts, way=way, attention=way != "eager", checks=self.tried)
        backbone = Backbone(self.model, self.tokenizer, facts, modules)
        if way == "eager" and self.facts.heads:
            backbone.facts = replace(facts, attention=self._shows_attention(backbone))
        return backbone

    def _shows_attention(self, backbone: Backbone) -> bool:
        """Whether ``output_attentions=True`` gives one proper matrix per layer."""
        ids = torch.tensor([self.texts[0]], device=backbone.device)
        try:
            found = self.model(input_ids=ids, output_attentions=True).attentions
        except (TypeError, AttributeError, ValueError):
            return False
        n = len(self.texts[0])
        return (
            bool(found)
            and len(found) == self.facts.layers
            and all(a is not None and a.shape == (1, self.facts.heads, n, n) for a in found)
            and all(torch.allclose(a.sum(-1), torch.ones(()).to(a), atol=1e-3) for a in found)
        )


def _size(states: Sequence[Tensor]) -> float:
    return max(float(s.abs().max()) for s in states)
