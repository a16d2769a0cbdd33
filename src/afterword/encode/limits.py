"""Limits on texts and batches; batches of bounded size; progress."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeVar

import torch

from ..errors import InputError, ModelError, TextsCut, TextsUnknown, TooLong, warn
from ..text.batch import Batch, lay
from ..text.segments import TokenizedText

OnEmpty = Literal["error", "nan"]
OnLong = Literal["warn", "error", "ignore"]


def count(name: str, value: object) -> int | None:
    """Validate an argument that is None or a whole number of at least 1, also one of numpy.

    Raises:
        InputError: it is neither.

    >>> count("batch_size", 3)
    3
    """
    if value is None:
        return None
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or int(value) < 1:
        raise InputError(f"{name}={value!r}: give a whole number of at least 1")
    return int(value)


@dataclass(frozen=True)
class Limits:
    """Limits on texts and batches, and what to do with texts that exceed them.

    Args:
        max_length: maximum number of tokens of a text, or of one chunk of it.
        batch_size: maximum number of texts in a batch.
        batch_tokens: approximate number of tokens in a batch.
        on_long: a text longer than `max_length` is cut with a warning, refused, or cut without a warning. The last also
            leaves out the warning that texts are mostly tokens that the model's vocabulary lacks.
        on_empty: a text without tokens is refused, or gives NaN.
        show_progress_bar: show a progress bar on stderr; or a function, called with the number of texts that were
            finished since its last call.
    """

    max_length: int | None = None
    batch_size: int | None = None
    batch_tokens: int | None = None
    on_long: OnLong = "warn"
    on_empty: OnEmpty = "error"
    show_progress_bar: bool | Callable[[int], object] = False

    def __post_init__(self) -> None:
        """Validate the values."""
        for name in ("max_length", "batch_size", "batch_tokens"):
            object.__setattr__(self, name, count(name, getattr(self, name)))
        if self.on_long not in ("warn", "error", "ignore"):
            raise InputError(f"on_long={self.on_long!r}: choose warn, error or ignore")
        if isinstance(self.show_progress_bar, str):
            raise InputError(f"show_progress_bar={self.show_progress_bar!r}: give True, False or a function")
        if self.on_empty not in ("error", "nan"):
            raise InputError(f"on_empty={self.on_empty!r}: choose error or nan")

    def tokens(self, device: torch.device) -> int:
        """The number of tokens in a batch."""
        return self.batch_tokens or TOKENS.get(device.type, 8192)

    def budget(self, device: torch.device) -> Budget:
        """The largest batch, at the start of a run."""
        return Budget(self.tokens(device), self.batch_size)


@dataclass
class Losses:
    """What is lost of texts on their way to the model.

    Attributes:
        lost: the number of tokens that each text lost that was cut to the maximum length.
        texts: the number of texts.
        unknown: the number of texts of which half of the tokens or more are unknown.
        unknown_id: the id of the token that stands for what the vocabulary lacks.
    """

    lost: list[int] = field(default_factory=list)
    texts: int = 0
    unknown: int = 0
    unknown_id: int | None = None

    def note(
        self, writings: Sequence[TokenizedText], limits: Limits, rows: Sequence[Sequence[int]] | None = None
    ) -> None:
        """Count the texts that were cut, and those that are mostly unknown.

        Args:
            writings: the tokenized texts.
            limits: say what to do with texts that were cut.
            rows: for each text, its positions among the user's texts, which may repeat it; None = each text once, in
                this order.

        Raises:
            TooLong: a text was cut, under on_long="error".
        """
        self.texts += len(writings) if rows is None else sum(map(len, rows))
        self.note_unknown(writings, rows)
        for i, w in enumerate(writings):
            if w.kept < w.total:
                at = [i] if rows is None else rows[i]
                if limits.on_long == "error":
                    raise TooLong(
                        f"text {at[0]} has {w.total} tokens, max_length={limits.max_length} leaves {w.kept}: "
                        "shorten it, or on_long='warn' cuts it"
                    )
                self.lost += [w.total - w.kept] * len(at)

    def note_unknown(self, writings: Sequence[TokenizedText], rows: Sequence[Sequence[int]] | None = None) -> None:
        """Count the texts that are mostly unknown; arguments as for `note`."""
        if self.unknown_id is not None:
            mostly = (i for i, w in enumerate(writings) if _mostly(self.unknown_id, w))
            self.unknown += sum(1 if rows is None else len(rows[i]) for i in mostly)

    def warn(self, limits: Limits) -> None:
        """Warn once, with the number of texts that were cut; and once, with the number of those mostly unknown."""
        if self.lost and limits.on_long == "warn":
            warn(TextsCut(self.lost, self.texts, limits.max_length))
        if self.unknown and limits.on_long != "ignore":
            warn(TextsUnknown(self.unknown))


def _mostly(token: int, writing: TokenizedText) -> bool:
    """Whether half of a text's tokens or more are this one."""
    first, end = writing.segments[0].copies[0]
    return end > first and 2 * writing.segments[0].ids[first:end].count(token) >= end - first


