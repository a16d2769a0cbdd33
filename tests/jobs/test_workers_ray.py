"""What runs on Ray, here in this process: how attempts are counted."""

from pathlib import Path

import pytest

from afterword.errors import DataError
from afterword.jobs.workers_ray import GONE, Attempts, enter


def test_attempts_are_counted_with_their_reasons():
    attempts = Attempts()
    assert attempts.begin(1) == []
    attempts.died(1, "raised")
    assert list(attempts.begin(1)) == ["raised"]
    assert list(attempts.begin(1)) == ["raised", GONE] and attempts.begin(2) == []
    assert (attempts.start(), attempts.start()) == (1, 2)
    attempts.ready()
    assert attempts.start() == 1


def test_a_folder_that_this_machine_does_not_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    enter(str(tmp_path))
    with pytest.raises(DataError, match=r"gone on .*: No such file or directory: start from a folder that all"):
        enter(str(tmp_path / "gone"))
