"""The settings of a run, and its folder."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from afterword import bellm, prompt
from afterword.errors import InputError, ModelError
from afterword.train.settings import Place, Settings


def test_they_come_back_from_json():
    for settings in (
        Settings(),
        Settings(method=bellm(last=2, couple="add"), weights=(0, 20, 1), prompts={"anchor": "a: "}, warmup=7, steps=3),
        Settings(method=prompt("{condition} {text}"), rank=0, targets=("q_proj",), matryoshka=(64, 8)),
    ):
        assert Settings.from_json(settings.to_json()) == settings


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rank": -1}, "rank=-1"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"every": 0}, "every=0"),
        ({"temperature": 0}, "temperature=0"),
        ({"learning_rate": -1e-4}, "learning_rate=-0.0001"),
        ({"steps": 0}, "steps=0"),
        ({"dropout": 1.0}, "dropout=1.0"),
        ({"four_bit": True, "rank": 0}, "four_bit"),
        ({"four_bit": True, "added": 1}, "four_bit"),
        ({"prompt": "a", "prompts": {"anchor": "b"}}, "not both"),
        ({"loss": "mse"}, "loss='mse'.*cached_ranking"),
        ({"precision": "float16"}, "precision='float16'.*bfloat16"),
        ({"warmup": -1}, "warmup=-1"),
        ({"warmup": float("nan")}, "warmup=nan"),
        ({"seed": -1}, "seed=-1"),
        ({"max_length": 0}, "max_length=0"),
    ],
)
def test_an_invalid_setting_is_named(options: dict[str, Any], said: str):
    with pytest.raises(InputError, match=said):
        Settings(**options)


FIXED = {"settings": {"rank": 4, "method": {"name": "bellm", "sight": {"last": 1}}}, "data": "abc"}


def checkpoint(place: Place, step: int) -> Path:
    """A checkpoint as the trainer writes one."""
    folder = place.checkpoints / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    (folder / "trainer_state.json").write_text("{}")
    return folder


def test_a_run_is_resumed_from_its_last_complete_checkpoint(tmp_path: Path):
    place = Place(tmp_path)
    assert place.last() is None
    for step in (8, 9, 10, 11):
        checkpoint(place, step)
    (place.checkpoints / "checkpoint-11" / "trainer_state.json").unlink()
    (place.checkpoints / "checkpoint-10" / "trainer_state.json").write_text("{")
    place.write({"fixed": FIXED})
    assert place.begin(FIXED, resume=True) == place.last() == place.checkpoints / "checkpoint-9"


def test_a_run_starts_resumes_or_is_refused(tmp_path: Path):
    place = Place(tmp_path / "a")
    assert place.begin(FIXED, resume=False) is None and place.begin(FIXED, resume=True) is None
    place.folder.mkdir()
    place.write({"fixed": FIXED})
    assert place.begin(FIXED, resume=True) is None and place.begin(FIXED, resume=False) is None
    last = checkpoint(place, 3)
    assert place.begin(FIXED, resume=True) == last
    with pytest.raises(InputError, match="resume=True"):
        place.begin(FIXED, resume=False)
    place.write({"fixed": FIXED, "finished": {"steps": 3}})
    shutil.rmtree(place.checkpoints)
    assert place.begin(FIXED, resume=True) is None
    with pytest.raises(InputError, match="resume=True"):
        place.begin(FIXED, resume=False)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"data": "xyz"}, "data='abc', not 'xyz'"),
        ({"settings": {**FIXED["settings"], "rank": 8}}, "rank=4, not 8"),
        ({"settings": {**FIXED["settings"], "method": {"name": "echo"}}}, "method='bellm', not 'echo'"),
        ({"settings": {**FIXED["settings"], "new": 1}}, "new=None, not 1"),
    ],
)
def test_the_first_difference_is_named(change: dict[str, Any], named: str, tmp_path: Path):
    place = Place(tmp_path)
    place.write({"fixed": FIXED})
    with pytest.raises(InputError, match=named):
        place.begin({**FIXED, **change}, resume=True)


def test_a_record_that_cannot_be_read(tmp_path: Path):
    for text in ("{", "{}", "[1]"):
        (tmp_path / "training.json").write_text(text)
        with pytest.raises(ModelError, match=r"training\.json"):
            Place(tmp_path).record()


@pytest.mark.parametrize("name", ["loss.jsonl", "checkpoints/checkpoint-500/optimizer.pt", "notes.md"])
@pytest.mark.parametrize("resume", [True, False])
def test_a_folder_with_different_files_is_refused(name: str, resume: bool, tmp_path: Path):
    place = Place(tmp_path / "a")
    (place.folder / name).parent.mkdir(parents=True)
    (place.folder / name).write_text("mine")
    with pytest.raises(InputError, match=name.split("/", maxsplit=1)[0]):
        place.begin(FIXED, resume)
    assert (place.folder / name).read_text() == "mine"


def test_one_run_at_a_time(tmp_path: Path):
    place = Place(tmp_path / "a")
    with place.locked(), pytest.raises(ModelError, match=r"training into .*a"):  # noqa: SIM117
        with place.locked():
            pass
    assert not list((tmp_path / "a").iterdir())
