"""The thread that embeds the texts of all requests, in batches that requests share."""

from __future__ import annotations

import time
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Thread
from typing import Any

from ..encode.limits import Limits
from ..encode.sentences import tokenize
from ..encoder import Encoder
from ..errors import InputError, TooLong
from ..text.inputs import with_prompt
from .request import Request


@dataclass(eq=False)
class Job:
    """A request and its answer, which is filled in batch by batch."""

    request: Request
    rows: list[Any]  # a vector (D,) for each text; or the vectors (n, D) of the n chunks of the only text
    sizes: list[int]  # the number of tokens of each text, as the model reads it
    truncated: set[int] = field(default_factory=set)  # indices of texts
    left: list[int] = field(default_factory=list)  # the indices of the texts that wait, shortest first
    turn: int = 0  # jobs with a lower number go first
    future: Future[Job] = field(default_factory=Future)  # cancelled if the client has gone

    def settle(self, error: Exception | None = None) -> None:
        """Finish the job, or end it with an error."""
        with suppress(InvalidStateError):  # the client has gone
            self.future.set_result(self) if error is None else self.future.set_exception(error)


class Worker:
    """A thread that embeds the texts of all requests.

    A job's turn is the number of tokens embedded before it came plus its own: a short job overtakes a long one, but
    newer jobs cannot delay it for ever. ``texts``, ``tokens`` and ``seconds`` count what it has embedded.
    """

    def __init__(self, encoder: Encoder, batch_tokens: int | None, on_long: str) -> None:
        self.encoder, self.on_long = encoder, on_long
        self.budget = Limits(batch_tokens=batch_tokens).tokens(encoder.device)
        self.texts, self.tokens, self.seconds = 0, 0, 0.0
        self._arrivals: SimpleQueue[Job | None] = SimpleQueue()
        self._thread = Thread(target=self._run, daemon=True)

    def submit(self, request: Request) -> Future[Job]:
        """Queue a request. Cancel the future if its client has gone."""
        self._arrivals.put(job := Job(request, [None] * len(request.texts), [0] * len(request.texts)))
        if self._thread.ident is None:  # not earlier: threads do not survive a fork
            self._thread.start()
        return job.future

    def close(self) -> None:
        """End the thread after its current batch."""
        self._arrivals.put(None)
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        jobs: list[Job] = []
        while True:
            while not jobs or not self._arrivals.empty():
                if (job := self._arrivals.get()) is None:
                    return
                jobs.append(job)
                try:
                    self._count_tokens(job)
                except Exception as e:
                    job.settle(e)
            jobs = [job for job in jobs if not job.future.done()]
            if jobs:
                batch, start = self._next(jobs), time.perf_counter()
                self._embed(batch)
                self.seconds += time.perf_counter() - start

    def _count_tokens(self, job: Job) -> None:
        encoder, request = self.encoder, job.request
        limit = encoder.max_length if request.spans is None else None
        for layout in {member.layout for member in encoder.method.members}:
            prompted = with_prompt(layout, request.prompt)
            for i, text in enumerate(tokenize(encoder.backbone, prompted, request.texts, limit)):
                job.sizes[i] += text.size
                if not text.total:
                    raise InputError(f"input[{i}] has no token in the model's vocabulary: remove it")
                if text.kept < text.total:
                    job.truncated.add(i)
                if text.kept < text.total and self.on_long == "error":
                    fix = f"the limit of {limit} leaves {text.kept}: shorten it"
                    raise TooLong(f"input[{i}] has {text.total} tokens, but {fix}")
        job.left = sorted(range(len(job.sizes)), key=job.sizes.__getitem__)
        job.turn = self.tokens + sum(job.sizes)

    def _next(self, jobs: list[Job]) -> list[tuple[Job, list[int]]]:
        """Take the next batch: jobs, each with the indices of some of its texts. Late chunking has its own batch.

        Other jobs join the first only with all that is left of them: a short job does not wait for parts of a long one.
        """
        first, *others = sorted(jobs, key=lambda job: job.turn)
        room, batch, like = max(self.budget, first.sizes[first.left[-1]]), [], first.request
        for job in [first, *([] if like.spans else others)]:
            taken: list[int] = []
            joins = job.request.spans is None and sum(job.sizes[i] for i in job.left) <= room
            if job is first or (joins and job.request.prompt == like.prompt):
                while job.left and job.sizes[job.left[-1]] <= room:
                    taken.append(job.left.pop())
                    room -= job.sizes[taken[-1]]
            batch += [(job, taken)] if taken else []
        return batch

    def _embed(self, batch: list[tuple[Job, list[int]]]) -> None:
        """Embed a batch. If that fails, embed each job's texts alone, so that only the job at fault gets the error."""
        (first, _), *others = batch
        texts = [job.request.texts[i] for job, taken in batch for i in taken]
        options: dict[str, Any] = {"prompt": first.request.prompt, "batch_tokens": self.budget}
        try:
            if first.request.spans is None:
                rows = iter(self.encoder.encode(texts, on_long="ignore", **options))
            else:
                rows = iter([self.encoder.encode_chunks(texts[0], first.request.spans, **options).vectors])
        except Exception as e:
            for part in batch if others else []:
                self._embed([part])
            return None if others else first.settle(e)
        for job, taken in batch:
            for i in taken:
                job.rows[i] = next(rows)
            self.texts, self.tokens = self.texts + len(taken), self.tokens + sum(job.sizes[i] for i in taken)
            if not job.left:
                job.settle()
