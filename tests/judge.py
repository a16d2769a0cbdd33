"""Compare the package's vectors for a type of model with those computed by transformers alone.

The judge runs the Hugging Face model with its own eager attention in float32, one text at a time, without padding,
and computes each method's formula from its states and matrices, without code of the package.
"""

from __future__ import annotations

import inspect
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tests.zoo import first_line
from torch import Tensor, nn
from transformers import (
    MODEL_FOR_TEXT_ENCODING_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForTextEncoding,
    AutoTokenizer,
)

from afterword import Encoder, bellm, classical, ditto, echo, prompt, reba
from afterword.backbone.backbone import Backbone
from afterword.backbone.loading import load_backbone
from afterword.errors import AfterwordError
from afterword.methods import Method

EOL = ('This sentence : "', '" means in one word:"')
WORD = ("The representative word for sentence ", ' is:"')
MASKED = ('This sentence of "', '" means', ".")
SPELLED = "a <s> b </s> c <pad> d [MASK] e <mask> f [CLS] [SEP] g <|endoftext|> h"
LENGTHS = (12, 5, 1, 23, 70, 5, 300, 710)
"""Numbers of tokens of the texts in one batch, which also has two texts with every special token."""
TWICE = 300
"""Longer texts are not judged in two copies or in a template, since the eager matrices would take too long."""
EXACT = 1e-5
"""Relative to the largest component: float32 kernels differ by 1e-6, a wrong mask, position or scale by 1e-3."""

Text = str | list[int]


class NotJudged(Exception):
    """Transformers does not return what a formula needs."""


@dataclass
class Seen:
    """The states (n, D) of each layer, the last states (n, D) and the attention (H, n, n) of each layer for one text.

    `at` is the range of the first copy of the text; the special tokens are before `begin` and from `end` on.
    """

    states: list[Tensor]
    last: Tensor
    attention: list[Tensor]
    at: range
    begin: int
    end: int

    @cached_property
    def new(self) -> Tensor:
        """The maximum over all layers' heads of (A + A^T) / 2, in float64."""
        if not self.attention:
            raise NotJudged("hands out no attention matrices")
        return torch.stack([((a.double() + a.double().mT) / 2).amax(0) for a in self.attention]).amax(0)

    def backward(self, i: int) -> Tensor:
        """e_i = sum over k >= i of the maximum's entry [i, k], times v_k."""
        return self.new[i, i:] @ self.last[i:]

    @property
    def first_last(self) -> Tensor:
        if not self.states:
            raise NotJudged("hands out no hidden states of the last one's shape")
        return (self.states[0] + self.last) / 2

    @property
    def diagonal(self) -> Tensor:
        """The diagonal of layer 1, head 2, both from 0."""
        if len(self.attention) < 2 or len(self.attention[1]) < 3:
            raise NotJudged("hands out no attention matrices with three heads")
        return self.attention[1][2].diagonal().double()


