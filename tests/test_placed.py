from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from afterword.errors import MethodError, ModelError
from afterword.placed import placed


def names(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def fail(place: Path, error: BaseException) -> None:
    """Write half of something."""
    with placed(place) as half:
        (half / "config.json").write_text("new")
        raise error


def test_it_appears_whole_in_the_end(tmp_path: Path):
    place = tmp_path / "a" / "b"
    with placed(place) as half:
        (half / "config.json").write_text("new")
        assert not place.exists()
    assert names(tmp_path) == ["a/b/config.json"]


def test_others_may_read_what_is_shared(tmp_path: Path):
    """safetensors keeps what it writes to its owner."""
    with placed(tmp_path / "a") as half:
        save_file({"x": torch.ones(1)}, half / "model.safetensors")
    (tmp_path / "usual").touch()
    assert (tmp_path / "a" / "model.safetensors").stat().st_mode == (tmp_path / "usual").stat().st_mode
    assert names(tmp_path / "a") == ["model.safetensors"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), RuntimeError("first\nsecond"), ValueError()])
def test_a_failure_leaves_what_was_there(error: Exception, tmp_path: Path):
    place = tmp_path / "a"
    place.mkdir()
    (place / "config.json").write_text("old")
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


def test_a_model_is_replaced_and_everything_else_stays(tmp_path: Path):
    place = tmp_path / "a"
    for name in (
        "model.safetensors",
        "1_Pooling/config.json",
        "adapter_config.json",
        "vocab.txt",
        "notes.txt",
        ".git/x",
    ):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("old")
    with placed(place) as half:
        (half / "config.json").write_text("new")
    assert names(tmp_path) == ["a/.git/x", "a/config.json", "a/notes.txt"]


def test_a_link_is_followed(tmp_path: Path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with placed(tmp_path / "link") as half:
        (half / "config.json").write_text("new")
    assert (tmp_path / "link").is_symlink() and names(tmp_path / "real") == ["config.json"]
