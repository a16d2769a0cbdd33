"""A worker without a model, nor torch: it writes a file for each shard, and dies where a test wants it to."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from afterword.errors import BadRow, DataError

OPENED: list[Path] = []
"""What a process has started: each of them once."""


@dataclass(frozen=True)
class Toy:
    """A worker.

    Args:
        folder: of the shards; `log` in it has a line for each shard that was begun.
        faults: what happens in the first, second, ... attempt at a shard; "" = nothing.
        starts: the same for the first, second, ... start of a process.
        batch_tokens: as a worker has it.
        seconds: that a shard takes.
    """

    folder: Path
    faults: Mapping[int, Sequence[str]] = field(default_factory=dict)
    starts: Sequence[str] = ()
    batch_tokens: int | None = None
    seconds: float = 0.0

    def start(self, threads: int | None = None) -> Shards:
        OPENED.append(self.folder)
        happen(self.starts, written(self.folder / "starts", f"{os.getpid()} {len(OPENED)}") - 1)
        return Shards(self, threads)

    def shard(self, number: int) -> Path:
        return self.folder / f"{number:06}"


@dataclass(frozen=True)
class Shards:
    """Does shards: the first whole file wins."""

    toy: Toy
    threads: int | None

    def __call__(self, number: int, batch_tokens: int | None = None) -> dict[str, Any]:
        folder = self.toy.folder
        threads = f"{os.environ.get('OMP_NUM_THREADS')} {self.threads}"
        written(folder / "log", f"{number} {os.getpid()} {batch_tokens} {threads}")
        attempt = sum(line.split()[0] == str(number) for line in lines(folder / "log")) - 1
        time.sleep(self.toy.seconds)
        happen(self.toy.faults.get(number, ()), attempt)
        whole = folder / f"tmp.{number}.{os.getpid()}"
        whole.write_text(f"shard {number}")
        with suppress(FileExistsError):
            os.link(whole, self.toy.shard(number))
        whole.unlink()
        return {"rows": number, "pid": os.getpid()}


def written(path: Path, line: str) -> int:
    """Add a line to a file, whoever else does; returns the number of lines that it has then."""
    with path.open("a") as file:
        file.write(line + "\n")
    return len(lines(path))


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def happen(faults: Sequence[str], attempt: int) -> None:
    """What a test wants at an attempt."""
    fault = faults[attempt] if attempt < len(faults) else ""
    if fault.startswith("SIG"):
        os.kill(os.getpid(), getattr(signal, fault))
    elif fault == "exit":
        print("out of luck", file=sys.stderr)
        sys.exit(3)
    elif fault == "bug":
        raise RuntimeError("no\nidea")
    elif fault == "input":
        raise DataError("a.txt has changed")
    elif fault == "row":
        raise BadRow("a.txt", 3, "is blank")
    elif fault == "disk":
        raise OSError(28, "No space left on device", "shards/000001.parquet")
