"""A run on disk: what it was told, its checkpoints, and whether it can go on from one of them."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InputError, ModelError

RECORD, CURVE, FOLDER = "training.json", "loss.jsonl", "checkpoints"
WEIGHTS, STATE = "trained.safetensors", "trainer_state.json"


@dataclass(frozen=True)
class Place:
    """The folder of a run: ``training.json``, ``loss.jsonl`` and, while it runs, ``checkpoints``.

    Args:
        folder: the model comes here in the end.
    """

    folder: Path

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints lie while the run is not finished."""
        return self.folder / FOLDER

    @property
    def curve(self) -> Path:
        """The losses, a JSON object per line."""
        return self.folder / CURVE

    def record(self) -> dict[str, Any] | None:
        """What a run that began here was told; None where none did.

        Raises:
            ModelError: the record cannot be read.
        """
        path = self.folder / RECORD
        try:
            found = json.loads(path.read_text("utf-8")) if path.exists() else None
        except (OSError, ValueError) as e:
            raise ModelError(f"{path} cannot be read: {e}") from None
        return found if isinstance(found, dict) else None

    @property
    def finished(self) -> bool:
        """Whether the run that was recorded came to its end."""
        return "finished" in (self.record() or {})

    def write(self, record: Mapping[str, Any]) -> None:
        """Write the record whole: it is never half there.

        Raises:
            ModelError: it cannot be written.
        """
        half = self.folder / (RECORD + ".writing")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            half.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
            half.replace(self.folder / RECORD)
        except OSError as e:
            raise ModelError(f"{self.folder} cannot be written: {e.strerror or e}") from e

    def begin(self, told: Mapping[str, Any], resume: bool) -> Path | None:
        """Whether to start, or from which checkpoint to go on.

        Args:
            told: everything the run depends on, as plain data.
            resume: go on from the last whole checkpoint, if there is one.

        Returns:
            A checkpoint, or None to start.

        Raises:
            InputError: an unfinished run lies here and is not to be resumed; it was told otherwise.
        """
        found = self.record()
        if found is not None and resume:
            compare(self.folder, found["told"], json.loads(json.dumps(told)))
            return self.last()
        if self.last() is not None:
            raise InputError(f"{self.folder} holds an unfinished run: resume it, or choose another folder")
        return None

    def last(self) -> Path | None:
        """The last checkpoint that was written whole; what a killed process left of others is removed."""
        found = sorted(self.checkpoints.glob("checkpoint-*"), key=lambda p: int(p.name.rpartition("-")[2]))
        for path in found:
            if not is_whole(path):
                shutil.rmtree(path, ignore_errors=True)
        return next((path for path in reversed(found) if path.exists()), None)

    def clear(self) -> None:
        """Remove the checkpoints: the run is finished."""
        shutil.rmtree(self.checkpoints, ignore_errors=True)


def processes() -> int:
    """How many train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Whether this process writes what is written once."""
    return int(os.environ.get("RANK", "0")) == 0


def is_whole(checkpoint: Path) -> bool:
    """Whether a checkpoint was written to its end: the trainer's state comes last."""
    try:
        state = json.loads((checkpoint / STATE).read_text("utf-8"))
    except (OSError, ValueError):
        return False
    names = [f"rng_state_{i}.pth" for i in range(processes())] if processes() > 1 else ["rng_state.pth"]
    return bool(state) and all(zipfile.is_zipfile(checkpoint / name) for name in names)


def stopped(checkpoint: Path) -> bool:
    """Whether the run had ended when this checkpoint was written: all its steps were done, or it stopped early."""
    state = json.loads((checkpoint / STATE).read_text("utf-8"))
    return bool(state["stateful_callbacks"]["TrainerControl"]["args"]["should_training_stop"])


def compare(folder: Path, was: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Whether two runs were told the same.

    Raises:
        InputError: they were not; the first difference is named.
    """
    for name in sorted({*was, *now}):
        before, after = was.get(name), now.get(name)
        if isinstance(before, dict) and isinstance(after, dict) and name != "method":
            compare(folder, before, after)
        elif before != after:
            raise InputError(
                f"{folder} holds a run of another configuration: {name} was {_short(before)} and is {_short(after)}; "
                "give what it was, or choose another folder"
            )


def _short(value: Any) -> str:
    if isinstance(value, dict) and "name" in value:
        return f"{value['name']!r}"
    return json.dumps(value)[:60]