Output = TypeVar("Output")

TOKENS = {"cpu": 2048, "cuda": 32_768}  # default number of tokens in a batch


@dataclass
class Budget:
    """The largest batch of a run. When memory runs out, its number of tokens is lowered for the rest of the run.

    Args:
        tokens: maximum number of tokens; a single text may have more.
        texts: maximum number of texts; None = no limit.
    """

    tokens: int
    texts: int | None = None

    def batches(
        self, sizes: Sequence[int], run: Callable[[list[int]], Output], order: Sequence[int] | None = None
    ) -> Iterator[tuple[list[int], Output]]:
        """Run texts batch by batch. A batch that does not fit into memory is split and run again.

        Args:
            sizes: the number of tokens of each text.
            run: runs a batch, given the indices of its texts.
            order: indices of the texts to run, in this order; None = all, the longest first.

        Yields:
            The indices of a batch, and what `run` returned for it.

        Raises:
            ModelError: one text alone does not fit into memory.

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
                    raise ModelError(
                        "one text alone does not fit into memory: lower max_length=, or pass dtype='bfloat16'"
                    ) from e
            else:
                at += len(batch)
                yield batch, output
                continue
            self.tokens = total // 2
            if torch.cuda.is_available():
                torch.cuda.empty_cache()

    def _next(self, order: Sequence[int], sizes: Sequence[int], at: int) -> tuple[list[int], int]:
        """The texts from position ``at`` of the order on that fit into one batch, and their number of tokens."""
        end, total = at + 1, sizes[order[at]]
        while end < len(order) and total + sizes[order[end]] <= self.tokens and end - at != self.texts:
            total += sizes[order[end]]
            end += 1
        return list(order[at:end]), total


def each(
    writings: Sequence[TokenizedText],
    run: Callable[[Batch, list[int]], Output],
    budget: Budget,
    device: torch.device,
    wanted: Sequence[int] | None = None,
) -> Iterator[tuple[list[int], Output]]:
    """Run tokenized texts batch by batch, without gradients, the longest first.

    Args:
        writings: tokenized texts.
        run: runs a batch, given the batch and the indices of its texts.
        budget: the largest batch.
        device: where the tensors of a batch are created.
        wanted: indices of the texts to run; None = all.

    Yields:
        The indices of a batch, and what `run` returned for it.

    Raises:
        ModelError: one text alone does not fit into memory.
    """

    def forward(indices: list[int]) -> Output:
        with torch.no_grad():
            return run(lay([writings[i] for i in indices], device), indices)

    sizes = [writing.size for writing in writings]
    yield from budget.batches(sizes, forward, longest_first(sizes, wanted))


def longest_first(sizes: Sequence[int], wanted: Sequence[int] | None = None) -> list[int]:
    """Indices of the wanted texts (None = all), the longest first."""
    return sorted(range(len(sizes)) if wanted is None else wanted, key=lambda i: -sizes[i])


EXHAUSTED = ("out of memory", "can't allocate memory", "not enough memory", "cublas_status_alloc_failed")


def out_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory ran out, on any device."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(
        words in str(error).lower() for words in EXHAUSTED
    )


class progress:  # noqa: N801  (reads as a function: a context manager)
    """A progress bar on stderr, or the user's function, or neither, as `Limits.show_progress_bar` says.

    Args:
        total: number of texts.
        limits: hold the option.
        units: number of units that are counted, if not texts: of each text its vector by each method of an ensemble.
    """

    def __init__(self, total: int, limits: Limits, units: int | None = None) -> None:
        self.total, self.units = total, total if units is None else units
        self.done = 0
        self.bar: Any = None
        self.on_progress = limits.show_progress_bar if callable(limits.show_progress_bar) else None
        if limits.show_progress_bar and self.on_progress is None:
            from tqdm.auto import tqdm

            self.bar = tqdm(total=total, unit="text", desc="embedding")

    def __enter__(self) -> Any:
        show = self.bar.update if self.bar is not None else self.on_progress
        return (lambda _: None) if show is None else show if self.units == self.total else partial(self._count, show)

    def _count(self, show: Callable[[int], object], units: int) -> None:
        before = self.done * self.total // self.units
        self.done += units
        if texts := self.done * self.total // self.units - before:
            show(texts)

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.close()
