import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from afterword.errors import MethodError, ModelError
from afterword.files.atomic import JOURNAL, atomic_file, atomic_folder, refuse_while_written, remove_left, temporary
from afterword.files.folder_lock import lock_folder
from afterword.files.manifest import MANIFEST


def names(folder: Path) -> list[str]:
    """All files but the list of what was saved."""
    found = (p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file() and p.name != MANIFEST)
    return sorted(found)


def write(folder: Path, *files: str, text: str = "mine") -> None:
    """Files of one text; a name that ends in / is a folder."""
    for name in files:
        path = folder / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.write_text(text)


def save(place: Path, *files: str, text: str = "saved") -> None:
    with atomic_folder(place) as new:
        write(new, *files, text=text)


def refused(place: Path, *files: str) -> str:
    """The one line that a save is refused with; everything is as it was before."""
    before = {p: p.read_bytes() for p in place.parent.rglob("*") if p.is_file()}
    with pytest.raises(ModelError) as caught:
        save(place, *files)
    assert {p: p.read_bytes() for p in place.parent.rglob("*") if p.is_file()} == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


def left(stage: Path, *files: str) -> None:
    """What a save that was killed leaves: its lock, and files."""
    with lock_folder(stage, "saving into"):
        write(stage, *files)


def interrupted(place: Path, **moved: object) -> None:
    """A save that was killed while it moved what its journal says."""
    left(place / ".afterword-saving", "old/x")
    text = json.dumps({"new": {}, "old": [], "folders": [], **moved})
    (place / ".afterword-saving" / JOURNAL).write_text(text)


def fail(place: Path, error: BaseException) -> None:
    """Write half of something."""
    with atomic_folder(place) as half:
        (half / "config.json").write_text("new")
        raise error


def overtaken(place: Path) -> None:
    """Save into a folder that somebody makes before the save is done."""
    with atomic_folder(place) as new:
        write(new, "config.json")
        write(place, "mine")


def test_it_appears_whole_in_the_end(tmp_path: Path):
    place = tmp_path / "a" / "b"
    with atomic_folder(place) as half:
        (half / "config.json").write_text("new")
        assert not place.exists()
    assert names(tmp_path) == ["a/b/config.json"]


def test_others_may_read_what_is_shared(tmp_path: Path):
    """safetensors keeps what it writes to its owner."""
    with atomic_folder(tmp_path / "a") as half:
        save_file({"x": torch.ones(1)}, half / "model.safetensors")
    (tmp_path / "usual").touch()
    assert (tmp_path / "a" / "model.safetensors").stat().st_mode == (tmp_path / "usual").stat().st_mode
    assert names(tmp_path / "a") == ["model.safetensors"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), RuntimeError("first\nsecond"), ValueError()])
def test_a_failure_leaves_what_was_there(error: Exception, tmp_path: Path):
    place = tmp_path / "a"
    save(place, "config.json", text="old")
    with pytest.raises(ModelError, match=r"cannot be written: .*; what was there before is kept$"):
        fail(place, error)
    assert names(tmp_path) == ["a/config.json"]
    assert (place / "config.json").read_text() == "old"