class Judge:
    """A model with its own eager attention, loaded without the package."""

    def __init__(self, folder: Path, dtype: torch.dtype = torch.float32) -> None:
        config = AutoConfig.from_pretrained(folder)
        encoding = type(config) in MODEL_FOR_TEXT_ENCODING_MAPPING
        auto = AutoModelForTextEncoding if encoding else AutoModel
        model = auto.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()
        if dtype == torch.float64:  # the grouped product of experts knows no float64
            model.set_experts_implementation("eager")
        self.folder = folder
        self.model = model.get_encoder() if config.is_encoder_decoder and not encoding else model
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        whole, bare = self.tokenizer("a").input_ids, self.ids("a")
        at = whole.index(bare[0])
        self.prefix, self.suffix = whole[:at], whole[at + 1 :]
        self.arguments = inspect.signature(self.model.forward).parameters
        self.known: dict[Any, Seen] = {}

    def ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False).input_ids)

    def see(self, text: Text, copies: int = 1, around: Sequence[str] = ("", ""), last: int = 0) -> Seen:
        """Run the prefix, the template around copies of the text, and the suffix."""
        key = (text if isinstance(text, str) else tuple(text), copies, tuple(around), last)
        if key not in self.known:
            front, behind = around[0], "".join(around[1:])
            ids = self.ids(text) if isinstance(text, str) else text
            if isinstance(text, str) and copies == 1:
                body = self.ids(f"{front}{text}{behind}")
            else:
                body = [*self.ids(front), *ids * copies, *self.ids(behind)]
            first = len(self.prefix) + len(self.ids(front))
            whole = [*self.prefix, *body, *self.suffix]
            self.known[key] = self.run(whole, range(first, first + len(ids)), last)
        return self.known[key]

    def run(self, whole: list[int], at: range = range(0), last: int = 0) -> Seen:
        """Run token ids without changes."""
        options: dict[str, Any] = {"output_hidden_states": True, "output_attentions": True}
        if "use_cache" in self.arguments:
            options["use_cache"] = False
        if "attention_mask" in self.arguments:
            options["attention_mask"] = torch.ones(1, len(whole), dtype=torch.long)
        with torch.no_grad(), as_it_was(self.model), both_ways(self.model, last):
            out = self.model(input_ids=torch.tensor([whole]), **options)
        n, final = len(whole), getattr(out, "last_hidden_state", None)
        if final is None or final.shape[:2] != (1, n):
            raise NotJudged("gives no state for each token" if final is None else f"gives states {tuple(final.shape)}")
        states = [h[0].double() for h in getattr(out, "hidden_states", None) or () if h.shape == final.shape]
        found = [a for a in getattr(out, "attentions", None) or () if isinstance(a, Tensor)]
        matrices = [a[0] for a in found if a.ndim == 4 and a.shape[-2:] == (n, n)]
        return Seen(states, final[0].double(), matrices, at, len(self.prefix), n - len(self.suffix))

    @cached_property
    def precise(self) -> Judge:
        """The same model in float64."""
        return Judge(self.folder, torch.float64)

    @cached_property
    def causal(self) -> bool:
        """Whether the states do not depend on later tokens."""
        one, other = (self.see([*range(20, 30), end]).last[: len(self.prefix) + 10] for end in (40, 50))
        return bool((one - other).abs().max() <= 1e-4 * one.abs().max())

    def applies(self, name: str) -> bool:
        """Whether a method fits: BeLLM needs a causal model, a masked prompt a mask token."""
        return self.causal if name.startswith("bellm") else name != "prompt mask" or bool(self.tokenizer.mask_token)


@contextmanager
def as_it_was(model: nn.Module) -> Iterator[None]:
    """Restore what a forward pass changes: dynamic rotary frequencies and BigBird's attention remember long texts."""
    kept = [
        (m, dict(vars(m)), [(part, type(part)(part)) for part in vars(m).values() if type(part) in (dict, OrderedDict)])
        for m in model.modules()
    ]
    try:
        yield
    finally:
        for module, attributes, parts in kept:
            vars(module).clear()
            vars(module).update(attributes)
            for part, before in parts:
                part.clear()
                part.update(before)


