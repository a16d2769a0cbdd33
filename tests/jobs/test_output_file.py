"""What cannot be written is refused before a model is loaded."""

import os
from pathlib import Path

import pytest

from afterword.errors import DataError, InputError
from afterword.jobs.output_file import Output

REJECT = '{"row": 0, "line": 1, "reason": "is blank"}\n'


def check(path: Path | None, rejects: Path | None = None, source: Path | None = None, vectors: int = 1) -> None:
    Output(path, rejects, {}, source).check(vectors)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "a.jsonl"
    path.write_text("{}\n")
    return path


def test_the_input_is_never_an_output(tmp_path: Path, source: Path):
    (tmp_path / "link.jsonl").symlink_to(source)
    os.link(source, tmp_path / "hard.jsonl")
    (tmp_path / "folder").symlink_to(tmp_path)
    for path in (source, tmp_path / "link.jsonl", tmp_path / "hard.jsonl", tmp_path / "folder" / "a.jsonl"):
        for given in (
            (path, None, source),
            (tmp_path / "b.jsonl", path, source),
            (path, None, tmp_path / "link.jsonl"),
        ):
            with pytest.raises(InputError, match="is the input: choose another file"):
                check(*given)


def test_vectors_and_rejected_rows_go_to_two_files(tmp_path: Path):
    (tmp_path / "folder").symlink_to(tmp_path)
    for rejects in (tmp_path / "b.jsonl", tmp_path / "folder" / "b.jsonl"):
        with pytest.raises(InputError, match=r"given for the vectors and for the rejected rows: choose two files"):
            check(tmp_path / "b.jsonl", rejects)


def test_nothing_of_the_command_lies_among_its_parts(tmp_path: Path):
    parts = tmp_path / "b.jsonl.parts"
    parts.mkdir()
    (parts / "in.txt").write_text("a\n")
    with pytest.raises(InputError, match=r"in\.txt is in .*b\.jsonl\.parts, where parts of the output are kept"):
        check(tmp_path / "b.jsonl", None, parts / "in.txt")
    with pytest.raises(InputError, match=r"bad\.jsonl is in "):
        check(tmp_path / "b.jsonl", parts / "bad.jsonl")
    mine = tmp_path / "c.jsonl.parts"
    for given in ((tmp_path / "c.jsonl", mine), (tmp_path / "c.jsonl", None, mine)):
        with pytest.raises(InputError, match=r"c\.jsonl\.parts is where parts of the output are kept: choose another"):
            check(*given)


def test_an_array_holds_one_vector_a_row(tmp_path: Path):
    with pytest.raises(InputError, match="one vector a row, and 2 methods are given"):
        check(tmp_path / "b.npy", vectors=2)
    assert Output(tmp_path / "b.npy", None, {}).listing == tmp_path / "b.npy.rejects.jsonl"


def test_a_place_that_cannot_be_written(tmp_path: Path):
    with pytest.raises(DataError, match=r"b\.npy cannot be written: there is no folder (.*none): mkdir -p \1"):
        check(tmp_path / "none" / "b.npy")
    with pytest.raises(DataError, match="there is no folder"):
        check(tmp_path / "b.npy", tmp_path / "none" / "bad.jsonl")
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(DataError, match=r"folder\.npy is a folder: give the name of a file"):
        check(tmp_path / "folder.npy")
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(DataError, match="is not a file"):
        check(tmp_path / "pipe.jsonl")
    with pytest.raises(DataError, match=r"write a \.jsonl, \.parquet, \.npy file"):
        check(tmp_path / "a.doc")


def test_a_folder_without_the_right_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "kept"
    folder.mkdir()
    folder.chmod(0o500)
    if os.geteuid() == 0:  # who may write everywhere: what another user would be told
        monkeypatch.setattr(os, "access", lambda path, mode: os.stat(path).st_mode & 0o200 != 0)
    with pytest.raises(DataError, match=r"no file can be written into (.*kept): chmod u\+w \1"):
        check(folder / "b.npy")
    check(tmp_path / "b.npy")


def test_only_a_list_of_rejected_rows_is_replaced_by_one(tmp_path: Path):
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    with pytest.raises(InputError, match=r"notes\.txt exists and lists no rejected rows"):
        check(tmp_path / "b.npy", notes)
    Output(tmp_path / "b.npy", notes, {}, overwrite=True).check(1)
    for text in (REJECT, ""):
        notes.write_text(text)
        check(tmp_path / "b.npy", notes)


def test_a_file_that_exists_is_replaced_only_on_demand(tmp_path: Path):
    (tmp_path / "b.npy").write_bytes(b"")
    (tmp_path / "link.npy").symlink_to(tmp_path / "b.npy")
    for path in (tmp_path / "b.npy", tmp_path / "link.npy"):
        with pytest.raises(InputError, match=r"npy exists: choose another name, or --overwrite"):
            Output(path, None, {}).check_new()
        Output(path, None, {}, overwrite=True).check_new()
    Output(tmp_path / "c.npy", None, {}).check_new()
    assert Output(tmp_path / "link.npy", None, {}).parts == tmp_path / "b.npy.parts"
