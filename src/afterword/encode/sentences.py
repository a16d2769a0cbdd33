"""Many texts, one or several methods: windows, batches, one forward where several methods can share it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..backbone.backbone import Backbone
from ..backbone.bidirectional import Sight
from ..errors import InputError, MethodError
from ..methods import Method
from ..methods.weights import SelfAttention
from ..post import Post, width_after
from ..text.batch import lay
from ..text.distinct import Distinct
from ..text.inputs import check_ids, check_written
from ..text.layout import Layout, Text
from ..text.segments import Writing
from ..text.words import Word, place
from .forward import vectors
from .limits import Budget, Cuts, Limits, longest_first

Array = NDArray[np.floating[Any]]

WINDOW = 16_384  # texts that are sorted by length together


def check_method(backbone: Backbone, method: Method) -> None:
    """Check a method against a model; warn of what has no effect.

    Raises:
        MethodError: they do not fit.
    """
    facts = backbone.facts
    method.states.check(facts.states)
    if method.states.truncates:
        _ = backbone.stack  # found once, before several threads come
    backbone.require(method.weigh.reads_attention, method.sight)
    method.weigh.check(facts.layers, facts.heads, backbone.vocabulary_size)
    if method.sight:
        method.sight.of(facts.layers)
        if not facts.causal:
            warnings.warn(f"{facts.kind} sees both ways already: bellm changes nothing but the prompt", stacklevel=4)
    if isinstance(method.weigh, SelfAttention) and facts.causal:
        warnings.warn(
            f"ditto on {facts.kind}, which is causal: the first token attends to nothing but itself, so that "
            "A_11 = 1 always; the paper's method is for encoders",
            stacklevel=4,
        )


def width_of(backbone: Backbone, method: Method, steps: Sequence[Post] = ()) -> int:
    """D, the width of a vector by a method after some steps.

    Raises:
        NotFitted: a step has seen no vectors yet.
        MethodError: a step takes vectors of another width.
    """
    return width_after(method.states.width(backbone), steps)


def places_for(
    backbone: Backbone, methods: Sequence[Method], texts: int, post: Sequence[Post], out: Array | None = None
) -> list[Array]:
    """Where vectors are written, per method (n, D).

    Raises:
        InputError: ``out`` is no array that vectors can be written to, or has another shape.
    """
    shapes = [(texts, width_of(backbone, method, post)) for method in methods]
    if out is None:
        dtype = np.float64 if backbone.dtype == torch.float64 else np.float32
        return [np.empty(shape, dtype) for shape in shapes]
    if not isinstance(out, np.ndarray) or out.dtype not in (np.float32, np.float64) or not out.flags.writeable:
        what = f"a {type(out).__name__}"
        if isinstance(out, np.ndarray):
            what = f"an array of {out.dtype}" + ("" if out.flags.writeable else " that cannot be written to")
        raise InputError(f"out is {what}: give a numpy array of float32 or float64 that can be written to")
    if out.shape != shapes[0]:
        raise InputError(f"out has the shape {out.shape}: {texts} texts of this encoder need {shapes[0]}")
    rows, columns = map(abs, out.strides)
    if rows < columns * out.shape[1] and columns < rows * out.shape[0]:
        raise InputError(f"out has rows that lie over one another (strides {out.strides}): give an array of its own")
    return [out]


def by_name(methods: Mapping[str, Method] | Sequence[Method]) -> dict[str, Method]:
    """Methods by name; those of a list by their own.

    Raises:
        MethodError: two of a list have one name.
    """
    if isinstance(methods, Mapping):
        return dict(methods)
    named: dict[str, Method] = {}
    for method in methods:
        if method.name in named:
            raise MethodError(f"two methods are named {method.name!r}: give a dict, with a name of your own for each")
        named[method.name] = method
    return named


@dataclass(frozen=True)
class Share:
    """Methods that share a forward, and how its texts are written."""

    layout: Layout
    methods: tuple[int, ...]


def shares(methods: Sequence[Method], backbone: Backbone) -> list[Share]:
    """Which methods share a forward.

    Methods of one layout and one sight always do. Beyond that, on a causal model, what is nothing but copies of the
    text shares the forward with most copies: a first copy does not know of a second. A token behind the text would,
    and so would a first copy whose rotary frequencies depend on how long the whole is.
    """
    groups: dict[tuple[object, ...], list[int]] = {}
    alike = backbone.facts.causal and backbone.facts.split_at is None
    for i, method in enumerate(methods):
        layout = method.layout
        trails = layout.add_special_tokens and bool(backbone.tokenizer.suffix)
        free = layout.plain and alike and not trails and not method.sight
        key = replace(layout, copies=1, join=None) if free else layout
        groups.setdefault((key, method.sight or Sight()), []).append(i)
    made = []
    for members in groups.values():
        lead = max((methods[i].layout for i in members), key=lambda lay: lay.total_copies)
        made.append(Share(lead, tuple(members)))
    return made


def sentence_vectors(
    backbone: Backbone,
    methods: Sequence[Method],
    texts: Sequence[Text],
    limits: Limits,
    post: Sequence[Post] = (),
    conditions: Sequence[str] | None = None,
    out: Array | None = None,
) -> list[Array]:
    """Sentence vectors of all texts by all methods.

    Args:
        backbone: the model.
        methods: any.
        texts: checked.
        limits: how much at a time.
        post: steps applied to every vector.
        conditions: one per text, for a template with {condition}.
        out: where to write the vectors of one method; else arrays are made.

    Returns:
        Per method (n, D), in order.

    Raises:
        InputError: a text cannot be used, or ``out`` has another shape.
    """
    check_ids(texts, backbone.vocabulary_size)
    results = places_for(backbone, methods, len(texts), post, out)
    cuts = write_vectors(backbone, methods, Distinct.of(texts, conditions), limits, post, results)
    cuts.warn(limits)
    return results


def write_vectors(
    backbone: Backbone,
    methods: Sequence[Method],
    given: Distinct,
    limits: Limits,
    post: Sequence[Post],
    results: Sequence[Array],
) -> Cuts:
    """Write sentence vectors to their rows; arguments as for `sentence_vectors`.

    Returns:
        What was cut, by the method that lost most texts.
    """
    cuts, budget = [Cuts() for _ in methods], limits.budget(backbone.device)
    with torch.no_grad(), progress(given.total * len(methods), limits) as bar:
        for first in range(0, len(given.texts), WINDOW):
            window = given.some(slice(first, first + WINDOW))
            _Window(backbone, methods, window, limits, post, budget).run(results, cuts, bar)
    return max(cuts, key=lambda c: len(c.lost), default=Cuts())


@dataclass
class _Window:
    """Texts that are sorted by length together."""

    backbone: Backbone
    methods: Sequence[Method]
    given: Distinct
    limits: Limits
    post: Sequence[Post]
    budget: Budget

    def run(self, results: Sequence[Array], cuts: Sequence[Cuts], bar: Any) -> None:
        for share in shares(self.methods, self.backbone):
            for methods, writings, wanted in self._passes(share, cuts):
                self._pass(methods, writings, wanted, results, bar)

    def _write(self, layout: Layout) -> list[Writing]:
        given, tokenizer = self.given, self.backbone.tokenizer
        written = layout.write(given.texts, tokenizer, self.limits.max_length, conditions=given.conditions)
        return check_written(written, tokenizer, self.backbone.vocabulary_size, given.named)

    def _passes(self, share: Share, cuts: Sequence[Cuts]) -> Iterator[tuple[tuple[int, ...], list[Writing], list[int]]]:
        """Methods, writings and the texts that are run so: all, or those too long to share."""
        lead = self._write(share.layout)
        layouts = {self.methods[i].layout for i in share.methods}
        everything = list(range(len(self.given.texts)))
        if len({lay.total_copies for lay in layouts}) == 1:
            for i in share.methods:
                cuts[i].note(lead, self.limits, self.given.named)
            yield share.methods, lead, everything
            return
        fit = [i for i in everything if lead[i].kept == lead[i].total]
        yield share.methods, lead, fit
        for layout in layouts:
            members = tuple(i for i in share.methods if self.methods[i].layout == layout)
            alone = self._write(layout)
            for i in members:
                cuts[i].note(alone, self.limits, self.given.named)
            yield members, alone, sorted(set(everything) - set(fit))

    def _pass(
        self, methods: tuple[int, ...], writings: list[Writing], wanted: list[int], results: Sequence[Array], bar: Any
    ) -> None:
        wanted = self._without_empty(writings, wanted, methods, results, bar)
        sizes = [w.size for w in writings]

        def run(indices: list[int]) -> list[Tensor]:
            batch = lay([writings[i] for i in indices], self.backbone.device)
            return vectors(self.backbone, [self.methods[m] for m in methods], batch)

        for indices, made in self.budget.batches(sizes, run, longest_first(sizes, wanted)):
            rows = self.given.where(indices)
            times = [len(self.given.rows[i]) for i in indices]
            for m, vector in zip(methods, made, strict=True):
                found = vector[:, 0]
                for step in self.post:
                    found = step(found)
                once = found.cpu().numpy()
                results[m][rows] = once if len(rows) == len(indices) else np.repeat(once, times, axis=0)
            bar(len(rows) * len(methods))

    def _without_empty(
        self, writings: list[Writing], wanted: list[int], methods: tuple[int, ...], results: Sequence[Array], bar: Any
    ) -> list[int]:
        texts = self.given.texts
        empty = [i for i in wanted if writings[i].total == 0 or _blank(texts[i])]
        if not empty:
            return wanted
        rows = self.given.where(empty)
        if self.limits.on_empty == "error":
            text = texts[empty[0]]
            what = "blank" if _blank(text) else "of no token the model knows"
            raise InputError(
                f"text {self.given.named[empty[0]][0]} is {what}, {text!r:.40}: on_empty='nan' gives it a row of NaN"
            )
        for m in methods:
            results[m][rows] = np.nan
        bar(len(rows) * len(methods))
        return [i for i in wanted if i not in set(empty)]


def refuse_blank(texts: list[Text]) -> list[Text]:
    """The texts, none of which is empty or blank.

    Raises:
        InputError: one is.
    """
    blank = next((i for i, text in enumerate(texts) if _blank(text)), None)
    if blank is not None:
        raise InputError(f"text {blank} is blank, {texts[blank]!r:.40}: leave it out of the fit")
    return texts


def _blank(text: Text) -> bool:
    return not text.strip() if isinstance(text, str) else not text


class progress:  # noqa: N801  (reads as a function: a context manager)
    """A bar on stderr, or a function that is told; neither where nobody asked.

    Args:
        total: texts to come.
        limits: say what was asked for.
    """

    def __init__(self, total: int, limits: Limits) -> None:
        self.bar: Any = None
        self.told = limits.show_progress_bar if callable(limits.show_progress_bar) else None
        if limits.show_progress_bar and self.told is None:
            from tqdm.auto import tqdm

            self.bar = tqdm(total=total, unit="text", desc="embedding")

    def __enter__(self) -> Any:
        return self.bar.update if self.bar is not None else self.told or (lambda _: None)

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.close()


def word_vectors(
    backbone: Backbone,
    method: Method,
    texts: Sequence[Text],
    words: Sequence[Sequence[Word]],
    limits: Limits,
    post: Sequence[Post] = (),
) -> list[Array]:
    """Vectors of the words of each text.

    Returns:
        Per text (words, D).

    Raises:
        WordNotFound: one is not in its text, or was cut off.
    """
    check_ids(texts, backbone.vocabulary_size)
    writings = method.layout.write(texts, backbone.tokenizer, limits.max_length, offsets=True)
    check_written(writings, backbone.tokenizer, backbone.vocabulary_size)
    copy = method.layout.total_copies if method.weigh.for_words().copy in ("last", "tail") else 1
    tokens = place(words, texts, writings, copy)
    cuts = Cuts()
    cuts.note(writings, limits)
    rows: list[Array] = [np.zeros((0, backbone.facts.width), np.float32)] * len(texts)

    def run(indices: list[int]) -> Tensor:
        batch = lay([writings[i] for i in indices], backbone.device)
        return vectors(backbone, [method], batch, [tokens[i] for i in indices])[0]

    sizes = [w.size for w in writings]
    wanted = longest_first(sizes, [i for i, w in enumerate(words) if w])
    with torch.no_grad():
        for indices, made in limits.budget(backbone.device).batches(sizes, run, wanted):
            for i, vector in zip(indices, made, strict=True):
                found = vector[: len(tokens[i])]
                for step in post:
                    found = step(found)
                rows[i] = found.cpu().numpy()
    cuts.warn(limits)
    return rows
