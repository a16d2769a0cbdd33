"""Nothing that a save did not write is ever removed or overwritten, wherever it fails; a mixture is never read."""

import io
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.tiny import tiny

from afterword import Encoder, classical, reba
from afterword.errors import AfterwordError, ModelError
from afterword.files.atomic import atomic_folder, refuse_while_written
from afterword.files.manifest import MANIFEST

CALLS = ("mkdir", "rename", "unlink", "rmdir", "open", "fsync", "chmod", "scandir", "stat", "lstat")
"""What a save asks of the file system, besides to open files."""
CHANGES = ("mkdir", "rename", "unlink", "rmdir", "open")
OURS = ["config.json", "modules.json", "model.safetensors", "added_tokens.json", "1_Pooling/config.json", "2_Dense/x",
        "vocab.txt", "3_Normalize/"]  # fmt: skip
THEIRS = ["README.md", "1_raw/a.csv", "notes.safetensors", "vocab.txt", "config.json", "1_Pooling/notes", "2_Dense",
          "1_Pooling/config.json", ".git/HEAD", "own.model", "tokenizer.json", "checkpoints/x"]  # fmt: skip
NEVER = 10**9
TEXTS = ["The bank of the river.", "a b"]


class Killed(BaseException):
    """The process has gone."""


@contextmanager
def failing(step: int, dead: bool, of: Sequence[str] = (*CALLS, "open")) -> Iterator[list[str]]:
    """The file system fails at the n-th call; or the process dies there, and nothing that it would do is done.

    Args:
        step: the call, from 0.
        dead: every later call fails too, and no code can catch it.
        of: the calls that count.

    Yields:
        The calls so far.
    """
    calls: list[str] = []
    places = [(os, name) for name in CALLS] + [(io, "open")]
    real = {(module, name): getattr(module, name) for module, name in places}

    def broken(module: Any, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if name in of:
                calls.append(name)
            if (len(calls) == step + 1 and name in of) or (dead and len(calls) > step):
                raise Killed if dead else OSError(5, "Input/output error")
            return None if name == "fsync" else real[module, name](*args, **kwargs)  # a test does not wait for disks

        return call

    try:
        for module, name in places:
            setattr(module, name, broken(module, name))
        yield calls
    finally:
        for (module, name), function in real.items():
            setattr(module, name, function)


def write(folder: Path, names: list[str], text: str) -> None:
    for name in names:
        path = folder / name
        with suppress(FileExistsError, NotADirectoryError, IsADirectoryError):
            (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
            if not name.endswith("/"):
                path.write_text(text)


def tree(folder: Path) -> dict[str, bytes]:
    """Every file but those of the saves themselves; a link by where it leads."""
    return {
        path.relative_to(folder).as_posix(): os.readlink(path).encode() if path.is_symlink() else path.read_bytes()
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
        if path.name != MANIFEST and ".afterword-saving" not in path.as_posix()
    }


def read(folder: Path) -> dict[str, bytes] | None:
    """The model as a loader sees it; None where it is refused, or where there is none."""
    try:
        with refuse_while_written(folder):
            return tree(folder) if (folder / "config.json").exists() else None
    except ModelError:
        return None


def save(folder: Path, names: list[str], text: str) -> None:
    """The tiniest of models."""
    with atomic_folder(folder) as new:
        write(new, ["config.json", *names], text)


SAVES = st.lists(
    st.tuples(st.lists(st.sampled_from(OURS), unique=True), st.none() | st.integers(0, 120), st.booleans()),
    min_size=1, max_size=4,
)  # fmt: skip


@examples(25)
@given(theirs=st.lists(st.sampled_from(THEIRS), unique=True, max_size=4), fresh=st.booleans(), saves=SAVES)
def test_wherever_a_save_fails_the_users_files_stay_and_no_mixture_is_read(
    theirs: list[str], fresh: bool, saves: list[tuple[list[str], int | None, bool]], tmp_path_factory: Any
):
    root = Path(tmp_path_factory.mktemp("law"))
    folder = root / "place"
    if not fresh:
        folder.mkdir()
        write(folder, theirs, "mine")
        (folder / "link").symlink_to("README.md")
    mine, whole = tree(folder) if folder.exists() else {}, None
    for number, (names, step, dead) in enumerate(saves):
        text = f"save {number}"
        new = {name: text.encode() for name in {"config.json", *names} if not name.endswith("/")}
        done = False
        with failing(NEVER if step is None else step, dead), suppress(AfterwordError, Killed):
            save(folder, names, text)
            done = True
        found = tree(folder) if folder.exists() else {}
        assert {name: found.get(name) for name in mine} == mine
        seen = read(folder)
        if done:
            whole = new
        if seen is not None:
            seen = {name: data for name, data in seen.items() if name not in mine}
            assert seen in ((new,) if done else (whole, new, {}))
            whole = seen or None
    shutil.rmtree(root)


def test_every_step_of_a_save_over_another(tmp_path: Path):
    """At each call of the file system that changes something it fails, or the process dies; at others it fails."""
    place = tmp_path / "place"
    write(place, ["mine", "1_raw/x"], "mine")
    with failing(NEVER, dead=False):
        save(place, ["added_tokens.json", "1_Pooling/config.json"], "old")
    with failing(NEVER, dead=False) as calls:
        save(place, ["added_tokens.json", "2_Dense/x"], "old")
    steps = [(i, False) for i, name in enumerate(calls) if name in CHANGES or i % 4 == 0]
    steps += [(i, True) for i, name in enumerate(calls) if name in CHANGES]
    assert len(steps) > 60
    for step, dead in steps:
        with failing(step, dead), suppress(AfterwordError, Killed):
            save(place, ["added_tokens.json", "1_Pooling/config.json"], "new")
        assert (place / "mine").read_text() == (place / "1_raw" / "x").read_text() == "mine"
        seen = read(place)
        assert dead or seen is not None, "an error leaves the old one or the new one"
        if seen is not None:
            assert set(seen.values()) - {b"mine"} in ({b"old"}, {b"new"})
            other = "2_Dense/x" if seen["config.json"] == b"old" else "1_Pooling/config.json"
            assert sorted(seen) == sorted(["mine", "1_raw/x", "config.json", "added_tokens.json", other])
        with failing(NEVER, dead=False):
            save(place, ["added_tokens.json", "2_Dense/x"], "old")  # the next save mends everything
        assert sorted(tree(place)) == ["1_raw/x", "2_Dense/x", "added_tokens.json", "config.json", "mine"]
        assert not (place / ".afterword-saving").exists()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny("bert", tmp_path_factory.mktemp("models") / "bert")


def test_an_encoder_among_the_users_files(model: Path, tmp_path: Path):
    place = tmp_path / "a"
    names = ["1_raw/x", "2_analysis/y", "notes.safetensors", "own.model", "README.md"]
    write(place, names, "mine")
    mine = tree(place)
    first, second = Encoder.load(model, classical()), Encoder.load(model, reba())
    for encoder in (first, second, first):
        encoder.save(place)
        assert {name: tree(place)[name] for name in mine} == mine
        assert np.array_equal(Encoder.load(place).encode(TEXTS), encoder.encode(TEXTS))
    with failing(12, dead=False, of=["rename"]), pytest.raises(ModelError, match=r"what was there before is kept$"):
        second.save(place)
    assert np.array_equal(Encoder.load(place).encode(TEXTS), first.encode(TEXTS))
    (place / "vocab.txt").write_text("mine")
    with pytest.raises(ModelError, match=r"holds vocab\.txt, which is not listed"):
        second.save(place)
    assert (place / "vocab.txt").read_text() == "mine"


KILLED = """
import os, signal, sys
from pathlib import Path
from afterword.files.atomic import atomic_folder
with atomic_folder(Path(sys.argv[1])) as new:
    (new / "model.safetensors").write_bytes(b"0" * 10_000)
    os.kill(os.getpid(), signal.SIGKILL)
"""


SAVING = """
import itertools, sys
from pathlib import Path
from afterword.files.atomic import atomic_folder
print("ready", flush=True)
for i in itertools.count():
    with atomic_folder(Path(sys.argv[1])) as new:
        for name in ("config.json", "added_tokens.json", *(["1_Pooling/config.json"] if i % 2 else ["2_Dense/x"])):
            (new / name).parent.mkdir(exist_ok=True)
            (new / name).write_text(f"save {i}")
"""


@pytest.mark.parametrize("kills", [3, pytest.param(500, marks=pytest.mark.soak)])
def test_whenever_saves_are_killed_the_users_files_stay(kills: int, chance: Random, tmp_path: Path):
    """The kernel ends the process wherever it is."""
    place = tmp_path / "place"
    write(place, ["mine", "1_raw/x"], "mine")
    for _ in range(kills):
        running = subprocess.Popen([sys.executable, "-c", SAVING, str(place)], stdout=subprocess.PIPE)
        assert running.stdout is not None and running.stdout.readline() == b"ready\n"
        time.sleep(chance.random() * 0.05)
        running.kill()
        assert running.wait() == -signal.SIGKILL
        running.stdout.close()
        seen = read(place) or {}
        assert (place / "mine").read_text() == (place / "1_raw" / "x").read_text() == "mine"
        assert len(set(seen.values()) - {b"mine"}) <= 1, "a mixture of two saves is read"
    save(place, [], "last")
    assert read(place) == {"config.json": b"last", "mine": b"mine", "1_raw/x": b"mine"}


@pytest.mark.parametrize("there", [True, False])
def test_what_a_killed_process_leaves_goes_with_the_next_save(there: bool, tmp_path: Path):
    """A lock goes with its process, whatever became of that."""
    place = tmp_path / "a"
    if there:
        save(place, ["mine"], "old")
    done = subprocess.run([sys.executable, "-c", KILLED, str(place)], check=False)
    assert done.returncode == -signal.SIGKILL
    left = place if there else tmp_path
    assert any(p.name.endswith(".afterword-saving") for p in left.iterdir())
    assert not there or read(place) == {"config.json": b"old", "mine": b"old"}
    save(place, ["mine"], "new")
    assert read(place) == {"config.json": b"new", "mine": b"new"}
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a", MANIFEST, "config.json", "mine"]
