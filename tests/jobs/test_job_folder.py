"""A job's folder: what is removed, and when nothing would be lost."""

from pathlib import Path

import pytest

from afterword.errors import DataError
from afterword.jobs.job_folder import clear, is_untouched, locked


def test_a_folder_is_untouched_until_a_shard_is_written(tmp_path: Path) -> None:
    assert is_untouched(tmp_path)
    for name in ("done", "shards", "rejects", "tmp"):
        (tmp_path / name).mkdir()
    (tmp_path / "plan.jsonl").touch()
    (tmp_path / "tmp" / "000000").touch()
    assert is_untouched(tmp_path)
    (tmp_path / "shards" / "000000.parquet").touch()
    assert not is_untouched(tmp_path)


def test_a_file_of_somebody_else_stays(tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    for name in ("shards/000000.parquet", "shards/mine.txt", "job.json", "plan.jsonl", "complete.json", "notes.txt"):
        (tmp_path / name).touch()
    clear(tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["mine.txt", "notes.txt", "shards"]


def test_one_process_holds_a_folder_which_is_ours(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "a.txt").touch()
    with pytest.raises(DataError, match="was not made by Afterword"), locked(tmp_path / "theirs"):
        pass
    with locked(tmp_path / "ours"), pytest.raises(DataError, match="ours"), locked(tmp_path / "ours"):
        pass
