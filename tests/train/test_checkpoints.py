import json
from pathlib import Path
from typing import Any

import pytest

from afterword.errors import InputError, ModelError
from afterword.train.checkpoints import Place, compare, stopped

TOLD = {"settings": {"rank": 4, "method": {"name": "bellm", "sight": {"last": 1}}}, "data": "abc"}


def checkpoint(place: Place, step: int, done: bool = False) -> Path:
    """As the trainer leaves one."""
    folder = place.checkpoints / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    state = {"stateful_callbacks": {"TrainerControl": {"args": {"should_training_stop": done}}}}
    (folder / "trainer_state.json").write_text(json.dumps(state))
    return folder


def test_the_last_complete_one_is_taken_and_the_others_go(tmp_path: Path):
    place = Place(tmp_path)
    assert place.last() is None
    for step in (8, 9, 10, 11):
        checkpoint(place, step)
    (place.checkpoints / "checkpoint-11" / "trainer_state.json").unlink()
    state = place.checkpoints / "checkpoint-10" / "trainer_state.json"
    state.write_text(state.read_text()[:20])
    assert place.last() == place.checkpoints / "checkpoint-9"
    place.write({"fixed": TOLD})
    assert place.begin(TOLD, resume=True) == place.checkpoints / "checkpoint-9"
    assert sorted(p.name for p in place.checkpoints.iterdir()) == ["checkpoint-8", "checkpoint-9"]


def test_a_run_starts_goes_on_or_is_refused(tmp_path: Path):
    place = Place(tmp_path / "a")
    assert place.begin(TOLD, resume=False) is None and place.begin(TOLD, resume=True) is None
    place.folder.mkdir()
    place.write({"fixed": TOLD})
    assert place.begin(TOLD, resume=True) is None and not place.finished
    last = checkpoint(place, 3)
    assert place.begin(TOLD, resume=True) == last and not stopped(last)
    with pytest.raises(InputError, match="holds an unfinished run: resume it, or choose another folder"):
        place.begin(TOLD, resume=False)
    with pytest.raises(InputError, match="of a different configuration: rank was 4, is 8"):
        place.begin({**TOLD, "settings": {**TOLD["settings"], "rank": 8}}, resume=True)
    assert last.exists()
    place.write({"fixed": TOLD, "finished": {"steps": 3}})
    place.clear()
    (place.folder / "config.json").write_text("{}")  # as a model has
    assert place.finished and place.begin(TOLD, resume=True) is None
    with pytest.raises(InputError, match="holds a model: choose another folder, or remove it"):
        place.begin(TOLD, resume=False)
    (place.folder / "training.json").unlink()
    with pytest.raises(InputError, match="holds a model"):
        place.begin(TOLD, resume=True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"data": "xyz"}, 'data was "abc", is "xyz"'),
        ({"settings": {**TOLD["settings"], "method": {"name": "echo"}}}, "method was 'bellm', is 'echo'"),
        ({"settings": {**TOLD["settings"], "new": 1}}, "new was null, is 1"),
    ],
)
def test_the_first_difference_is_named(change: dict[str, Any], said: str, tmp_path: Path):
    compare(tmp_path, TOLD, TOLD)
    with pytest.raises(InputError, match=said):
        compare(tmp_path, TOLD, {**TOLD, **change})


def test_a_run_that_had_ended_says_so(tmp_path: Path):
    assert stopped(checkpoint(Place(tmp_path), 4, done=True)) and not stopped(checkpoint(Place(tmp_path), 5))


def test_a_record_that_cannot_be_read(tmp_path: Path):
    for text, said in (("{", "cannot be read"), ("{}", "is not the record"), ("[1]", "is not the record")):
        (tmp_path / "training.json").write_text(text)
        with pytest.raises(ModelError, match=rf"training\.json {said}"):
            Place(tmp_path).record()


@pytest.mark.parametrize("name", ["loss.jsonl", "checkpoints/checkpoint-500/optimizer.pt", "vocab.txt", "notes.md"])
@pytest.mark.parametrize("resume", [True, False])
def test_a_folder_with_other_files_is_refused(name: str, resume: bool, tmp_path: Path):
    place = Place(tmp_path / "a")
    (place.folder / name).parent.mkdir(parents=True)
    (place.folder / name).write_text("mine")
    with pytest.raises(InputError, match=name.split("/", maxsplit=1)[0]):
        place.begin(TOLD, resume)
    assert (place.folder / name).read_text() == "mine"


def test_one_run_at_a_time(tmp_path: Path):
    place = Place(tmp_path / "a")
    with place.held(), pytest.raises(ModelError, match=r"training into .*a"):  # noqa: SIM117
        with place.held():
            pass
    assert not list((tmp_path / "a").iterdir())
