"""Atomic files and folders: they appear complete or not at all, and nothing of the user's is overwritten."""

import errno
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from afterword.errors import DataError, MethodError, ModelError
from afterword.files.atomic import atomic_file, atomic_folder


def write(folder: Path, *names: str, text: str = "mine") -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def save(folder: Path, *names: str, text: str = "saved", overwrite: bool = False) -> None:
    with atomic_folder(folder, overwrite) as new:
        write(new, "modules.json", *names, text=text)


def fail(folder: Path, error: BaseException, overwrite: bool = False) -> None:
    with atomic_folder(folder, overwrite) as new:
        write(new, "modules.json", text="half")
        raise error


def tree(folder: Path) -> dict[str, str]:
    return {p.relative_to(folder).as_posix(): p.read_text() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_a_folder_appears_complete(tmp_path: Path):
    place = tmp_path / "a" / "b"
    with atomic_folder(place) as new:
        write(new, "modules.json")
        assert not place.exists()
    assert tree(tmp_path) == {"a/b/modules.json": "mine"}


def test_an_empty_folder_and_a_link_to_one_are_saved_into(tmp_path: Path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and tree(tmp_path / "real") == {"modules.json": "saved"}


def test_saved_files_have_the_usual_permissions(tmp_path: Path):
    """safetensors lets only the owner read what it writes."""
    with atomic_folder(tmp_path / "a") as new:
        save_file({"x": torch.ones(1)}, new / "model.safetensors")
    (tmp_path / "usual").touch()
    assert (tmp_path / "a" / "model.safetensors").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_an_encoder_is_replaced_as_a_whole_by_overwrite_alone(tmp_path: Path):
    place = tmp_path / "a"
    save(place, "1_Pooling/config.json", "tune.json")
    with pytest.raises(ModelError, match="a exists"):
        save(place, "2_Dense/config.json", text="new")
    assert set(tree(place).values()) == {"saved"}
    save(place, "2_Dense/config.json", text="new", overwrite=True)
    assert tree(tmp_path) == {"a/modules.json": "new", "a/2_Dense/config.json": "new"}
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("names", [("notes.md", "modules.json"), ("config.json",), ("src/x.py", "modules.json")])
def test_a_folder_of_the_users_is_never_touched(names: tuple[str, ...], overwrite: bool, tmp_path: Path):
    write(tmp_path / "a", *names)
    with pytest.raises(ModelError, match=str(tmp_path / "a")):
        save(tmp_path / "a", overwrite=overwrite)
    assert tree(tmp_path) == {f"a/{name}": "mine" for name in sorted(names)}


def test_a_file_in_the_way_is_kept(tmp_path: Path):
    write(tmp_path, "a")
    with pytest.raises(ModelError, match="is a file"):
        save(tmp_path / "a", overwrite=True)
    assert tree(tmp_path) == {"a": "mine"}


def test_a_folder_that_appears_while_another_is_written_is_kept(tmp_path: Path):
    place = tmp_path / "a"

    def overtaken() -> None:
        with atomic_folder(place) as new:
            write(new, "modules.json")
            write(place, "mine")

    with pytest.raises(ModelError, match="not empty"):
        overtaken()
    assert tree(tmp_path) == {"a/mine": "mine"}


@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOSPC, "No space left"), RuntimeError("first\nsecond"), MethodError("x"), KeyboardInterrupt()],
)
def test_after_an_error_the_folder_is_unchanged(error: BaseException, tmp_path: Path):
    save(tmp_path / "a")
    kind = type(error) if isinstance(error, MethodError | KeyboardInterrupt) else ModelError
    with pytest.raises(kind) as caught:
        fail(tmp_path / "a", error, overwrite=True)
    assert "\n" not in str(caught.value)
    assert tree(tmp_path) == {"a/modules.json": "saved"}


KILLED = """
import os, signal, sys
from pathlib import Path
from afterword.files.atomic import atomic_folder
with atomic_folder(Path(sys.argv[1]), overwrite=True) as new:
    (new / "modules.json").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_after_a_kill_the_folder_is_unchanged_and_can_be_saved_into(tmp_path: Path):
    save(tmp_path / "a")
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "a")], check=False)
    assert done.returncode == -signal.SIGKILL
    assert tree(tmp_path / "a") == {"modules.json": "saved"}
    save(tmp_path / "a", text="new", overwrite=True)
    assert tree(tmp_path / "a") == {"modules.json": "new"}


def test_a_file_is_replaced_once_it_is_complete(tmp_path: Path):
    path = tmp_path / "a.txt"
    write(tmp_path, "a.txt", text="old")
    with atomic_file(path) as file:
        file.write(b"new")
        assert path.read_text() == "old"
    assert tree(tmp_path) == {"a.txt": "new"}


def test_after_an_error_the_file_is_unchanged(tmp_path: Path):
    def full() -> None:
        with atomic_file(tmp_path / "a.txt") as file:
            file.write(b"half")
            raise OSError(errno.ENOSPC, "No space left")

    write(tmp_path, "a.txt", text="old")
    with pytest.raises(DataError, match=r"a\.txt"):
        full()
    assert tree(tmp_path) == {"a.txt": "old"}
