import json
from pathlib import Path
from typing import Any

import pytest
import torch

from afterword.errors import InputError, ModelError
from afterword.train.checkpoints import Place, compare, is_whole, listed, rotate, seal, stopped

TOLD = {"settings": {"rank": 4, "method": {"name": "bellm", "sight": {"last": 1}}}, "data": "abc"}


def checkpoint(place: Place, step: int, done: bool = False) -> Path:
    """As the trainer leaves one."""
    folder = place.checkpoints / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    torch.save({"cpu": torch.get_rng_state()}, folder / "rng_state.pth")
    state = {"stateful_callbacks": {"TrainerControl": {"args": {"should_training_stop": done}}}}
    (folder / "trainer_state.json").write_text(json.dumps(state))
    seal(folder)
    return folder


def test_the_last_whole_one_is_taken_and_halves_go(tmp_path: Path):
    place = Place(tmp_path)
    assert place.last() is None
    for step in (8, 9, 10, 11, 12, 13):
        checkpoint(place, step)
    (place.checkpoints / "checkpoint-old").mkdir()
    (place.checkpoints / "checkpoint-13" / "whole.json").unlink()
    state = place.checkpoints / "checkpoint-12" / "trainer_state.json"
    state.write_text(state.read_text()[:20])
    (place.checkpoints / "checkpoint-11" / "trainer_state.json").unlink()
    random = place.checkpoints / "checkpoint-10" / "rng_state.pth"
    random.write_bytes(random.read_bytes()[:100])
    assert place.last() == place.checkpoints / "checkpoint-9"
    assert len(listed(place.checkpoints)) == 6  # as long as nobody has said that they are a run's, they stay
    place.write({"told": TOLD})
    assert place.begin(TOLD, resume=True) == place.checkpoints / "checkpoint-9"
    assert sorted(p.name for p in place.checkpoints.iterdir()) == ["checkpoint-8", "checkpoint-9", "checkpoint-old"]


@pytest.mark.parametrize("wrong", ["", "{", "[]", '{"gone": 1}', '{"trainer_state.json": 1}'])
def test_a_seal_that_does_not_fit_is_none(wrong: str, tmp_path: Path):
    found = checkpoint(Place(tmp_path), 1)
    assert is_whole(found)
    (found / "whole.json").write_text(wrong)
    assert not is_whole(found)


def test_a_run_starts_goes_on_or_is_refused(tmp_path: Path):
    place = Place(tmp_path / "a")
    assert place.begin(TOLD, resume=False) is None and place.begin(TOLD, resume=True) is None
    place.write({"told": TOLD})
    assert place.begin(TOLD, resume=True) is None and not place.finished
    last = checkpoint(place, 3)
    assert place.begin(TOLD, resume=True) == last and not stopped(last)
    with pytest.raises(InputError, match="holds an unfinished run: resume it, or choose another folder"):
        place.begin(TOLD, resume=False)
    with pytest.raises(InputError, match="of another configuration: rank was 4 and is 8"):
        place.begin({**TOLD, "settings": {**TOLD["settings"], "rank": 8}}, resume=True)
    assert last.exists()
    place.write({"told": TOLD, "finished": {"steps": 3}})
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
        ({"data": "xyz"}, 'data was "abc" and is "xyz"'),
        ({"settings": {**TOLD["settings"], "method": {"name": "echo"}}}, "method was 'bellm' and is 'echo'"),
        ({"settings": {**TOLD["settings"], "new": 1}}, "new was null and is 1"),
    ],
)
def test_the_first_difference_is_named(change: dict[str, Any], said: str, tmp_path: Path):
    compare(tmp_path, TOLD, TOLD)
    with pytest.raises(InputError, match=said):
        compare(tmp_path, TOLD, {**TOLD, **change})


def test_a_run_that_had_ended_says_so(tmp_path: Path):
    assert stopped(checkpoint(Place(tmp_path), 4, done=True)) and not stopped(checkpoint(Place(tmp_path), 5))


def test_a_record_that_cannot_be_read_or_written(tmp_path: Path):
    for text, said in (("{", "cannot be read"), ("{}", "is no record of a run"), ("[1]", "is no record of a run")):
        (tmp_path / "training.json").write_text(text)
        with pytest.raises(ModelError, match=rf"training\.json {said}"):
            Place(tmp_path).record()
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match="file cannot be written"):
        Place(tmp_path / "file").write({})


@pytest.mark.parametrize("name", ["loss.jsonl", "checkpoints/checkpoint-500/optimizer.pt", "vocab.txt", "notes.md"])
@pytest.mark.parametrize("resume", [True, False])
def test_a_folder_with_other_files_is_refused(name: str, resume: bool, tmp_path: Path):
    place = Place(tmp_path / "a")
    (place.folder / name).parent.mkdir(parents=True)
    (place.folder / name).write_text("mine")
    with pytest.raises(InputError, match=name.split("/", maxsplit=1)[0]):
        place.begin(TOLD, resume)
    assert (place.folder / name).read_text() == "mine"


def test_older_checkpoints_go_and_what_somebody_put_there_stays(tmp_path: Path):
    place = Place(tmp_path)
    found = [checkpoint(place, step) for step in range(1, 6)]
    (found[0] / "mine").write_text("mine")
    (found[4] / "whole.json").unlink()  # not sealed yet
    rotate(place.checkpoints, None)
    assert [p.name for p in listed(place.checkpoints) if is_whole(p)] == ["checkpoint-3", "checkpoint-4"]
    assert [p.name for p in found[0].iterdir()] == ["mine"] and found[4].exists()
    checkpoint(place, 6)
    rotate(place.checkpoints, found[2])
    assert [p.name for p in listed(place.checkpoints) if is_whole(p)] == ["checkpoint-3", "checkpoint-6"]
    (place.checkpoints / "notes").write_text("mine")
    (found[0] / "mine").rename(place.checkpoints / "mine")
    place.clear()
    assert sorted(p.name for p in place.checkpoints.iterdir()) == ["mine", "notes"]


def test_one_run_at_a_time(tmp_path: Path):
    place = Place(tmp_path / "a")
    with place.held(), pytest.raises(ModelError, match=r"training into .*a"):  # noqa: SIM117
        with place.held():
            pass
    assert not list(tmp_path.iterdir())