def test_errors_of_ours_and_interrupts_pass(tmp_path: Path):
    for error in (MethodError("mine"), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            fail(tmp_path / "a", error)
        assert names(tmp_path) == []
    assert not list(tmp_path.iterdir())


def test_what_was_saved_is_replaced_and_everything_else_stays(tmp_path: Path):
    place = tmp_path / "a"
    mine = ("1_raw/x.csv", "2_analysis/y", "notes.safetensors", "own.model", "README.md", ".git/x", "1_Pooling/notes")
    write(place, *mine)
    save(place, "config.json", "model.safetensors", "1_Pooling/config.json", "2_Dense/config.json")
    save(place, "config.json", "vocab.txt", text="again")
    assert names(tmp_path) == sorted(f"a/{name}" for name in (*mine, "config.json", "vocab.txt"))
    assert {(place / name).read_text() for name in mine} == {"mine"}
    assert (place / "config.json").read_text() == "again" and not (place / "2_Dense").exists()


@pytest.mark.parametrize(
    "name", ["config.json", "1_Pooling/config.json", "1_Pooling", "vocab.txt", "2_Normalize/config.json"]
)
def test_a_file_of_somebody_else_is_refused_by_name(name: str, tmp_path: Path):
    """It would be replaced, or read as a part of the model."""
    write(tmp_path / "a", name, "other")
    said = refused(tmp_path / "a", "config.json", "1_Pooling/config.json", "2_Normalize/")
    assert f"a holds {name}, which is not listed in {MANIFEST} as saved by Afterword: save into another folder" in said


def test_a_saved_file_that_was_changed_is_the_users(tmp_path: Path):
    place = tmp_path / "a"
    save(place, "config.json", "tokenizer.json")
    for text in ("longer than it was", "SAVED"):
        (place / "tokenizer.json").write_text(text)
        assert "tokenizer.json was changed after it was saved: save into another folder" in refused(
            place, "config.json"
        )
    (place / "tokenizer.json").write_text("saved")  # its time differs, what it says does not
    save(place, "config.json")
    assert names(place) == ["config.json"]
    (place / "config.json").unlink()  # what is gone is nobody's
    save(place, "config.json")


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"files": {}}', "[" * 10_000, '{"files": {"../x": {"bytes": 1, "modified": 1, "sha256": ""}},'
             ' "folders": []}', '{"files": {}, "folders": ["/x"]}', '{"files": {}, "folders": ["a\\u0000b"]}',
             '{"files": {}, "folders": ["\\ud800"]}', '{"files": {}, "folders": [5]}',
             '{"files": {}, "folders": {"b": 1}}',
             '{"files": {"config.json": {"bytes": 1, "modified": null, "sha256": null}}, "folders": []}',
             '{"files": {"config.json": ["bytes", "modified", "sha256"]}, "folders": []}',
             '{"files": {"' + "x" * 300 + '": {"bytes": 1, "modified": 1, "sha256": ""}}, "folders": []}'],
)  # fmt: skip
def test_a_list_that_is_none_removes_nothing(text: str, tmp_path: Path):
    (tmp_path / "x").write_text("m")
    write(tmp_path / "a", MANIFEST, text=text)
    assert "is broken, and no list of saved files: save into another folder" in refused(tmp_path / "a", "config.json")


def test_links_are_never_written_through_nor_removed(tmp_path: Path):
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "config.json").write_text("mine")
    place = tmp_path / "a"
    place.mkdir()
    (place / "1_Pooling").symlink_to(tmp_path / "else")
    assert "a holds 1_Pooling, which is not listed" in refused(place, "1_Pooling/config.json")
    (place / "config.json").symlink_to(tmp_path / "gone")
    assert "a holds config.json, which is not listed" in refused(place, "config.json")
    (place / "config.json").unlink()
    (place / "1_Pooling").unlink()
    save(place, "config.json")
    (place / "config.json").rename(tmp_path / "moved")
    (place / "config.json").symlink_to(tmp_path / "moved")
    assert "config.json was changed after it was saved" in refused(place, "config.json")


def test_the_working_directory_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "mine.txt")
    for place in ("", ".", str(tmp_path)):
        save(Path(place), "config.json", text=place or "empty")
        assert Path.cwd().samefile(tmp_path) and os.stat(".").st_nlink > 0
        assert Path("config.json").read_text() == (place or "empty") and Path("mine.txt").read_text() == "mine"


