"""Every method from a model's own eager attention: one unpadded text at a time, whole matrices, plain formulas.

It shares no code with the package: our attention backend is compared with it.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from tests.tiny import tiny
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoModelForTextEncoding, AutoTokenizer

from afterword.backbone.backbone import Backbone
from afterword.backbone.loading import load_backbone
from afterword.methods import Method, bellm, classical, ditto, echo, prompt, reba

EOL = ('This sentence : "', '" means in one word:"')
BELLM = ("The representative word for sentence ", ' is:"')
MASKED = ('This sentence of "', '" means[MASK].')


@dataclass
class Seen:
    """One text as the model saw it, in float64: states (L + 1, n, D), last (n, D), attention (L, H, n, n)."""

    states: Tensor
    last: Tensor
    attention: Tensor
    at: range
    length: int


class Eager:
    """A model with its own eager attention, loaded without the package."""

    def __init__(self, folder: Path, dtype: torch.dtype = torch.float32, **options: Any) -> None:
        kind = AutoConfig.from_pretrained(folder).model_type
        auto = AutoModelForTextEncoding if kind in ("t5", "mt5") else AutoModel
        options.setdefault("attn_implementation", "eager")
        self.model = auto.from_pretrained(folder, dtype=dtype, **options).eval()
        if auto is AutoModel and self.model.config.is_encoder_decoder:
            self.model = self.model.get_encoder()
        if dtype == torch.float64:  # the grouped product of experts knows no float64
            self.model.set_experts_implementation("eager")
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        with_text = self.tokenizer("a").input_ids
        at = with_text.index(self.tokenizer("a", add_special_tokens=False).input_ids[0])
        self.prefix, self.suffix = with_text[:at], with_text[at + 1 :]

    @staticmethod
    def attention_layers(model: nn.Module) -> list[nn.Module]:
        """The innermost attention modules that take a mask, in order; convolutions take one too."""
        named = [m for m in model.modules() if "ttention" in type(m).__name__]
        takes = [m for m in named if "attention_mask" in inspect.signature(m.forward).parameters]
        return [m for m in takes if not any(c is not m and c in takes for c in m.modules())]

    @contextmanager
    def both_ways(self, model: nn.Module, last: int) -> Iterator[None]:
        """The last layers' mask m becomes m | m.T: what is closed in one direction is open where the other is."""

        def open_up(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            bound = inspect.signature(module.forward).bind(*args, **kwargs)
            mask = bound.arguments["attention_mask"]
            assert mask.dtype.is_floating_point and mask.shape[-1] == mask.shape[-2]
            bound.arguments["attention_mask"] = torch.maximum(mask, mask.mT)
            return bound.args, bound.kwargs

        layers = self.attention_layers(model)[-last:] if last else []
        hooks = [m.register_forward_pre_hook(open_up, with_kwargs=True) for m in layers]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def see(self, ids: Sequence[int], *, copies: int = 1, around: tuple[str, str] = ("", ""), last: int = 0) -> Seen:
        """Run prefix + template + ids (so many copies) + template + suffix."""
        front, back = (self.tokenizer(t, add_special_tokens=False).input_ids for t in around)
        whole = [*self.prefix, *front, *ids * copies, *back, *self.suffix]
        extra = {"use_cache": False} if "use_cache" in inspect.signature(self.model.forward).parameters else {}
        dynamic = "dynamic" in str(getattr(self.model.config, "rope_parameters", None))
        model = copy.deepcopy(self.model) if dynamic else self.model  # its rotary frequencies remember longer texts
        with torch.no_grad(), self.both_ways(model, last):
            out = model(input_ids=torch.tensor([whole]), output_hidden_states=True, output_attentions=True, **extra)
        first = len(self.prefix) + len(front)
        attention = torch.stack([a[0].double() for a in out.attentions]) if getattr(out, "attentions", None) else None
        return Seen(
            torch.stack([h[0].double() for h in out.hidden_states]),
            out.last_hidden_state[0].double(),
            attention,
            range(first, first + len(ids)),
            len(whole),
        )


def backward(seen: Seen, i: int, *, full: bool = False, layers: slice = slice(None)) -> Tensor:
    """e_i = sum over k >= i of max over heads of (A + A^T) / 2 [i, k], times v_k."""
    a = seen.attention[layers]
    new = ((a + a.mT) / 2).amax((0, 1))
    first = 0 if full else i
    return new[i, first:] @ seen.last[first:]


def reba_mean(m: Eager, ids: list[int], **options: Any) -> Tensor:
    s = m.see(ids, copies=2)
    return torch.stack([backward(s, i, **options) for i in s.at]).mean(0)


def reba_last(m: Eager, ids: list[int], **options: Any) -> Tensor:
    s = m.see(ids, copies=2)
    return backward(s, s.at[-1], **options)


def ditto_sum(m: Eager, ids: list[int]) -> Tensor:
    s = m.see(ids)
    return s.attention[1, 2].diagonal() @ (s.states[0] + s.last) / 2


def echo_mean(m: Eager, ids: list[int]) -> Tensor:
    s = m.see(ids, copies=2)
    return s.last[s.at[-1] + 1 : s.at[-1] + 1 + len(ids)].mean(0)


def bellm_mean(m: Eager, ids: list[int], last: int) -> Tensor:
    s = m.see(ids, around=BELLM, last=last)
    return s.last[len(m.prefix) : s.length - len(m.suffix)].mean(0)


def prompt_mask(m: Eager, ids: list[int]) -> Tensor:
    s = m.see(ids, around=MASKED)
    behind = m.tokenizer(MASKED[1], add_special_tokens=False).input_ids
    return s.last[s.at[-1] + 1 + behind.index(m.tokenizer.mask_token_id)]


Reference = Callable[[Eager, list[int]], Tensor]
STATES: dict[str, tuple[Method, Reference]] = {
    "classical mean": (classical("mean"), lambda m, ids: m.see(ids).last.mean(0)),
    "classical last": (classical("last"), lambda m, ids: m.see(ids).last[-1]),
    "echo mean": (echo(2, "mean"), echo_mean),
    "prompt": (prompt("eol"), lambda m, ids: (s := m.see(ids, around=EOL)).last[s.length - len(m.suffix) - 1]),
}
"""Methods that read no attention."""
READING: dict[str, tuple[Method, Reference]] = {
    "reba last": (reba(2, "last"), reba_last),
    "reba mean": (reba(2, "mean"), reba_mean),
    "reba full": (reba(2, "mean", triangle="full"), lambda m, ids: reba_mean(m, ids, full=True)),
    "reba last layer": (
        reba(2, "mean", attention="last_layer"),
        lambda m, ids: reba_mean(m, ids, layers=slice(-1, None)),
    ),
    "ditto": (ditto((1, 2)), ditto_sum),
}
"""Methods that read attention."""
SEEING: dict[str, tuple[Method, Reference]] = {
    "bellm 1": (bellm(1), lambda m, ids: bellm_mean(m, ids, 1)),
    "bellm 2": (bellm(2), lambda m, ids: bellm_mean(m, ids, 2)),
}
"""Methods that change what layers see; on causal models."""
MASKING: dict[str, tuple[Method, Reference]] = {"prompt mask": (prompt("promptbert"), prompt_mask)}
"""Methods that need [MASK]."""


def word_mean(m: Eager, ids: list[int], span: tuple[int, int]) -> Tensor:
    """ReBA's vector of a word: the mean of its tokens' e_i."""
    s = m.see(ids, copies=2)
    return torch.stack([backward(s, s.at[i]) for i in range(*span)]).mean(0)


class Today(Eager):
    """A loaded model as it is now: a copy in eval mode, with eager attention."""

    def __init__(self, backbone: Backbone) -> None:
        self.model = copy.deepcopy(backbone.model).eval()
        self.model.set_attn_implementation("eager")
        self.tokenizer = backbone.tokenizer.hf
        with_text = self.tokenizer("a").input_ids
        at = with_text.index(self.tokenizer("a", add_special_tokens=False).input_ids[0])
        self.prefix, self.suffix = with_text[:at], with_text[at + 1 :]


@lru_cache
def loaded(folder: Path, kind: str) -> tuple[Eager, Backbone]:
    """A tiny model twice: in float64 with its own eager attention, and as the package loads it."""
    tiny(kind, folder / kind)
    return Eager(folder / kind, torch.float64), load_backbone(folder / kind)
