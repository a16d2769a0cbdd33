"""A training run on disk: its settings, its checkpoints, and whether it can be resumed from one of them."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError, ModelError
from ..files.atomic import atomic_file, lock_folder

if TYPE_CHECKING:
    from ..encoder import Encoder

RECORD, CURVE, FOLDER, ADAPTER = "training.json", "loss.jsonl", "checkpoints", "adapter"
PLOT = "loss.png"
MODEL = "model"
HELD = ".afterword-training"
WEIGHTS, STATE = "trained.safetensors", "trainer_state.json"
NAME = re.compile(r"checkpoint-(\d+)")


@dataclass(frozen=True)
class Place:
    """The folder of a training run: ``training.json``, ``loss.jsonl`` and, until it is finished, ``checkpoints``.

    Args:
        folder: the trained model is saved here.
    """

    folder: Path

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints; it is removed when the run is finished."""
        return self.folder / FOLDER

    @property
    def curve(self) -> Path:
        """The file of the losses, one JSON object per line."""
        return self.folder / CURVE

    def record(self) -> dict[str, Any] | None:
        """The content of ``training.json``: settings, data, versions; None if no run was started here.

        Raises:
            ModelError: the file cannot be read, or is not a record of a run.
        """
        path = self.folder / RECORD
        if not path.exists():
            return None
        try:
            record = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError, RecursionError) as e:
            raise ModelError(f"{path} cannot be read: {e}") from None
        if not isinstance(record, dict) or "fixed" not in record:
            raise ModelError(f"{path} is not the record of a run: choose another folder")
        return record

    @property
    def finished(self) -> bool:
        """Whether the recorded run is finished."""
        return "finished" in (self.record() or {})

    def write(self, record: Mapping[str, Any]) -> None:
        """Write ``training.json`` atomically.

        Raises:
            DataError: the file cannot be written.
        """
        with atomic_file(self.folder / RECORD) as file:
            file.write(f"{json.dumps(record, indent=2, ensure_ascii=False)}\n".encode())

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the folder against a second run. Of several processes that train together, the first takes the lock.

        Raises:
            ModelError: another run holds the lock, or the folder cannot be written.
        """
        if not is_first():
            yield
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise ModelError(f"{self.folder} cannot be written: {e.strerror or e}") from e
        with lock_folder(self.folder / HELD, "training into"):
            yield

    def begin(self, settings: Mapping[str, Any], resume: bool) -> Path | None:
        """Check the folder, and find the checkpoint to resume from.

        Args:
            settings: everything the run depends on, as plain data; stored under "fixed" in ``training.json``.
            resume: resume from the last complete checkpoint, if there is one. Incomplete checkpoints are removed.

        Returns:
            A checkpoint, or None to start from the beginning.

        Raises:
            InputError: the folder holds a model or other files, an unfinished run that is not to be resumed, or a run
                with different settings.
        """
        record = self.record()
        if record is None or not resume:
            if record is not None and self.last() is not None:
                raise InputError(f"{self.folder} holds an unfinished run: resume it, or choose another folder")
            if (self.folder / "config.json").exists():
                raise InputError(f"{self.folder} holds a model: choose another folder, or remove it")
        if record is None:
            if other := next((p.name for p in sorted(self.folder.glob("[!.]*"))), None):
                raise InputError(f"{self.folder} is not empty: {other} is not a file of a run; choose another folder")
            return None
        if not resume:
            return None
        compare(self.folder, record["fixed"], json.loads(json.dumps(settings)))
        for path in _listed(self.checkpoints):
            if not is_complete(path):
                shutil.rmtree(path, ignore_errors=True)
        return self.last()

    def last(self) -> Path | None:
        """The last complete checkpoint."""
        return next((path for path in reversed(_listed(self.checkpoints)) if is_complete(path)), None)

    def save(self, encoder: Encoder) -> None:
        """Save the trained model in the folder: config.json, without which it does not load, is moved in last."""
        new = self.checkpoints / MODEL
        encoder.save(new, overwrite=True)
        for path in sorted(new.iterdir(), key=lambda path: (path.name == "config.json", path.name)):
            target = self.folder / path.name
            if target.is_dir():  # of a save that was interrupted
                shutil.rmtree(target)
            path.replace(target)
        new.rmdir()

    def clear(self) -> None:
        """Remove the checkpoints of a finished run."""
        shutil.rmtree(self.checkpoints, ignore_errors=True)


def _listed(checkpoints: Path) -> list[Path]:
    """The checkpoints of a folder, in the order of their steps."""
    steps = {int(m[1]): path for path in checkpoints.glob("*") if (m := NAME.fullmatch(path.name))}
    return [steps[step] for step in sorted(steps)]


def processes() -> int:
    """The number of processes that train together (torchrun's WORLD_SIZE)."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Whether this is the process of rank 0, which writes the files."""
    return int(os.environ.get("RANK", "0")) == 0


def is_complete(checkpoint: Path) -> bool:
    """Whether a checkpoint was written to its end: the trainer writes its state last."""
    try:
        return isinstance(json.loads((checkpoint / STATE).read_text("utf-8")), dict)
    except (OSError, ValueError):
        return False


def stopped(checkpoint: Path) -> bool:
    """Whether training had ended when this checkpoint was written: after its last step, or by early stopping."""
    state = json.loads((checkpoint / STATE).read_text("utf-8"))
    return bool(state["stateful_callbacks"]["TrainerControl"]["args"]["should_training_stop"])


def compare(folder: Path, was: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Check that a resumed run has the settings it was started with.

    Raises:
        InputError: it has not; the first difference is named.
    """
    for name in sorted({*was, *now}):
        before, after = was.get(name), now.get(name)
        if isinstance(before, dict) and isinstance(after, dict) and name != "method":
            compare(folder, before, after)
        elif before != after:
            raise InputError(
                f"{folder} holds a run of a different configuration: {name} was {_short(before)}, is {_short(after)}; "
                "set it back, or choose another folder"
            )


def _short(value: Any) -> str:
    if isinstance(value, dict) and "name" in value:
        return f"{value['name']!r}"
    return json.dumps(value)[:60]
