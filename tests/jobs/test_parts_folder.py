"""Parts are whole or not there; tests/cli/test_resumed_runs.py has runs that are killed."""

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from afterword.errors import DataError, InputError
from afterword.files.atomic import temporary
from afterword.jobs.items import Item
from afterword.jobs.output_file import Output
from afterword.jobs.parts_folder import PartsFolder, completed, open_parts, remove_empty
from afterword.jobs.rejects import reject_line
from afterword.jobs.store import Totals
from afterword.jobs.write_vectors import Block

EMPTY = {"vector": np.zeros((0, 2), np.float32)}


def output(folder: Path, **settings: object) -> Output:
    return Output(folder / "a.npy", None, {}, settings=settings)


def filled(parts: PartsFolder, windows: list[list[Item]], made_by: Mapping[str, object] = {}) -> int:
    before = parts.begin(EMPTY, {}, dict(made_by))
    for number, items in enumerate(windows):
        if not parts.has(number, 2 * number, items):
            rows = np.array([[i.line, i.line] for i in items], np.float32)
            parts.add(number, 2 * number, items, Block({}, {"vector": rows}))
    return before


WINDOWS = [[Item(1, "a"), Item(2, "b")], [Item(3, "c")]]


def test_parts_are_kept_until_they_are_joined(tmp_path: Path):
    one = output(tmp_path)
    with open_parts(one, print) as parts:
        assert filled(parts, WINDOWS[:1]) == 0
        assert parts.kept() == f"2 rows kept in {one.parts}; the same command goes on from there"
    assert one.parts.is_dir() and completed(one) is None
    with open_parts(one, print) as parts:
        assert filled(parts, WINDOWS) == 2
        assert parts.finish(2) == Totals(3, 0)
    assert np.load(tmp_path / "a.npy")[:, 0].tolist() == [1, 2, 3]
    assert [path.name for path in tmp_path.iterdir()] == ["a.npy"]


def test_nothing_is_left_of_a_run_that_finished_no_window(tmp_path: Path):
    with open_parts(output(tmp_path), print) as parts:
        filled(parts, [])
        assert (tmp_path / "a.npy.parts" / "job.json").exists()
        assert parts.kept() == "no window was finished, and nothing is kept"
    assert not list(tmp_path.iterdir())


def test_one_process_at_a_time(tmp_path: Path):
    one = output(tmp_path)
    with (
        open_parts(one, print),
        pytest.raises(DataError, match=r"another process is writing .*a\.npy: wait for it"),
        open_parts(one, print),
    ):
        pass


def test_what_made_the_parts_is_compared(tmp_path: Path):
    with open_parts(output(tmp_path, prompt="x"), print) as parts:
        filled(parts, WINDOWS[:1], {"device": "cpu"})
    with pytest.raises(DataError, match="was begun with prompt x, and now it is y"):  # noqa: SIM117
        with open_parts(output(tmp_path, prompt="y"), print):
            pass
    with (
        open_parts(output(tmp_path, prompt="x"), print) as parts,
        pytest.raises(DataError, match="device cpu, and now"),
    ):
        filled(parts, WINDOWS, {"device": "cuda"})
    with open_parts(output(tmp_path, prompt="x"), print) as parts:
        assert filled(parts, WINDOWS, {"device": "cpu"}) == 2


