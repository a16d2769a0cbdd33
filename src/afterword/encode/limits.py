"""Limits on texts and batches, batches of bounded size, counts of truncated texts, and progress bars."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import torch

from ..errors import InputError, ModelError, TextsCut, TextsUnknown, TooLong, warn
from ..text.batch import Batch, lay
from ..text.segments import TokenizedText

OnEmpty = Literal["error", "nan"]
OnLong = Literal["warn", "error", "ignore"]
ShowProgress = bool | Callable[[int], object]
"""Whether to show a progress bar on stderr; or a function, called with the number of newly finished texts."""

Output = TypeVar("Output")

TOKENS = {"cpu": 2048, "cuda": 32_768}  # default number of tokens in a batch


def count(name: str, value: object) -> int | None:
    """Validate an argument that must be None or a whole number (also numpy's) of at least 1; raises InputError."""
    if value is None:
        return None
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or int(value) < 1:
        raise InputError(f"{name}={value!r}: pass a whole number of at least 1")
    return int(value)


@dataclass(frozen=True)
class Limits:
    """Limits on texts and batches, and what to do with texts that exceed them.

    Args:
        max_length: maximum number of tokens per text, or per chunk if texts are split into chunks.
        batch_size: maximum number of texts in a batch.
        batch_tokens: approximate number of tokens in a batch.
        on_long: truncate a text longer than `max_length` with a warning ("warn") or without ("ignore"), or refuse it
            ("error"). "ignore" also suppresses the warning about texts of mostly unknown tokens.
        on_empty: refuse a text without tokens ("error"), or give it a row of NaN ("nan").
        show_progress_bar: see `ShowProgress`.
    """

    max_length: int | None = None
    batch_size: int | None = None
    batch_tokens: int | None = None
    on_long: OnLong = "warn"
    on_empty: OnEmpty = "error"
    show_progress_bar: ShowProgress = False

    def __post_init__(self) -> None:
        for name in ("max_length", "batch_size", "batch_tokens"):
            object.__setattr__(self, name, count(name, getattr(self, name)))
        if self.on_long not in ("warn", "error", "ignore"):
            raise InputError(f"on_long={self.on_long!r}: choose warn, error or ignore")
        if self.on_empty not in ("error", "nan"):
            raise InputError(f"on_empty={self.on_empty!r}: choose error or nan")

    def tokens(self, device: torch.device) -> int:
        """The maximum number of tokens in a batch on this device."""
        return self.batch_tokens or TOKENS.get(device.type, 8192)

    def budget(self, device: torch.device) -> Budget:
        """The batch limits at the start of a run."""
        return Budget(self.tokens(device), self.batch_size)


@dataclass
class Truncation:
    """Counts truncated texts, and texts of mostly unknown tokens.

    Attributes:
        lost: the number of tokens cut from each truncated text.
        texts: the number of texts.
        unknown: the number of texts in which at least half of the tokens are unknown.
        unknown_id: the id of the tokenizer's unknown token.
    """

    lost: list[int] = field(default_factory=list)
    texts: int = 0
    unknown: int = 0
    unknown_id: int | None = None

    def note(
        self, writings: Sequence[TokenizedText], limits: Limits, rows: Sequence[Sequence[int]] | None = None
    ) -> None:
        """Count texts; raises TooLong if one is truncated and on_long="error".

        Args:
            writings: the tokenized texts.
            limits: what to do with truncated texts.
            rows: for each text, all its positions in the user's list; None = its index.
        """
        self.texts += len(writings) if rows is None else sum(map(len, rows))
        self.note_unknown(writings, rows)
        for i, w in enumerate(writings):
            if w.kept < w.total:
                at = [i] if rows is None else rows[i]
                if limits.on_long == "error":
                    raise TooLong(
                        f"text {at[0]} has {w.total} tokens, but max_length={limits.max_length} leaves {w.kept}: "
                        "shorten it, or truncate it with on_long='warn'"
                    )
                self.lost += [w.total - w.kept] * len(at)

    def note_unknown(self, writings: Sequence[TokenizedText], rows: Sequence[Sequence[int]] | None = None) -> None:
        """Count the texts of mostly unknown tokens; arguments as for `note`."""
        if self.unknown_id is not None:
            mostly = (i for i, w in enumerate(writings) if _mostly(self.unknown_id, w))
            self.unknown += sum(1 if rows is None else len(rows[i]) for i in mostly)

    def warn(self, limits: Limits) -> None:
        """Warn once about truncated texts, and once about texts of mostly unknown tokens."""
        if self.lost and limits.on_long == "warn":
            warn(TextsCut(self.lost, self.texts, limits.max_length))
        if self.unknown and limits.on_long != "ignore":
            warn(TextsUnknown(self.unknown))


def _mostly(token: int, writing: TokenizedText) -> bool:
    """Whether at least half of a text's tokens are this token."""
    first, end = writing.segments[0].copies[0]
    return end > first and 2 * writing.segments[0].ids[first:end].count(token) >= end - first


@dataclass
class Budget:
    """The maximum size of a batch. If memory runs out, the number of tokens is lowered for the rest of the run.

    Args:
        tokens: maximum number of tokens; a batch of one text may have more.
        texts: maximum number of texts; None = no limit.
    """

    tokens: int
    texts: int | None = None

    def batches(
        self, sizes: Sequence[int], run: Callable[[list[int]], Output], order: Sequence[int] | None = None
    ) -> Iterator[tuple[list[int], Output]]:
        """Run texts in batches. A batch that does not fit into memory is split and run again.

        Args:
            sizes: the number of tokens of each text.
            run: function that runs a batch, given the indices of its texts.
            order: indices of the texts in the order to run them; None = all, longest first.

        Yields:
            The indices of a batch, and what `run` returned for it.

        >>> [batch for batch, _ in Budget(6).batches([3, 9, 1, 2], len)]
        [[1], [0, 3, 2]]
        """
        order, at = longest_first(sizes) if order is None else order, 0
        while at < len(order):
            batch, total = self._next(order, sizes, at)
            try:
                output = run(batch)
            except (RuntimeError, MemoryError) as e:
                if not out_of_memory(e):
                    raise
                if len(batch) == 1:
                    fix = "lower max_length, or load the model with dtype='bfloat16'"
                    raise ModelError(f"a single text does not fit into memory: {fix}") from e
            else:
                at += len(batch)
                yield batch, output
                continue
            self.tokens = total // 2
            if torch.cuda.is_available():
                torch.cuda.empty_cache()

    def _next(self, order: Sequence[int], sizes: Sequence[int], at: int) -> tuple[list[int], int]:
        """Return the batch that starts at position ``at`` of ``order``, and its number of tokens."""
        end, total = at + 1, sizes[order[at]]
        while end < len(order) and total + sizes[order[end]] <= self.tokens and end - at != self.texts:
            total += sizes[order[end]]
            end += 1
        return list(order[at:end]), total


def each(
    writings: Sequence[TokenizedText], run: Callable[[Batch, list[int]], Output], budget: Budget,
    device: torch.device, subset: Sequence[int] | None = None,
) -> Iterator[tuple[list[int], Output]]:  # fmt: skip
    """Run tokenized texts (only those in ``subset``, if passed) in batches without gradients, longest first.

    Yields:
        The indices of the texts in a batch, and what `run` returned for it; see `Budget.batches` for errors.
    """

    def forward(indices: list[int]) -> Output:
        with torch.no_grad():
            return run(lay([writings[i] for i in indices], device), indices)

    sizes = [writing.size for writing in writings]
    yield from budget.batches(sizes, forward, longest_first(sizes, subset))


def longest_first(sizes: Sequence[int], subset: Sequence[int] | None = None) -> list[int]:
    """Return the indices of texts (only those in ``subset``, if passed), longest text first."""
    return sorted(range(len(sizes)) if subset is None else subset, key=lambda i: -sizes[i])


EXHAUSTED = ("out of memory", "can't allocate memory", "not enough memory", "cublas_status_alloc_failed")


def out_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory ran out, on any device."""
    said = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(words in said for words in EXHAUSTED)


@contextmanager
def progress(total: int, limits: Limits, units: int | None = None) -> Iterator[Callable[[int], object]]:
    """Yield a function that counts finished units, and advances a bar on stderr or calls the user's function.

    A unit is a text, or a text's vector from one method of an ensemble.
    """
    show, units, done = limits.show_progress_bar, total if units is None else units, 0
    if not show:
        yield lambda _: None
        return
    bar: Any = None
    if not callable(show):
        from tqdm.auto import tqdm

        bar = tqdm(total=total, unit="text", desc="embedding")
    advance = show if callable(show) else bar.update

    def finished(more: int) -> None:
        nonlocal done
        before = done * total // units
        done += more
        if texts := done * total // units - before:
            advance(texts)

    try:
        yield finished
    finally:
        if bar is not None:
            bar.close()
