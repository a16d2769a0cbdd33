import signal
import subprocess
import sys
from pathlib import Path

import pytest

from afterword.errors import ModelError
from afterword.files.folder_lock import lock_folder


def test_one_at_a_time_and_nothing_is_left(tmp_path: Path):
    folder = tmp_path / "a" / "held"
    for _ in range(2):
        with lock_folder(folder, "writing"), pytest.raises(ModelError, match=str(folder.parent)):  # noqa: SIM117
            with lock_folder(folder, "writing"):
                pass
        assert not folder.exists()


def test_files_in_it_stay_with_the_lock(tmp_path: Path):
    with lock_folder(tmp_path / "a", "writing"):
        (tmp_path / "a" / "file").write_text("")
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == ["file", "lock"]
    with lock_folder(tmp_path / "a", "writing"):
        (tmp_path / "a" / "file").unlink()
    assert not list(tmp_path.iterdir())


def test_a_folder_of_the_users_is_refused(tmp_path: Path):
    (tmp_path / "mine").write_text("")
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for folder in (tmp_path, tmp_path / "link"):
        with pytest.raises(ModelError, match=str(folder)), lock_folder(folder, "writing"):
            pass
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "mine", "real"]


KILLED = """
import os, signal, sys
from pathlib import Path
from afterword.files.folder_lock import lock_folder
with lock_folder(Path(sys.argv[1]), "writing"):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path):
    ended = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "a")], check=False)
    assert ended.returncode == -signal.SIGKILL
    with lock_folder(tmp_path / "a", "writing"):
        pass
    assert not (tmp_path / "a").exists()
