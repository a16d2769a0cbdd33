"""Run texts in batches of bounded size; a batch that does not fit into memory is split and run again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

from ..errors import ModelError
from ..text.batch import Batch, lay
from ..text.segments import TokenizedText

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
                        "one text alone does not fit into memory: lower max_length, or dtype='bfloat16'"
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
