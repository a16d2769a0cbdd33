"""The self-check: find a way of running a model that gives the model's own hidden states.

The ways are tried in order, the fastest first. For a few texts in one batch, each must give the hidden states that the
model's own eager attention gives for each text alone; further trials cover what needs longer texts to show. A model
that no way reproduces is refused, so that no vector is silently wrong.
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
from . import introspection
from .attention import NAME
from .backbone import Backbone
from .facts import LAST, Facts
from .packed_linear import plain_linears
from .positions import skipped_token
from .self_check_trials import (
    InFloat32,
    Matrices,
    Reached,
    counting_from_afar,
    difference,
    first_line,
    heads_of,
    proper,
    short_windows,
    size,
    stop_before,
)

TOLERANCE = 1e-4  # of the largest value: float32 kernels differ by less than 1e-5, a missing mask by more than 1e-2
QUANTISED = 5e-2  # with quantised weights: rounding moves states by up to 1.3e-2, a missing mask by 1e-1 or more
SHORTEST_TRIED = 32  # tokens, to find the shortest text that a model can run
LENGTHS = (7, 3, 1, 5, 7)  # tokens of the texts of the self-check, two of one length, one of one token
LONGEST_EDGE = 1024  # a length up to this at which a model changes its attention gets a longer text in the check
LONGEST_WINDOW = 512  # so does a window up to this; longer windows are shortened for the check
LONGEST_INPUT = 8192  # tokens to the first layer, to try whether a packed input may be longer than a text


def check(model: nn.Module, tokenizer: Tokenizer) -> Backbone:
    """Run the self-check: find the first way of running that reproduces the model's own eager attention.

    Args:
        model: in eval mode. Half-precision weights are checked with float32 operations; quantised weights as they are.
        tokenizer: its tokenizer.

    Returns:
        The backbone; ``facts.checks`` holds the result of each way.

    Raises:
        UnsupportedModel: no way does, with the reasons; or the model does not run on token ids alone.
    """
    kind = str(getattr(model.config, "model_type", type(model).__name__))
    try:
        with torch.no_grad(), plain_linears():
            return _checked(model, tokenizer, kind)
    except AfterwordError:
        raise
    except Exception as e:  # a model's code may raise anything
        raise UnsupportedModel(f"{kind} cannot be checked: {first_line(e)}") from e


def _checked(model: Any, tokenizer: Tokenizer, kind: str) -> Backbone:
    """The self-check; half-precision weights are read as float32."""
    facts = _facts(model, tokenizer, kind)
    if quantised := introspection.quantised(model):
        if quantised == "LLM.int8":
            raise UnsupportedModel(
                f"{kind} in LLM.int8 (load_in_8bit) picks outlier columns by the whole batch: a text's vector would "
                "depend on the other texts. Load it in 4 bits (load_in_4bit, nf4) or in bfloat16"
            )
        return _Check(model, tokenizer, facts, QUANTISED).run()
    with InFloat32():
        return _Check(model, tokenizer, facts).run()


def _facts(model: Any, tokenizer: Tokenizer, kind: str) -> Facts:
    """The facts that the configuration and the modules tell, before anything runs."""
    config = model.config
    offset = introspection.position_offset(model)
    split_at, grows = introspection.rotary_split(config)
    return Facts(
        kind=kind,
        layers=introspection.count_attention(config),
        depth=introspection.count_layers(config),
        heads=introspection.count_heads(config),
        width=0,
        offset=offset,
        skips=skipped_token(model, offset, _special(model, tokenizer)),
        max_length=introspection.max_length(config, offset, tokenizer.max_length),
        split_at=split_at,
        grows=grows,
        remembers=introspection.remembers(model),
    )


def _special(model: Any, tokenizer: Tokenizer) -> list[int]:
    """The ids of special tokens for which the model has an embedding, padding first; a text may contain them."""
    names = [f"{name}_token_id" for name in ("pad", "mask", "unk", "bos", "eos", "cls", "sep")]
    ids = [
        getattr(holder, n, None) for n in names for holder in (introspection.text_config(model.config), tokenizer.hf)
    ]
    known = introspection.vocabulary(model)
    return list(dict.fromkeys(i for i in ids if isinstance(i, int) and 0 <= i < known))


class _Check:
    """One model's self-check.

    Args:
        model: in eval mode.
        tokenizer: its tokenizer.
        facts: what its configuration says.
        tolerance: the largest difference from eager, relative to the largest value.
    """

    def __init__(self, model: Any, tokenizer: Tokenizer, facts: Facts, tolerance: float = TOLERANCE) -> None:
        self.model, self.tokenizer, self.facts, self.tolerance = model, tokenizer, facts, tolerance
        self.texts = self._texts()
        self.tried: dict[str, str] = {}

    def run(self) -> Backbone:
        """Try each way, and take the first that passes every trial.

        Raises:
            UnsupportedModel: none does.
        """
        own = self._own()
        ours = self.model.config._attn_implementation == NAME
        for way in ("flat", "stacked") if ours else ():
            if backbone := self._try_our_backend(way, own):
                return backbone
        if ours:
            self.model.set_attn_implementation("eager")
        for alone in (False, True):
            if backbone := self._try_eager(alone, own):
                return backbone
        reasons = "; ".join(f"{way}: {what}" for way, what in self.tried.items())
        raise UnsupportedModel(f"{self.facts.kind} cannot be run exactly ({reasons})")

    def _texts(self) -> list[list[int]]:
        """Random texts, two with special tokens, and the first text again with another last token."""
        edges = [(introspection.window(self.model.config), LONGEST_WINDOW), (self.facts.split_at, LONGEST_WINDOW)]
        edges.append((introspection.sparse_from(self.model.config), LONGEST_EDGE))
        lengths = [*LENGTHS, *(edge + 3 for edge, most in edges if edge is not None and edge <= most)]
        if self.facts.max_length is not None:
            lengths = [min(n, self.facts.max_length) for n in lengths]
        g = torch.Generator().manual_seed(0)
        special = _special(self.model, self.tokenizer)
        usable = [t for t in range(min(introspection.vocabulary(self.model), 2000)) if t not in special]
        texts = [[usable[int(i)] for i in torch.randint(len(usable), (n,), generator=g)] for n in lengths]
        other = next(t for t in usable if t != texts[0][-1])
        between = [t for pair in zip(special, usable, strict=False) for t in pair]
        texts += [part for part in (between[: self.facts.max_length], special[:1]) if part]
        return [*texts, [*texts[0][:-1], other]]

    def _backbone(self, **known: Any) -> Backbone:
        """A backbone with these facts."""
        return Backbone(self.model, self.tokenizer, replace(self.facts, **known))

    def _own(self) -> list[Tensor]:
        """The states of each text alone, by the model's own attention; they also show whether the model is causal."""
        try:
            states = self._eagerly(lambda: [self._states(self._backbone(way="eager"), [t])[0] for t in self.texts])
        except Exception as e:  # a kernel lacks a data type, or the model needs more than token ids
            what, short = self._cannot_run()
            reason = f"{first_line(e)}; a text may be as short as that" if short else first_line(e)
            raise UnsupportedModel(f"{self.facts.kind} does not run by itself on {what}: {reason}") from e
        if not all(bool(s.isfinite().all()) for s in states):
            raise UnsupportedModel(f"{self.facts.kind} gives states that are not finite: its weights are broken")
        first, again = states[0], states[-1]
        causal = len(first) > 1 and torch.allclose(first[:-1], again[:-1], rtol=0, atol=TOLERANCE * size(states))
        self.facts = replace(self.facts, causal=causal, width=first.shape[1])
        return list(states)

    def _cannot_run(self) -> tuple[str, bool]:
        """What the model cannot run, in words for a message, and whether that is short texts only."""
        for n in range(2, SHORTEST_TRIED + 1):
            text = (self.texts[0] * n)[:n]
            try:
                self._eagerly(partial(self._states, self._backbone(way="eager"), [text]))
            except Exception:
                continue
            return f"texts of fewer than {n} tokens", True
        return "token ids alone", False

    def _eagerly(self, ask: Callable[[], Any]) -> Any:
        """Call a function while the model uses its own eager attention."""
        if self.model.config._attn_implementation != NAME:
            return ask()
        self.model.set_attn_implementation("eager")
        try:
            return ask()
        finally:
            self.model.set_attn_implementation(NAME)

    def _try_our_backend(self, way: Any, own: list[Tensor]) -> Backbone | None:
        """The backbone that runs in one way through our attention backend; None if a trial fails."""
        if way == "flat" and "position_ids" not in inspect.signature(self.model.forward).parameters:
            self.tried[way] = "takes no position_ids"
            return None
        backbone = self._backbone(way=way, attention=True)
        backbone.observed = []
        if self._error(way, backbone, self.texts, own) > self.tolerance or not self._all_layers_ask(way, backbone):
            return None
        by_id = {id(m): m for m in self.model.modules()}
        modules = [by_id[i] for i in backbone.observed[-1].order]
        if way == "flat" and not (self._takes_long_inputs(backbone, modules) and self._ignores_offsets(backbone, own)):
            return None
        if not (self._keeps_windows(way, backbone) and self._shows_true_weights(way, backbone)):
            return None
        if way == "flat" and self.facts.causal:
            self.facts = replace(self.facts, shares=self._shares(backbone, own))
        return self._finish(way, modules, attention=self.facts.layers > 0)

    def _try_eager(self, alone: bool, own: list[Tensor]) -> Backbone | None:
        """The backbone with the model's own attention, on equal lengths or one text at a time; None if not exact."""
        backbone = self._backbone(way="eager", alone=alone)
        if self._error("alone" if alone else "eager", backbone, self.texts, own) > self.tolerance:
            return None
        matrices = self._attentions(self.texts[0])
        heads = heads_of(matrices, len(self.texts[0])) if len(matrices) == self.facts.layers else 0
        causal = self.facts.causal and not (heads and any(bool(a.triu(1).any()) for a in matrices))
        self.facts = replace(self.facts, alone=alone, heads=heads or self.facts.heads, causal=causal)
        return self._finish("eager", attention=heads > 0)

    def _finish(self, way: Any, modules: Sequence[nn.Module] = (), *, attention: bool) -> Backbone:
        facts = replace(self.facts, way=way, attention=attention, checks=self.tried)
        return Backbone(self.model, self.tokenizer, facts, modules)

    @staticmethod
    def _states(backbone: Backbone, texts: Sequence[Sequence[int]], prefix: Sequence[int] = ()) -> list[Tensor]:
        tokenized = [TokenizedText((Segment(list(t), ((0, len(t)),)),)).with_shared_prefix(prefix) for t in texts]
        batch = lay(tokenized, backbone.device)
        flat = backbone.forward(batch).states[LAST]
        states: dict[int, Tensor] = {}
        for group in batch.groups:
            states.update(zip(group.text.tolist(), group.slice(flat), strict=True))
        return [states[i] for i in range(len(texts))]

    def _error(
        self, what: str, backbone: Backbone, texts: list[list[int]], own: list[Tensor], prefix: Sequence[int] = ()
    ) -> float:
        """The largest difference from the model's own states, relative to their largest value; infinite on errors."""
        try:
            states = self._states(backbone, texts, prefix)
        except Exception as e:  # another way may work
            self.tried[what] = f"{type(e).__name__}: {first_line(e):.140}"
            return math.inf
        error = difference(states, own)
        self.tried[what] = f"{error:.1e} from eager"
        return error

    def _all_layers_ask(self, way: str, backbone: Backbone) -> bool:
        """Whether every layer with attention calls our attention backend."""
        calls = {len(plan.order) for plan in backbone.observed or ()}
        if calls == {self.facts.layers}:
            return True
        self.tried[way] += f", but {sorted(calls)} of {self.facts.layers} layers call our attention backend"
        return False

    def _takes_long_inputs(self, backbone: Backbone, modules: Sequence[nn.Module]) -> bool:
        """Whether a packed input may be longer than the longest text; not in CLIP. Only the embeddings are run."""
        limit = self.facts.max_length
        if limit is None or limit > LONGEST_INPUT or not modules:
            return True
        short = [t for t in self.texts if len(t) <= limit]
        many = short * (limit // sum(map(len, short)) + 1)
        try:
            with stop_before(modules[0]):
                self._states(backbone, many)
        except Reached:
            return True
        except Exception as e:
            self.tried["flat"] += f", but not over {limit} tokens in all: {first_line(e):.100}"
        return False

    def _ignores_offsets(self, backbone: Backbone, own: list[Tensor]) -> bool:
        """Whether states stay the same if everything that counts the input's tokens counts from a large number."""
        for times in (1, 2):  # a tensor that has the input's length by chance has another length the second time
            texts, before = self.texts * times, self._states(backbone, self.texts * times)
            assert backbone.observed is not None
            length = sum(run.segments * run.length for run in backbone.observed[-1].groups)
            try:
                with counting_from_afar(length):
                    moved = difference(self._states(backbone, texts), before)
            except Exception as e:
                self.tried["flat"] += f", but far down the stream {type(e).__name__}: {first_line(e):.100}"
                return False
            if moved <= self.tolerance / 10:
                return True
        self.tried["flat"] += f", but {moved:.1e} off far down the stream: positions are counted through all texts"
        return False

    def _keeps_windows(self, way: str, backbone: Backbone) -> bool:
        """Whether windows longer than the texts of the check are respected; they are shortened, also for eager."""
        with short_windows(self.model, LONGEST_WINDOW) as shortened:
            if not shortened:
                return True
            try:
                own = self._eagerly(lambda: [self._states(self._backbone(way="eager"), [t])[0] for t in self.texts])
                error = difference(self._states(backbone, self.texts), own)
            except Exception:  # the model cannot have other windows
                return True
        self.tried["windows"] = f"{error:.1e} from eager, with windows of few tokens"
        return error <= self.tolerance

    def _shows_true_weights(self, way: str, backbone: Backbone) -> bool:
        """Whether the weights that taps read, in a batch of texts, are those that the model's own attention returns.

        Some models return weights without the share of the attention sinks (Granite with sliding windows).
        """
        if not self.facts.layers:
            return True
        sinks = any("sink" in name for name, _ in self.model.named_parameters())
        texts = [text for text in self.texts if len(text) == len(self.texts[0])]
        own = [self._eagerly(partial(self._attentions, text)) for text in texts]
        if any(len(m) != self.facts.layers or not all(proper(a, sinks) for a in m) for m in own):
            return True
        batch = lay([TokenizedText((Segment(text, ((0, len(text)),)),)) for text in texts], backbone.device)
        for counted in (True, False)[: 1 + sinks]:
            backbone.facts = replace(backbone.facts, sinks_count=counted)
            backbone.forward(batch, taps=[tap := Matrices()])
            error = max(
                float((ours - torch.cat(theirs)).abs().max()) for ours, *theirs in zip(tap.matrices, *own, strict=True)
            )
            if error <= self.tolerance:
                break
        self.facts = replace(self.facts, sinks_count=backbone.facts.sinks_count)
        self.tried["weights"] = f"{error:.1e} from eager"
        if error > self.tolerance:
            self.tried[way] += f", but its attention weights are {error:.1e} off"
        return error <= self.tolerance

    def _attentions(self, text: list[int]) -> list[Tensor]:
        """The weights that the model's own attention returns: (1, H, n, n) for each layer with attention, or none."""
        ids = torch.tensor([text], device=next(self.model.parameters()).device)
        try:
            matrices = self.model(input_ids=ids, output_attentions=True).attentions or ()
        except (TypeError, AttributeError, ValueError, KeyError):
            return []
        return [a for a in matrices if a is not None]

    def _shares(self, backbone: Backbone, own: list[Tensor]) -> bool:
        """Whether a shared prefix may run once: tried with the longest text twice, and half of it as the prefix."""
        ids, states = max(zip(self.texts, own, strict=True), key=lambda text: len(text[0]))
        backbone.facts = replace(backbone.facts, causal=True, shares=True)
        prefix = ids[: len(ids) // 2]
        return self._error("shared", backbone, [*self.texts, ids], [*own, states], prefix) <= self.tolerance
