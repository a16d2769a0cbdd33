import importlib.util
import os
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from socket import gethostname

import pytest

from afterword import Encoder
from afterword.errors import ModelError
from afterword.files import folder_lock as lock
from afterword.files.folder_lock import lock_folder


def test_one_at_a_time_and_nothing_is_left(tmp_path: Path):
    folder = tmp_path / "a" / "held"
    for _ in range(2):
        with (
            lock_folder(folder, "writing"),
            pytest.raises(ModelError, match=rf"another process \({os.getpid()}\) is writing .*a: wait for it"),
            lock_folder(folder, "writing"),
        ):
            pass
        assert not folder.exists()


def test_what_else_lies_there_stays_with_the_lock(tmp_path: Path):
    with lock_folder(tmp_path / "a", "writing"):
        (tmp_path / "a" / "file").write_text("")
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == ["file", "lock"]
    with lock_folder(tmp_path / "a", "writing"):
        (tmp_path / "a" / "file").unlink()
    assert not list(tmp_path.iterdir())


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path):
    (tmp_path / "mine").write_text("")
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for folder in (tmp_path, tmp_path / "link"):
        with pytest.raises(ModelError, match="was not made by Afterword: move it away"), lock_folder(folder, "writing"):
            pass
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "mine", "real"]


def test_a_lock_of_somebody_else_is_neither_read_nor_written_nor_removed(tmp_path: Path):
    (tmp_path / "mine").write_text("")
    for name, make in {
        "said": lambda path: path.write_text("mine"),
        "link": lambda path: path.symlink_to(tmp_path / "mine"),
        "pipe": os.mkfifo,
    }.items():
        (tmp_path / name).mkdir()
        make(tmp_path / name / "lock")
        with pytest.raises(ModelError, match="was not made by Afterword"), lock_folder(tmp_path / name, "writing"):
            pass
        assert os.path.lexists(tmp_path / name / "lock") and (tmp_path / "mine").read_text() == ""


def test_a_lock_without_a_word_is_taken_when_it_is_alone(tmp_path: Path):
    """Its process was killed before it could write, or its folder was copied."""
    for said in ("", "After", f"{lock.MARK}5"):
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "lock").write_text(said)
        with lock_folder(tmp_path / "a", "writing"):
            pass
        assert not (tmp_path / "a").exists()


def test_windows_is_refused_before_anything_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)  # its import fails
    spec = importlib.util.spec_from_file_location("afterword.files.folder_lock", lock.__file__)
    assert spec is not None and spec.loader is not None
    spec.loader.exec_module(there := importlib.util.module_from_spec(spec))
    monkeypatch.setattr(lock, "fcntl", there.fcntl)
    for locked in (there.lock_folder, lock_folder):
        with pytest.raises(ModelError, match=f"^writing {tmp_path} needs file locks, .* Windows .* use Linux"):
            locked(tmp_path / "a", "writing").__enter__()
    folder = tmp_path / "encoder"
    with pytest.raises(ModelError, match=r"^saving into .* needs file locks"):
        Encoder.load("afterword-mini", "classical").save(folder)
    assert not any(tmp_path.iterdir())


def test_on_a_file_system_without_locks_a_folder_that_is_there_is_taken_for_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def fails(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(lock.fcntl, "flock", fails)
    with lock_folder(tmp_path / "a", "writing"), pytest.raises(ModelError, match="if there is none, remove"):  # noqa: SIM117
        with lock_folder(tmp_path / "a", "writing"):
            pass
    with lock_folder(tmp_path / "a", "writing"):
        pass
    ended = subprocess.Popen(["true"])
    ended.wait()
    there = (ended.pid, gethostname(), True), (ended.pid, "elsewhere", False), (os.getppid(), gethostname(), False)
    for pid, host, taken in there:
        held(tmp_path / "a", lock.HOLDER + f"{pid} on {host}\n".encode())
        with nullcontext() if taken else pytest.raises(ModelError, match=f"another process .{pid}.* is writing"):  # noqa: SIM117
            with lock_folder(tmp_path / "a", "writing"):
                pass
        shutil.rmtree(tmp_path / "a", ignore_errors=True)


def held(folder: Path, rest: bytes) -> bytes:
    """A folder with a lock file that Afterword made; gives the mark in that."""
    folder.mkdir()
    (folder / "lock").touch()
    mark = f"{lock.MARK}{(folder / 'lock').stat().st_ino}".encode()
    (folder / "lock").write_bytes(mark + rest)
    return mark


@pytest.mark.parametrize("rest", [b"", lock.HOLDER + b"1234567890123 on a-computer-with-a-long-name\n" + b"x" * 300])
def test_a_lock_names_its_holder_whatever_it_held_before(tmp_path: Path, rest: bytes):
    mark = held(tmp_path / "a", rest)
    (tmp_path / "a" / "file").touch()
    with lock_folder(tmp_path / "a", "writing"):
        content = (tmp_path / "a" / "lock").read_bytes()
    assert content == mark + lock.HOLDER + f"{os.getpid()} on {gethostname()}\n".encode()


def test_a_copy_of_a_folder_is_known(tmp_path: Path):
    with lock_folder(tmp_path / "a", "writing"):
        (tmp_path / "a" / "file").write_text("")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    (tmp_path / "a").rename(tmp_path / "c")
    (tmp_path / "d").mkdir()
    assert [lock.is_copy(tmp_path / name) for name in "abcd"] == [False, True, False, False]
    with pytest.raises(ModelError, match="b was not made by Afterword: move it away"):
        lock_folder(tmp_path / "b", "writing").__enter__()