def killed_at_its_end(one: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of all windows that is killed when the output has its name, before a part is removed."""
    with monkeypatch.context() as patch, open_parts(one, print) as parts:
        filled(parts, WINDOWS)
        parts.finish(2)
        patch.setattr(parts, "clear", lambda: None)


def from_file(folder: Path, name: str = "in.txt", **options: Any) -> Output:
    """An output whose input is a file."""
    (folder / name).write_text("a\nb\nc\n")
    return Output(folder / "a.npy", None, {}, folder / name, **options)


def test_a_run_that_is_killed_before_it_removes_its_parts_is_complete_while_its_input_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    one = from_file(tmp_path)
    killed_at_its_end(one, monkeypatch)
    assert completed(one) == Totals(3, 0)
    assert completed(replace(one, settings={"--prompt": "another"})) is None
    assert completed(replace(one, overwrite=True)) is None
    assert completed(replace(one, source=None)) is None
    one.source.write_text("a\nb\nx\n")
    assert completed(one) is None
    with pytest.raises(InputError, match=r"a\.npy exists"), open_parts(one, print):
        pass
    with open_parts(replace(one, overwrite=True), print) as parts:
        assert filled(parts, [WINDOWS[0], [Item(7, "x")]]) == 3
        assert parts.finish(2) == Totals(3, 0)
    assert np.load(one.file)[:, 0].tolist() == [1, 2, 7] and not one.parts.exists()


def test_a_file_of_the_same_name_is_not_the_one_of_a_completed_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    one = from_file(tmp_path)
    killed_at_its_end(one, monkeypatch)
    one.file.write_bytes(one.file.read_bytes())
    assert completed(one) is None


def test_an_input_whose_name_is_not_utf8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    one = from_file(tmp_path, os.fsdecode(b"caf\xe9.txt"))
    killed_at_its_end(one, monkeypatch)
    assert completed(one) == Totals(3, 0)


def test_an_output_that_appears_during_a_run_stays(tmp_path: Path):
    one = output(tmp_path)
    with open_parts(one, print) as parts:
        filled(parts, WINDOWS)
        one.file.write_text("of another")
        with pytest.raises(DataError) as e:
            parts.finish(2)
    assert str(e.value) == (
        f"{one.file} has appeared since this run began: move it away, or --overwrite; 3 rows kept in {one.parts}; the "
        "same command goes on from there"
    )
    with pytest.raises(InputError, match=r"a\.npy exists: choose another name"), open_parts(one, print):
        pass
    assert one.file.read_text() == "of another"
    one.file.unlink()
    with open_parts(one, print) as parts:
        assert filled(parts, WINDOWS) == 3 and parts.finish(2) == Totals(3, 0)
    assert np.load(one.file)[:, 0].tolist() == [1, 2, 3] and not one.parts.exists()


@pytest.mark.parametrize("links", [True, False])
def test_an_output_that_appears_at_the_last_moment_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool):
    one = output(tmp_path)
    if not links:  # as on a file system without hard links
        monkeypatch.setattr(os, "link", lambda *_: os.rmdir(tmp_path))
    monkeypatch.setattr(PartsFolder, "_list_rejects", lambda *_: one.file.write_text("of another"))
    with open_parts(one, print) as parts:
        filled(parts, WINDOWS)
        with pytest.raises(DataError, match="has appeared since"):
            parts.finish(2)
    assert one.file.read_text() == "of another"
    with open_parts(replace(one, overwrite=True), print) as parts:
        assert filled(parts, WINDOWS) == 3 and parts.finish(2) == Totals(3, 0)
    assert np.load(one.file)[:, 0].tolist() == [1, 2, 3] and not one.parts.exists()


def test_a_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "link", lambda *_: os.rmdir(tmp_path))
    with open_parts(output(tmp_path), print) as parts:
        filled(parts, WINDOWS)
        parts.finish(2)
    assert [path.name for path in tmp_path.iterdir()] == ["a.npy"]


@pytest.mark.parametrize("content", ['{"settings": {', "[]", "null", '{"settings": []}', '{"settings": {}}', None])
def test_parts_whose_job_is_damaged_stay(tmp_path: Path, content: str | None):
    one = output(tmp_path)
    with open_parts(one, print) as parts:
        filled(parts, WINDOWS)
    job = one.parts / "job.json"
    job.unlink() if content is None else job.write_text(content)
    with pytest.raises(DataError) as e, open_parts(one, print):
        pass
    assert str(e.value) == (
        f"{job} is {'missing' if content is None else 'damaged'}, so that it is not known how the parts were made: "
        "nothing was removed; --overwrite starts anew"
    )
    assert len(list(one.parts.glob("done/*.json"))) == len(list(one.parts.glob("shards/*.npy"))) == 2
    with open_parts(replace(one, overwrite=True), print) as parts:
        assert filled(parts, WINDOWS) == 0 and parts.finish(2) == Totals(3, 0)


@pytest.mark.parametrize(
    "change",
    [
        {"rows": None}, {"rows": "x"}, {"rows": 2}, {"rejected": []}, {"input": None}, {"each": 5}, {"each": "!"},
        {"part": None}, {"listing": {}},
    ],
)  # fmt: skip
def test_a_part_whose_marker_has_another_shape_is_done_again(tmp_path: Path, change: dict[str, object]):
    one, told = output(tmp_path), []
    with open_parts(one, print) as parts:
        filled(parts, WINDOWS)
    marker = one.parts / "done" / "000001.json"
    marker.write_text(json.dumps({**json.loads(marker.read_text()), **change}))
    (one.parts / "done" / "job.json").write_text("{}")
    with open_parts(one, told.append) as parts:
        assert "rows kept in" in parts.kept()
        assert filled(parts, WINDOWS) == 2 and parts.finish(2) == Totals(3, 0)
    assert told == [f"warning: part 000001 in {one.parts} is damaged: its rows are embedded again"]


def test_what_a_killed_run_left_of_its_list_is_removed(tmp_path: Path):
    left = temporary(tmp_path / "a.npy.rejects.jsonl")
    left.write_text("half a l")
    with open_parts(output(tmp_path), print) as parts:
        filled(parts, WINDOWS)
        parts.finish(2)
    assert [path.name for path in tmp_path.iterdir()] == ["a.npy"]


def test_a_folder_without_parts_says_that_the_output_is_complete(tmp_path: Path):
    one = output(tmp_path)
    assert not remove_empty(one)
    one.parts.mkdir()
    one.file.write_bytes(b"")
    with pytest.raises(InputError, match=r"a\.npy exists, and is complete: choose another name, or --overwrite"):
        one.check_new(remove_empty(one))
    assert not one.parts.exists()


def test_a_file_that_appears_under_the_name_of_the_list_stays(tmp_path: Path):
    one = output(tmp_path)
    with open_parts(one, print) as parts:
        filled(parts, [[Item(1, "a"), Item(2, " ", "is blank")]])
        one.listing.write_text("mine")
        with pytest.raises(DataError, match=r"rejects\.jsonl exists and lists no rejected rows.*; 2 rows kept in"):
            parts.finish(1)
    assert one.listing.read_text() == "mine" and not one.file.exists()
    one.listing.unlink()
    with open_parts(one, print) as parts:
        assert filled(parts, [[Item(1, "a"), Item(2, " ", "is blank")]]) == 2 and parts.finish(1) == Totals(2, 1)
    assert one.listing.read_bytes() == reject_line(1, 2, "is blank") and not one.parts.exists()


def test_rows_are_listed_by_the_numbers_that_were_given(tmp_path: Path):
    one, windows = output(tmp_path), [[Item(1, "a"), Item(3, " ", "is blank")], [Item(6, "", "is empty")]]
    with open_parts(one, print) as parts:
        parts.numbers = [0, 2, 5]
        filled(parts, windows)
        parts.finish(2)
    assert one.listing.read_bytes() == reject_line(2, 3, "is blank") + reject_line(5, 6, "is empty")
