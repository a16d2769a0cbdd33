"""The list itself; what is done by it is in test_placed.py."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from afterword.errors import ModelError
from afterword.files.manifest import (
    LARGE,
    MANIFEST,
    files_of,
    read_manifest,
    refuse_foreign,
    saved_files,
    write_manifest,
)


def made(folder: Path) -> Path:
    (folder / "1_Dense").mkdir(parents=True)
    (folder / "2_Normalize").mkdir()
    for name in ("config.json", "1_Dense/model.safetensors"):
        (folder / name).write_text(name)
    write_manifest(folder)
    return folder


def test_it_lists_every_file_and_folder(tmp_path: Path):
    folder = made(tmp_path / "a")
    listed = read_manifest(folder)
    assert listed is not None
    assert listed["folders"] == ["1_Dense", "2_Normalize"] and [*listed["files"]] == [
        "1_Dense/model.safetensors",
        "config.json",
    ]
    entry = listed["files"]["config.json"]
    assert entry["sha256"] == hashlib.sha256(b"config.json").hexdigest() and entry["bytes"] == len("config.json")
    assert sorted(saved_files(folder)) == files_of(folder) == ["1_Dense/model.safetensors", MANIFEST, "config.json"]
    write_manifest(folder)  # it does not list itself
    assert read_manifest(folder) == listed


def test_a_folder_without_one_has_nothing_that_was_saved(tmp_path: Path):
    assert read_manifest(tmp_path) is None and saved_files(tmp_path) == [] == saved_files(tmp_path / "gone")


def test_a_copy_is_as_good(tmp_path: Path):
    """Its files have other times, so they are read."""
    folder = made(tmp_path / "a")
    for name in ("config.json", "1_Dense/model.safetensors"):
        (folder / name).write_text(name)
    assert len(saved_files(folder)) == 3


def test_a_change_that_keeps_size_and_time_is_noticed(tmp_path: Path):
    """In small files by what they say; in large ones, which are not read each time, by their inode."""
    folder = made(tmp_path / "a")
    with (folder / "model.safetensors").open("wb") as file:
        file.truncate(LARGE)
    write_manifest(folder)
    for name in ("config.json", "model.safetensors"):
        path, before = folder / name, (folder / name).read_bytes()
        state = path.stat()
        path.rename(tmp_path / "old")
        path.write_bytes(b"x" + before[1:])
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
        with pytest.raises(ModelError, match=f"{name} was changed after it was saved"):
            saved_files(folder)
        (tmp_path / "old").replace(path)
        assert name in saved_files(folder)
    listed = json.loads((folder / MANIFEST).read_text())
    listed["files"]["config.json"]["sha256"] = "0"
    (folder / MANIFEST).write_text(json.dumps(listed))
    with pytest.raises(ModelError, match=r"config\.json was changed after it was saved"):
        saved_files(folder)


@pytest.mark.parametrize("name", ["tokenizer.json", "sentence_xlnet_config.json", "model-00001-of-00002.safetensors"])
def test_what_would_be_read_with_the_model_is_refused(name: str, tmp_path: Path):
    (tmp_path / name).write_text("")
    with pytest.raises(ModelError, match=f"holds {name}, which is not listed"):
        refuse_foreign(tmp_path, (), (), ())
    refuse_foreign(tmp_path, (), (), (name,))
