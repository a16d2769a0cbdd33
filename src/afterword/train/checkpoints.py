"""A run on disk: what it was told, its checkpoints, and whether it can go on from one of them."""

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
from typing import Any

from ..errors import InputError, ModelError
from ..files.atomic import check_place, sync
from ..files.folder_lock import held
from ..files.manifest import there

RECORD, CURVE, FOLDER, ADAPTER = "training.json", "loss.jsonl", "checkpoints", "adapter"
PLOT = "loss.png"
EVAL = "eval"  # a folder that the trainer makes for its evaluator
HELD = ".afterword-training"
WEIGHTS, STATE, SEAL = "trained.safetensors", "trainer_state.json", "whole.json"
NAME = re.compile(r"checkpoint-(\d+)")


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
            ModelError: the record cannot be read, or is none.
        """
        path = self.folder / RECORD
        if not path.exists():
            return None
        try:
            found = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError, RecursionError) as e:
            raise ModelError(f"{path} cannot be read: {e}") from None
        if not isinstance(found, dict) or "told" not in found:
            raise ModelError(f"{path} is no record of a run: choose another folder")
        return found

    @property
    def finished(self) -> bool:
        """Whether the run that was recorded came to its end."""
        return "finished" in (self.record() or {})

    def write(self, record: Mapping[str, Any]) -> None:
        """Write the record whole: it is never half there.

        Raises:
            ModelError: it cannot be written.
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
        """No other process trains into this folder; where several train together, the first one holds it.

        Raises:
            ModelError: another does.
        """
        if not is_first():
            yield
            return
        new = not self.folder.exists()
        with ExitStack() as stack:
            if new:
                stack.callback(self._leave)
            try:
                stack.enter_context(held(self.folder / HELD, "training into"))
            except OSError as e:
                raise ModelError(f"{self.folder} cannot be written: {e.strerror or e}") from e
            yield

    def _leave(self) -> None:
        with suppress(OSError):  # the run has come to something
            self.folder.rmdir()

    def begin(self, told: Mapping[str, Any], resume: bool, adapter: bool = False) -> Path | None:
        """Whether to start, or from which checkpoint to go on.

        Args:
            told: everything the run depends on, as plain data.
            resume: go on from the last whole checkpoint, if there is one. What a killed process left of others goes.
            adapter: whether the run will write one beside the model.

        Returns:
            A checkpoint, or None to start.

        Raises:
            InputError: a model lies here, or an unfinished run that is not to be resumed; it was told otherwise.
            InputError: a file here has a name that the run needs.
            ModelError: a file here would be read as a part of the model.
        """
        found = self.record()
        if found is None or not resume:
            if found is not None and self.last() is not None:
                raise InputError(f"{self.folder} holds an unfinished run: resume it, or choose another folder")
            if (self.folder / "config.json").exists():
                raise InputError(f"{self.folder} holds a model: choose another folder, or remove it")
        if found is None:
            needed = (CURVE, PLOT, FOLDER, *((ADAPTER,) if adapter else ()))
            if other := next((name for name in needed if there(self.folder / name)), None):
                raise InputError(f"{self.folder} holds {other}, which no run here has written: choose another folder")
        if found is None or "finished" not in found:
            check_place(self.folder)
        if found is None or not resume:
            return None
        compare(self.folder, found["told"], json.loads(json.dumps(told)))
        for path in listed(self.checkpoints):
            if not is_whole(path):
                shutil.rmtree(path, ignore_errors=True)
        return self.last()

    def last(self) -> Path | None:
        """The last checkpoint that was written whole."""
        return next((path for path in reversed(listed(self.checkpoints)) if is_whole(path)), None)

    def clear(self) -> None:
        """Remove the checkpoints: the run is finished, and its result on the disk."""
        for path in (*sorted(self.folder.rglob("*"), reverse=True), self.folder):
            if self.checkpoints not in path.parents and (path.is_file() or path.is_dir()):
                with suppress(PermissionError):  # somebody else's
                    sync(path)
        for path in listed(self.checkpoints):
            drop(path)
        for path in (self.checkpoints / EVAL, self.checkpoints):
            with suppress(OSError):  # it holds something of somebody else's
                path.rmdir()


def rotate(checkpoints: Path, best: str | Path | None) -> None:
    """Keep two whole checkpoints: the last and the best, or the last two. Called once the last one is sealed.

    Args:
        checkpoints: the folder of all.
        best: the one that did best on dev.
    """
    found = [path for path in reversed(listed(checkpoints)) if is_whole(path)]
    kept = dict.fromkeys([*found[:1], *(path for path in found if best is not None and path == Path(best)), *found])
    for path in [*kept][2:]:
        drop(path)


def drop(checkpoint: Path) -> None:
    """Remove a checkpoint, its seal first; of a whole one, only the files that were sealed."""
    if not is_whole(checkpoint):
        shutil.rmtree(checkpoint, ignore_errors=True)
        return
    names = json.loads((checkpoint / SEAL).read_text("utf-8"))
    with suppress(OSError):  # it holds something of somebody else's
        for name in (SEAL, *names):
            (checkpoint / name).unlink()
        checkpoint.rmdir()


def listed(checkpoints: Path) -> list[Path]:
    """The checkpoints of a folder, by their steps."""
    steps = {int(m[1]): path for path in checkpoints.glob("*") if (m := NAME.fullmatch(path.name))}
    return [steps[step] for step in sorted(steps)]


def processes() -> int:
    """How many train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Whether this process writes what is written once."""
    return int(os.environ.get("RANK", "0")) == 0


def is_whole(checkpoint: Path) -> bool:
    """Whether a checkpoint was sealed, and all its files are as long as they were."""
    try:
        sizes = json.loads((checkpoint / SEAL).read_text("utf-8"))
        return isinstance(sizes, dict) and all((checkpoint / n).stat().st_size == size for n, size in sizes.items())
    except (OSError, ValueError):
        return False


def seal(checkpoint: Path) -> None:
    """Say that a checkpoint is whole, once the disk has all of it: neither SIGKILL nor a power cut can pretend it."""
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
