"""A file that was written anew has another stamp, whatever its size and time are."""

import os
from pathlib import Path

from afterword.backbone.model_source import OWN
from afterword.files.stamps import model_stamps, stamps


def test_times_that_are_set_back_do_not_hide_a_change(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one")
    before, state = stamps([path]), path.stat()
    path.write_text("two")
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    (now,) = stamps([path])
    assert now != before[0] and now["size"] == 3 and now["mtime_ns"] == before[0]["mtime_ns"]


def test_a_models_files_by_folder_and_by_our_own_name(tmp_path: Path) -> None:
    (tmp_path / "1_Pooling").mkdir()
    for name in ("config.json", "1_Pooling/config.json"):
        (tmp_path / name).write_text("{}")
    assert [s["file"] for s in model_stamps(str(tmp_path))] == [
        str(tmp_path / "1_Pooling" / "config.json"), str(tmp_path / "config.json"),
    ]  # fmt: skip
    assert str(OWN / "afterword-mini" / "config.json") in [s["file"] for s in model_stamps("afterword-mini")]
    assert model_stamps("gpt2-of-the-hub") == []
