"""A training run on disk: its settings, its checkpoints, and whether it can be resumed from one of them."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError, ModelError
from ..files.atomic import sync
from ..files.folder_lock import lock_folder

if TYPE_CHECKING:
    from ..encoder import Encoder

RECORD, CURVE, FOLDER, ADAPTER = "training.json", "loss.jsonl", "checkpoints", "adapter"
PLOT = "loss.png"
MODEL = "model"
EVAL = "eval"  # a folder that the trainer creates for its evaluator
HELD = ".afterword-training"
WEIGHTS, STATE, SEAL = "trained.safetensors", "trainer_state.json", "whole.json"
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
        if not isinstance(record, dict) or "told" not in record:
            raise ModelError(f"{path} is no record of a run: choose another folder")
        return record

    @property
    def finished(self) -> bool:
        """Whether the recorded run is finished."""
        return "finished" in (self.record() or {})

    def write(self, record: Mapping[str, Any]) -> None:
        """Write ``training.json`` atomically: the file is either complete or unchanged.

        Raises:
            ModelError: the file cannot be written.
        """
        half = self.folder / f".{RECORD}.{secrets.token_hex(4)}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            half.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
            half.replace(self.folder / RECORD)
        except OSError as e:
            with suppress(OSError):
                half.unlink()
            raise ModelError(f"{self.folder} cannot be written: {e.strerror or e}") from e

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the folder against other runs. Of several processes that train together, the first takes the lock.

        Raises:
            ModelError: another run holds the lock, or the folder cannot be written.
        """
        if not is_first():
            yield
            return
        new = not self.folder.exists()
        with ExitStack() as stack:
            if new:
                stack.callback(self._leave)
            try:
                stack.enter_context(lock_folder(self.folder / HELD, "training into"))
            except OSError as e:
                raise ModelError(f"{self.folder} cannot be written: {e.strerror or e}") from e
            yield

    def _leave(self) -> None:
        with suppress(OSError):  # the folder holds files: the run wrote something
            self.folder.rmdir()

    def begin(self, settings: Mapping[str, Any], resume: bool) -> Path | None:
        """Check the folder, and find the checkpoint to resume from.

        Args:
            settings: everything the run depends on, as plain data; stored under "told" in ``training.json``.
            resume: resume from the last complete checkpoint, if there is one. Incomplete checkpoints are removed.

        Returns:
            A checkpoint, or None to start from the beginning.

        Raises:
            InputError: the folder holds a model or other files, an unfinished run that is not to be resumed, or a run
                with other settings.
        """
        record = self.record()
        if record is None or not resume:
            if record is not None and self.last() is not None:
                raise InputError(f"{self.folder} holds an unfinished run: resume it, or choose another folder")
            if (self.folder / "config.json").exists():
                raise InputError(f"{self.folder} holds a model: choose another folder, or remove it")
        if record is None:
            if other := next((p.name for p in sorted(self.folder.glob("[!.]*"))), None):
                raise InputError(f"{self.folder} is not empty, and {other} is not of a run: choose another folder")
            return None
        if not resume:
            return None
        compare(self.folder, record["told"], json.loads(json.dumps(settings)))
        for path in listed(self.checkpoints):
            if not is_whole(path):
                shutil.rmtree(path, ignore_errors=True)
        return self.last()

    def last(self) -> Path | None:
        """The last complete checkpoint."""
        return next((path for path in reversed(listed(self.checkpoints)) if is_whole(path)), None)

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
        """Remove the checkpoints of a finished run, once its result is flushed to the disk."""
        for path in (*sorted(self.folder.rglob("*"), reverse=True), self.folder):
            if self.checkpoints not in path.parents and (path.is_file() or path.is_dir()):
                with suppress(PermissionError):  # a file of another user
                    sync(path)
        for path in listed(self.checkpoints):
            drop(path)
        for path in (self.checkpoints / EVAL, self.checkpoints):
            with suppress(OSError):  # it holds files that the run did not write
                path.rmdir()


def rotate(checkpoints: Path, best: str | Path | None) -> None:
    """Keep two complete checkpoints: the last and the best, or the last two. Called once the last one is sealed.

    Args:
        checkpoints: the folder that holds them.
        best: the checkpoint with the best dev score.
    """
    paths = [path for path in reversed(listed(checkpoints)) if is_whole(path)]
    kept = dict.fromkeys([*paths[:1], *(path for path in paths if best is not None and path == Path(best)), *paths])
    for path in [*kept][2:]:
        drop(path)


def drop(checkpoint: Path) -> None:
    """Remove a checkpoint, its seal first; of a complete one, only the files that its seal lists."""
    if not is_whole(checkpoint):
        shutil.rmtree(checkpoint, ignore_errors=True)
        return
    names = json.loads((checkpoint / SEAL).read_text("utf-8"))
    with suppress(OSError):  # it holds files that the run did not write
        for name in (SEAL, *names):
            (checkpoint / name).unlink()
        checkpoint.rmdir()


def listed(checkpoints: Path) -> list[Path]:
    """The checkpoints of a folder, in the order of their steps."""
    steps = {int(m[1]): path for path in checkpoints.glob("*") if (m := NAME.fullmatch(path.name))}
    return [steps[step] for step in sorted(steps)]


def processes() -> int:
    """The number of processes that train together (torchrun's WORLD_SIZE)."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Whether this is the process of rank 0, which writes the files."""
    return int(os.environ.get("RANK", "0")) == 0


def is_whole(checkpoint: Path) -> bool:
    """Whether a checkpoint is sealed and all its files still have the recorded size."""
    try:
        sizes = json.loads((checkpoint / SEAL).read_text("utf-8"))
        return isinstance(sizes, dict) and all((checkpoint / n).stat().st_size == size for n, size in sizes.items())
    except (OSError, ValueError):
        return False


def seal(checkpoint: Path) -> None:
    """Mark a checkpoint as complete, after all its files are flushed to disk: a SIGKILL or power cut leaves no seal."""
    sizes = {path.name: path.stat().st_size for path in sorted(checkpoint.iterdir()) if path.name != SEAL}
    for name in sizes:
        sync(checkpoint / name)
    half = checkpoint / (SEAL + ".writing")
    half.write_text(json.dumps(sizes), encoding="utf-8")
    sync(half)
    half.replace(checkpoint / SEAL)
    sync(checkpoint)
    sync(checkpoint.parent)


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
                f"{folder} holds a run of another configuration: {name} was {_short(before)} and is {_short(after)}; "
                "give what it was, or choose another folder"
            )


def _short(value: Any) -> str:
    if isinstance(value, dict) and "name" in value:
        return f"{value['name']!r}"
    return json.dumps(value)[:60]
