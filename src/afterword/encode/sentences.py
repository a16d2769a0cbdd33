"""Sentence vectors of many texts by one or several methods, which share a forward where they can."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..backbone.backbone import Backbone
from ..errors import InputError
from ..methods import AnyMethod, Method
from ..post import Post
from ..text.batch import Batch
from ..text.distinct import Distinct
from ..text.inputs import check_ids, check_written, is_blank
from ..text.layout import Layout, Text
from ..text.segments import TokenizedText
from .batches import Budget, each
from .forward import vectors
from .joining import Rows
from .limits import Limits, Losses
from .output_arrays import WINDOW, Array, output_arrays
from .progress import progress
from .sharing import Share, shares

Place = tuple[Rows, int]
"""Where the vectors of a method go: the rows of itself or of its ensemble, and its number there."""


def sentence_vectors(
    backbone: Backbone,
    methods: Sequence[AnyMethod],
    texts: Sequence[Text],
    limits: Limits,
    post: Sequence[Post] = (),
    conditions: Sequence[str] | None = None,
    out: Array | None = None,
) -> list[Array]:
    """Sentence vectors of all texts by all methods.

    Args:
        backbone: the model.
        methods: methods and ensembles.
        texts: texts that `check_texts` accepted.
        limits: limits on texts and batches.
        post: post-processing steps, applied to every vector.
        conditions: one per text, for a template with {condition}.
        out: an array that the vectors of one method are written to; None = new arrays.

    Returns:
        For each method, vectors (n, D) in the order of the texts.

    Raises:
        InputError: a text cannot be used, or ``out`` has another shape.
    """
    check_ids(texts, backbone.vocabulary_size)
    results = output_arrays(backbone, methods, len(texts), post, out)
    cuts = write_vectors(backbone, methods, Distinct.from_texts(texts, conditions), limits, post, results)
    cuts.warn(limits)
    return results


def write_vectors(
    backbone: Backbone,
    methods: Sequence[AnyMethod],
    given: Distinct,
    limits: Limits,
    post: Sequence[Post],
    results: Sequence[Array],
) -> Losses:
    """Compute sentence vectors and write them to their rows of ``results``; arguments as for `sentence_vectors`.

    Returns:
        Which texts were cut, for the method that cut most of them.
    """
    members = [member for method in methods for member in method.members]
    cuts, budget, total = (
        [Losses(unknown_id=backbone.tokenizer.unknown_id) for _ in members],
        limits.budget(backbone.device),
        given.total,
    )
    with torch.no_grad(), progress(total * len(methods), limits, total * len(members)) as bar:
        for first in range(0, len(given.texts), WINDOW):
            window = given.some(slice(first, first + WINDOW))
            places = [
                (rows, i)
                for method, result in zip(methods, results, strict=True)
                for rows in [Rows(backbone, method, window, post, result)]
                for i in range(len(method.members))
            ]
            _Window(backbone, members, window, limits, budget, places, cuts, bar).run()
    return max(cuts, key=lambda c: len(c.lost), default=Losses())


@dataclass
class _Window:
    """A window of `WINDOW` texts, which are sorted by length together."""

    backbone: Backbone
    methods: Sequence[Method]
    given: Distinct
    limits: Limits
    budget: Budget
    places: Sequence[Place]
    cuts: Sequence[Losses]
    bar: Any

    def run(self) -> None:
        for share in shares(self.methods, self.backbone):
            for methods, writings, wanted in self._passes(share):
                self._pass(methods, writings, wanted)

    def _write(self, layout: Layout) -> list[TokenizedText]:
        given, tokenizer = self.given, self.backbone.tokenizer
        beside = any("condition" in method.layout.fields for method in self.methods)  # of one ensemble
        conditions = None if beside and "condition" not in layout.fields else given.conditions
        written = layout.write(given.texts, tokenizer, self.limits.max_length, conditions=conditions)
        return check_written(written, tokenizer, self.backbone.vocabulary_size, given.named)

    def _passes(self, share: Share) -> Iterator[tuple[tuple[int, ...], list[TokenizedText], list[int]]]:
        """For each run: the methods, the tokenized texts, and the indices of the texts to run.

        The first run is shared. A text that is too long for the most copies is run again for each layout.
        """
        shared = self._write(share.layout)
        layouts = dict.fromkeys(self.methods[i].layout for i in share.methods)
        everything = list(range(len(self.given.texts)))
        if len({lay.total_copies for lay in layouts}) == 1:
            for i in share.methods:
                self.cuts[i].note(shared, self.limits, self.given.named)
            yield share.methods, shared, everything
            return
        fit = [i for i in everything if shared[i].kept == shared[i].total]
        yield share.methods, shared, fit
        for layout in layouts:
            members = tuple(i for i in share.methods if self.methods[i].layout == layout)
            alone = self._write(layout)
            for i in members:
                self.cuts[i].note(alone, self.limits, self.given.named)
            yield members, alone, sorted(set(everything) - set(fit))

    def _pass(self, methods: tuple[int, ...], writings: list[TokenizedText], wanted: list[int]) -> None:
        wanted = self._without_empty(methods, writings, wanted)

        def run(batch: Batch, _: list[int]) -> list[Tensor]:
            return vectors(self.backbone, [self.methods[m] for m in methods], batch)

        for indices, outputs in each(writings, run, self.budget, self.backbone.device, wanted):
            for m, vector in zip(methods, outputs, strict=True):
                rows, i = self.places[m]
                rows.add(i, indices, vector[:, 0])
            self.bar(len(self.given.where(indices)) * len(methods))

    def _without_empty(self, methods: tuple[int, ...], writings: list[TokenizedText], wanted: list[int]) -> list[int]:
        texts = self.given.texts
        empty = [i for i in wanted if writings[i].total == 0 or is_blank(texts[i])]
        if not empty:
            return wanted
        if self.limits.on_empty == "error":
            text = texts[empty[0]]
            what = "is blank" if is_blank(text) else "has no token that the model knows"
            raise InputError(
                f"text {self.given.named[empty[0]][0]} {what}, {text!r:.40}: on_empty='nan' gives it a row of NaN"
            )
        for m in methods:
            self.places[m][0].leave(empty)
        self.bar(len(self.given.where(empty)) * len(methods))
        return [i for i in wanted if i not in set(empty)]