@contextmanager
def both_ways(model: nn.Module, last: int) -> Iterator[None]:
    """Replace the mask m of the last layers with the larger of m and m.T."""
    if not last:
        yield
        return
    takes = [m for m in model.modules() if "attention_mask" in inspect.signature(m.forward).parameters]
    innermost = [m for m in takes if not any(c is not m and c in takes for c in m.modules())]
    innermost = [m for m in innermost if "att" in type(m).__name__.lower()] or innermost  # a hybrid's, by their names
    changed: list[nn.Module] = []

    def open_up(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        bound = inspect.signature(module.forward).bind(*args, **kwargs)
        mask = bound.arguments.get("attention_mask")
        if not (isinstance(mask, Tensor) and mask.ndim == 4 and mask.shape[-1] == mask.shape[-2]):
            raise NotJudged("its last layers take no square mask")
        bound.arguments["attention_mask"] = mask | mask.mT if mask.dtype == torch.bool else torch.maximum(mask, mask.mT)
        changed.append(module)
        return bound.args, bound.kwargs

    hooks = [m.register_forward_pre_hook(open_up, with_kwargs=True) for m in innermost[-last:]]
    try:
        yield
        if len(changed) != last:
            raise NotJudged("its layers with a mask cannot be told apart")
    finally:
        for hook in hooks:
            hook.remove()


def masked(j: Judge, text: Text) -> Tensor:
    """The state of the template's [MASK], not of one in the text."""
    front, middle, stop = MASKED
    s = j.see(text, around=(front, f"{middle}{j.tokenizer.mask_token}{stop}"))
    return s.last[s.end - len(j.ids(stop)) - 1]


def word(j: Judge, text: Text, last: int) -> Tensor:
    s = j.see(text, around=WORD, last=last)
    return s.last[s.begin : s.end].mean(0)


def reba_mean(s: Seen) -> Tensor:
    return torch.stack([s.backward(i) for i in s.at]).mean(0)


FORMULAS: dict[str, Callable[[Judge, Text], Tensor]] = {
    "classical mean": lambda j, t: j.see(t).last.mean(0),
    "classical last": lambda j, t: j.see(t).last[-1],
    "classical cls": lambda j, t: j.see(t).last[0],
    "classical first_last": lambda j, t: j.see(t).first_last.mean(0),
    "echo mean": lambda j, t: (s := j.see(t, 2)).last[s.at.stop : s.at.stop + len(s.at)].mean(0),
    "prompt eol": lambda j, t: (s := j.see(t, around=EOL)).last[s.end - 1],
    "prompt mask": masked,
    "reba last": lambda j, t: (s := j.see(t, 2)).backward(s.at[-1]),
    "reba mean": lambda j, t: reba_mean(j.see(t, 2)),
    "ditto": lambda j, t: (s := j.see(t)).diagonal @ s.first_last,
    "bellm 1": lambda j, t: word(j, t, 1),
    "bellm 2": lambda j, t: word(j, t, 2),
}
"""The formula of each method."""
METHODS: dict[str, Method] = {
    "classical mean": classical("mean"),
    "classical last": classical("last"),
    "classical cls": classical("cls"),
    "classical first_last": classical("mean", "first_last"),
    "echo mean": echo(2, "mean"),
    "prompt eol": prompt("eol"),
    "prompt mask": prompt("promptbert"),
    "reba last": reba(2, "last"),
    "reba mean": reba(2, "mean"),
    "ditto": ditto((1, 2)),
    "bellm 1": bellm(1),
    "bellm 2": bellm(2),
}
"""The methods of the package, by the names of the formulas."""


@dataclass
class Verdict:
    """The result for one type.

    Attributes:
        kind: the type, or a variant of it.
        way: "flat", "stacked" or "eager"; "" if refused or left out.
        worst: the largest relative difference by method.
        rounding: for differences over `EXACT`, the difference between the model's float32 and float64.
        refused: reasons by refused method; "every method" if the model is refused.
        unjudged: reasons by method that cannot be judged.
        left_out: why the type is not judged at all.
    """

    kind: str
    way: str = ""
    worst: dict[str, float] = field(default_factory=dict)
    rounding: dict[str, float] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    unjudged: dict[str, str] = field(default_factory=dict)
    left_out: str = ""

    @property
    def wrong(self) -> dict[str, float]:
        """The methods with differences over `EXACT` and over the rounding of the model itself."""
        return {name: d for name, d in self.worst.items() if not d <= max(EXACT, self.rounding.get(name, 0.0))}


def judge(kind: str, folder: Path, lengths: Sequence[int] = LENGTHS, dtype: torch.dtype = torch.float32) -> Verdict:
    """Load a model and compare every method that applies, on texts of some lengths in one batch."""
    verdict, own = Verdict(kind), Judge(folder, dtype)
    try:
        first, again = (own.run([*range(20, 90)]).last for _ in range(2))
    except Exception as e:
        verdict.left_out = f"does not run on token ids alone: {first_line(e)}"
        return verdict
    if (first - again).abs().max() > 1e-4 * first.abs().max():
        verdict.left_out = "gives another result each time"
        return verdict
    try:
        backbone = load_backbone(folder, dtype=dtype)
    except Exception as e:
        if "Cannot allocate memory" in str(e):
            verdict.left_out = "cannot be built tiny: it takes too much memory"
            return verdict
        verdict.refused["every method"] = _reason(e).replace(f"{folder} ", "").replace(str(folder), kind)
        return verdict
    return compare(verdict, own, backbone, make_texts(own, backbone.facts.max_length, lengths))


def compare(
    verdict: Verdict, own: Judge, backbone: Backbone, texts: list[Text], names: Iterable[str] = METHODS
) -> Verdict:
    """Compare every method that applies, on texts in one batch."""
    verdict.way = backbone.facts.way
    for name in filter(own.applies, names):
        _compare(verdict, own, backbone, name, METHODS[name], texts)
    return verdict


def _compare(verdict: Verdict, own: Judge, backbone: Backbone, name: str, method: Method, texts: list[Text]) -> None:
    """Compare one method on every text that fits into its template or twice, in one batch, with each text alone."""
    limit = backbone.facts.max_length or 10_000
    if method.layout.copies == 2:
        texts = [t for t in texts if 2 * len(t) + 2 <= min(limit, 2 * TWICE + 2)]
    elif method.layout.template is not None:
        texts = [t for t in texts if len(t) + 80 <= min(limit, TWICE + 80)]
    if not texts:
        verdict.unjudged[name] = "no text has room"
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got = Encoder(backbone, method).encode(texts)
    except Exception as e:
        verdict.refused[name] = _reason(e)
        return
    try:
        wanted = np.stack([FORMULAS[name](own, t).numpy() for t in texts])
    except NotJudged as e:
        verdict.unjudged[name] = str(e)
        return
    verdict.worst[name] = difference(got, wanted)
    if EXACT < verdict.worst[name] < float("inf"):
        truth = np.stack([FORMULAS[name](own.precise, t).numpy() for t in texts])
        verdict.rounding[name] = difference(wanted, truth)
        verdict.worst[name] = difference(got, truth)


def _reason(e: Exception) -> str:
    """The reason for a refusal; an error of another library is a crash."""
    return first_line(e) if isinstance(e, AfterwordError) else f"crash: {type(e).__name__}: {first_line(e)}"


def make_texts(own: Judge, limit: int | None, lengths: Sequence[int] = LENGTHS) -> list[Text]:
    """Random texts as ids, one of them with every special token, and one text that spells all of these."""
    g = torch.Generator().manual_seed(3)
    room = 10_000 if limit is None else limit - 2
    known = getattr(own.model.config, "vocab_size", None) or 10_000
    made = [torch.randint(10, min(260, known), (min(n, room),), generator=g).tolist() for n in lengths]
    mixed = [*made[0][:4], *(x for t in own.tokenizer.all_special_ids for x in (t, *made[0][4:6])), *made[0][6:9]]
    spelled = SPELLED if len(own.ids(SPELLED)) <= room else SPELLED[:5]
    texts = [*made[:4], spelled, *made[4:], mixed[:room]]
    return [t for t in texts if max(own.ids(t) if isinstance(t, str) else t) < known]


def difference(got: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference relative to the largest component of a vector; infinite for different shapes."""
    if got.shape != wanted.shape or not np.isfinite(got).all():
        return float("inf")
    size = np.maximum(np.abs(wanted).max(1), np.finfo(np.float32).tiny)
    return float((np.abs(got - wanted).max(1) / size).max())
