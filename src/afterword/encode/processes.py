"""Embed texts with copies of one model in several processes, each on its own device."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from importlib.machinery import PathFinder
from types import TracebackType
from typing import Any

import torch

from ..backbone.backbone import Backbone
from ..errors import InputError, MethodError, ModelError
from ..methods import AnyMethod
from ..methods.custom import is_custom
from ..post import Post
from ..text.inputs import Distinct, check_ids
from ..text.layout import Text
from .limits import Limits, Losses, progress
from .process_pool import ProcessPool
from .sentences import Array, output_arrays, write_vectors

CHUNK = 5000  # maximum number of texts that are sent to a process at a time


class Workers:
    """Processes that hold copies of one model. `Encoder.start_multi_process_pool` starts them.

    They are spawned, not forked: a script that starts them needs ``if __name__ == "__main__":``.

    Args:
        backbone: the model.
        devices: devices such as "cuda:0" or "cpu", one process on each; None = every GPU, or four processes on the
            CPU.

    Raises:
        InputError: there is no device, or torch does not know it.
    """

    def __init__(self, backbone: Backbone, devices: Sequence[Any] | None = None) -> None:
        if devices is None:
            devices = [f"cuda:{i}" for i in range(torch.cuda.device_count())] or ["cpu"] * 4
        try:
            self.devices = [str(torch.device(device)) for device in devices]
        except (RuntimeError, TypeError) as e:
            raise InputError(f"device={list(devices)!r}: {str(e).splitlines()[0]}") from None
        if not self.devices:
            raise InputError("device=[] names no device: give at least one")
        threads = max(1, torch.get_num_threads() // max(1, sum(d == "cpu" for d in self.devices)))
        self._weights, written = _versions(backbone), pickle.dumps(backbone)
        self._pool = ProcessPool(_start, (written, threads), self.devices)

    def vectors(
        self,
        backbone: Backbone,
        method: AnyMethod,
        texts: Sequence[Text],
        limits: Limits,
        post: Sequence[Post] = (),
        conditions: Sequence[str] | None = None,
        out: Array | None = None,
        chunk_size: int | None = None,
    ) -> Array:
        """Sentence vectors (n, D).

        Args:
            backbone: the model that the processes were started with.
            method, texts, limits, post, conditions, out: as for `sentence_vectors`.
            chunk_size: number of texts that are sent to a process at a time; None = a tenth of its share, but at most
                5,000.

        Raises:
            InputError: the model is another one or was changed since the start, or a text cannot be used.
            MethodError: weighting or states are a user's own class, in a file that another process cannot import.
            ModelError: a process ended before its work was done.
        """
        if _versions(backbone) != self._weights:
            raise InputError("pool holds another model, or this one as it was before: start_multi_process_pool() again")
        check_ids(texts, backbone.vocabulary_size)
        for member in method.members:
            _check_importable(type(member.weigh))
            _check_importable(type(member.states))
        (vectors,) = output_arrays(backbone, [method], len(texts), post, out)
        size = chunk_size or min(max(-(-len(texts) // (10 * len(self.devices))), 1), CHUNK)
        order = sorted(range(len(texts)), key=lambda i: (-len(texts[i]), str(texts[i])))  # equal texts side by side
        quiet, cuts = replace(limits, show_progress_bar=False), Losses()
        running: dict[Future[tuple[Array, Losses]], list[int]] = {}
        for first in range(0, len(order), size):
            rows = order[first : first + size]
            chosen = None if conditions is None else [conditions[i] for i in rows]
            given = Distinct.from_texts([texts[i] for i in rows], chosen, rows)
            running[self._pool.submit(_work, method, given, quiet, post)] = rows
        try:
            with progress(len(texts), limits) as bar:
                for future in as_completed(running):
                    vectors[running[future]], part = future.result()
                    cuts = Losses(cuts.lost + part.lost, cuts.texts + part.texts, cuts.unknown + part.unknown)
                    bar(len(running[future]))
        except BrokenProcessPool as e:
            raise ModelError(
                "a process ended before its work was done: because memory ran out (use fewer devices), or because the "
                'script that started it has no if __name__ == "__main__":'
            ) from e
        finally:
            for future in running:
                future.cancel()
        cuts.warn(limits)
        return vectors

    def close(self) -> None:
        """End the processes."""
        self._pool.close()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


@contextmanager
def workers(backbone: Backbone, pool: object, devices: Sequence[Any] | None) -> Iterator[Workers]:
    """The processes of a pool, which keep running; or new ones on some devices, which end with the ``with`` block.

    Raises:
        InputError: the pool is another library's.
    """
    if isinstance(pool, Workers):
        yield pool
    elif pool is not None:
        raise InputError(f"pool is a {type(pool).__name__}: make it with encoder.start_multi_process_pool()")
    else:
        with Workers(backbone, devices) as started:
            yield started


def _versions(backbone: Backbone) -> list[tuple[int, int]]:
    """The address and version counter of each weight: both stay the same until the weight changes."""
    return [(weight.data_ptr(), weight._version) for weight in backbone.model.state_dict(keep_vars=True).values()]


def _start(written: bytes, threads: int, device: str) -> Backbone:
    """Read the model, in a new process."""
    torch.set_num_threads(threads)
    backbone: Backbone = pickle.loads(written)
    backbone.model.to(device)
    return backbone


def _work(
    backbone: Backbone, method: AnyMethod, given: Distinct, limits: Limits, post: Sequence[Post]
) -> tuple[Array, Losses]:
    """Embed some texts, in a process of `Workers`."""
    results = output_arrays(backbone, [method], given.total, post)
    return results[0], write_vectors(backbone, [method], given, limits, post, results)


def _check_importable(cls: type) -> None:
    """Check that another process can import a class; if it cannot, that process would end without a message."""
    module = cls.__module__
    if is_custom(cls) and module != "__main__" and PathFinder.find_spec(module.partition(".")[0]) is None:
        raise MethodError(
            f"{cls.__name__} of {module} cannot be imported by other processes: put the folder of {module}.py into "
            "PYTHONPATH, or use one device"
        )