def test_what_a_killed_save_has_left_goes_with_the_next(tmp_path: Path):
    left(tmp_path / ".a.afterword-saving", "new/model.safetensors")
    save(tmp_path / "a", "config.json")
    left(tmp_path / "a" / ".afterword-saving", "new/model.safetensors")
    save(tmp_path / "a", "config.json")
    assert names(tmp_path) == ["a/config.json"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a"]


@pytest.mark.parametrize("files", [("mine",), ("lock", "new/mine"), ("lock",), ("lock/x", "new/mine")])
def test_a_folder_of_that_name_that_is_not_ours_stays(files: tuple[str, ...], tmp_path: Path):
    """A file named lock is no proof."""
    write(tmp_path / "a" / ".afterword-saving", *files)
    assert "was not made by Afterword: move it away" in refused(tmp_path / "a", "config.json")


OUTSIDE = ["../notes.txt", "p/../../notes.txt", "/tmp/x", "link/x", ".afterword-saving/lock", "", "a\0b", "\ud800"]
"""Names in a journal that lead out of the folder, or nowhere."""


@pytest.mark.parametrize("part", ["new", "old", "folders"])
@pytest.mark.parametrize("name", OUTSIDE)
def test_a_journal_moves_nothing_outside_its_folder(name: str, part: str, tmp_path: Path):
    write(tmp_path, "notes.txt", "else/x", "a/p/", "a/evil")
    (tmp_path / "a" / "link").symlink_to(tmp_path / "else")
    interrupted(tmp_path / "a", **{part: {name: [4, 0, 0]} if part == "new" else [name]})
    said = refused(tmp_path / "a", "config.json")
    assert "is broken, and no list of what a save was moving" in said or "a holds link, which is not listed" in said


def test_a_journal_reads_nothing_through_links_of_its_own_folders(tmp_path: Path):
    write(tmp_path, "else/config.json", "a/mine")
    interrupted(tmp_path / "a", old=["config.json"])
    (tmp_path / "a" / ".afterword-saving" / "old").rename(tmp_path / "gone")
    (tmp_path / "a" / ".afterword-saving" / "old").symlink_to(tmp_path / "else")
    assert "holds old, which is not listed" in refused(tmp_path / "a", "config.json")


def test_a_journal_that_came_with_a_copied_folder_is_not_followed(tmp_path: Path):
    """Whoever made it may have written anything; a download has no lock of this place."""
    interrupted(tmp_path / "a", old=["x"])
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert "was not made by Afterword: move it away" in refused(tmp_path / "b", "config.json")
    save(tmp_path / "a", "config.json")
    assert names(tmp_path / "a") == ["config.json", "x"]


def test_an_empty_folder_of_the_users_stays_when_the_model_no_longer_needs_it(tmp_path: Path):
    place = tmp_path / "a"
    write(place, "1_Pooling/")
    save(place, "config.json", "1_Pooling/config.json", "2_Normalize/")
    save(place, "config.json", "1_Pooling/config.json", "2_Normalize/")
    save(place, "config.json")
    assert (place / "1_Pooling").is_dir() and not (place / "2_Normalize").exists()


@pytest.mark.parametrize("name", ["a\0b", "a\ud800"])
def test_a_name_that_no_folder_can_have_is_refused(name: str, tmp_path: Path):
    assert "cannot name a folder: it holds a character" in refused(tmp_path / name, "config.json")


@pytest.mark.parametrize("there", [True, False])
def test_of_two_writers_one_wins_and_the_other_is_refused(there: bool, tmp_path: Path):
    place = tmp_path / "a"
    if there:
        save(place, "config.json")
    with atomic_folder(place) as new:
        write(new, "config.json", text="first")
        with pytest.raises(ModelError, match=r"another process .* is saving into"):
            save(place, "config.json", text="second")
        assert (new / "config.json").read_text() == "first"
    assert (place / "config.json").read_text() == "first"
    assert names(tmp_path) == ["a/config.json"]


def test_a_folder_that_appeared_meanwhile_is_not_touched(tmp_path: Path):
    with pytest.raises(ModelError, match="cannot be written"):
        overtaken(tmp_path / "a")
    assert names(tmp_path) == ["a/mine"]


def test_a_folder_whose_files_are_being_moved_is_not_read(tmp_path: Path):
    place = tmp_path / "a"
    save(place, "config.json")
    with refuse_while_written(place):
        pass
    with (
        pytest.raises(ModelError, match="was saved anew while it was read: load it again"),
        refuse_while_written(place),
    ):
        save(place, "config.json")
    write(place, ".afterword-saving/moving.json")
    with (
        pytest.raises(ModelError, match="a save there was interrupted: wait, or save into it again"),
        refuse_while_written(place),
    ):
        pass


def test_a_link_is_followed(tmp_path: Path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with atomic_folder(tmp_path / "link") as half:
        (half / "config.json").write_text("new")
    assert (tmp_path / "link").is_symlink() and names(tmp_path / "real") == ["config.json"]


def test_what_a_killed_writer_left_is_removed_and_what_a_living_one_writes_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    remove_left(path)
    temporary(path).write_text("half")
    remove_left(path)
    assert not names(tmp_path)
    with atomic_file(path) as file:
        file.write(b"whole")
        remove_left(path)
        assert names(tmp_path) == [temporary(path).name]
    assert path.read_text() == "whole"
