"""Sentence vectors of many texts by one or several methods, which share a forward where they can."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..backbone.backbone import Backbone
from ..errors import InputError
from ..methods import Method
from ..post import Post, after
from ..text.batch import Batch
from ..text.distinct import Distinct
from ..text.inputs import check_ids, check_written, is_blank
from ..text.layout import Layout, Text
from ..text.segments import TokenizedText
from .batches import Budget, each
from .forward import vectors
from .limits import Cuts, Limits
from .output_arrays import WINDOW, Array, output_arrays
from .progress import progress
from .sharing import Share, shares


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
        methods: the methods.
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
    methods: Sequence[Method],
    given: Distinct,
    limits: Limits,
    post: Sequence[Post],
    results: Sequence[Array],
) -> Cuts:
    """Compute sentence vectors and write them to their rows of ``results``; arguments as for `sentence_vectors`.

    Returns:
        Which texts were cut, for the method that cut most of them.
    """
    cuts, budget = [Cuts() for _ in methods], limits.budget(backbone.device)
    with torch.no_grad(), progress(given.total * len(methods), limits) as bar:
        for first in range(0, len(given.texts), WINDOW):
            window = given.some(slice(first, first + WINDOW))
            _Window(backbone, methods, window, limits, post, budget).run(results, cuts, bar)
    return max(cuts, key=lambda c: len(c.lost), default=Cuts())


@dataclass
class _Window:
    """A window of `WINDOW` texts, which are sorted by length together."""

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

    def _write(self, layout: Layout) -> list[TokenizedText]:
        given, tokenizer = self.given, self.backbone.tokenizer
        written = layout.write(given.texts, tokenizer, self.limits.max_length, conditions=given.conditions)
        return check_written(written, tokenizer, self.backbone.vocabulary_size, given.named)

    def _passes(
        self, share: Share, cuts: Sequence[Cuts]
    ) -> Iterator[tuple[tuple[int, ...], list[TokenizedText], list[int]]]:
        """For each run: the methods, the tokenized texts, and the indices of the texts to run.

        The first run is shared. A text that is too long for the most copies is run again for each layout.
        """
        shared = self._write(share.layout)
        layouts = {self.methods[i].layout for i in share.methods}
        everything = list(range(len(self.given.texts)))
        if len({lay.total_copies for lay in layouts}) == 1:
            for i in share.methods:
                cuts[i].note(shared, self.limits, self.given.named)
            yield share.methods, shared, everything
            return
        fit = [i for i in everything if shared[i].kept == shared[i].total]
        yield share.methods, shared, fit
        for layout in layouts:
            members = tuple(i for i in share.methods if self.methods[i].layout == layout)
            alone = self._write(layout)
            for i in members:
                cuts[i].note(alone, self.limits, self.given.named)
            yield members, alone, sorted(set(everything) - set(fit))

    def _pass(
        self,
        methods: tuple[int, ...],
        writings: list[TokenizedText],
        wanted: list[int],
        results: Sequence[Array],
        bar: Any,
    ) -> None:
        wanted = self._without_empty(writings, wanted, methods, results, bar)

        def run(batch: Batch, _: list[int]) -> list[Tensor]:
            return vectors(self.backbone, [self.methods[m] for m in methods], batch)

        for indices, outputs in each(writings, run, self.budget, self.backbone.device, wanted):
            rows = self.given.where(indices)
            times = [len(self.given.rows[i]) for i in indices]
            for m, vector in zip(methods, outputs, strict=True):
                once = after(vector[:, 0], self.post).cpu().numpy()
                results[m][rows] = once if len(rows) == len(indices) else np.repeat(once, times, axis=0)
            bar(len(rows) * len(methods))

    def _without_empty(
        self,
        writings: list[TokenizedText],
        wanted: list[int],
        methods: tuple[int, ...],
        results: Sequence[Array],
        bar: Any,
    ) -> list[int]:
        texts = self.given.texts
        empty = [i for i in wanted if writings[i].total == 0 or is_blank(texts[i])]
        if not empty:
            return wanted
        rows = self.given.where(empty)
        if self.limits.on_empty == "error":
            text = texts[empty[0]]
            what = "is blank" if is_blank(text) else "has no token that the model knows"
            raise InputError(
                f"text {self.given.named[empty[0]][0]} {what}, {text!r:.40}: on_empty='nan' gives it a row of NaN"
            )
        for m in methods:
            results[m][rows] = np.nan
        bar(len(rows) * len(methods))
        return [i for i in wanted if i not in set(empty)]
