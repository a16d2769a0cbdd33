"""A shard is written whole or not at all, and the first whole file wins."""

import errno
import os
from pathlib import Path

import pytest

from afterword.errors import JobError
from afterword.jobs.shard import publish, published, read_marker


def test_a_name_is_taken_once(tmp_path: Path) -> None:
    publish(tmp_path / "a", tmp_path, b"first")
    publish(tmp_path / "a", tmp_path, b"second")
    assert (tmp_path / "a").read_bytes() == b"first" and os.listdir(tmp_path) == ["a"]


def test_nothing_is_left_of_a_file_that_was_not_ended(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), published(tmp_path / "a", tmp_path) as file:
        _ = file.write(b"half") / 0
    assert os.listdir(tmp_path) == []


def test_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    publish(tmp_path / "a", tmp_path, b"first")
    publish(tmp_path / "a", tmp_path, b"second")
    assert (tmp_path / "a").read_bytes() == b"first" and os.listdir(tmp_path) == ["a"]


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(JobError, match="a cannot be written: No space left on device; finished shards are kept"):
        publish(tmp_path / "a", tmp_path, b"first")
    assert os.listdir(tmp_path) == []


def test_a_marker_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "000000.json"
    assert read_marker(path) is None
    for said in ('{"rows": 1, "rejected": 0, "part": "a"}', '{"rows": 1, "rej', "[]", '{"rows": "1"}'):
        path.write_text(said)
        assert read_marker(path) is None
    path.write_text('{"rows": 1, "rejected": 0, "part": "a", "listing": null}')
    assert read_marker(path) == {"rows": 1, "rejected": 0, "part": "a", "listing": None}
