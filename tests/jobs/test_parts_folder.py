"""Parts are whole or not there; tests/cli/test_resumed_runs.py has runs that are killed."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from afterword.errors import DataError
from afterword.files.write_vectors import Block
from afterword.jobs.items import Item
from afterword.jobs.output_file import Output
from afterword.jobs.parts_folder import PartsFolder, completed, open_parts
from afterword.jobs.store import Totals

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
        pytest.raises(DataError, match=r"another process .* is writing .*a\.npy: wait for it"),
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


def test_a_file_of_the_same_name_is_not_the_one_of_a_completed_run(tmp_path: Path):
    one = output(tmp_path)
    with open_parts(one, print) as parts:
        filled(parts, WINDOWS)
        parts.finish(2)
        (one.parts / "complete.json").rename(tmp_path / "kept.json")
    one.parts.mkdir()
    (tmp_path / "kept.json").rename(one.parts / "complete.json")
    assert completed(one) == Totals(3, 0)
    assert completed(output(tmp_path, prompt="another")) is None
    (tmp_path / "a.npy").write_bytes((tmp_path / "a.npy").read_bytes())
    assert completed(one) is None
