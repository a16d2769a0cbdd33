import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from afterword.errors import InputError, ModelError
from afterword.train.checkpoints import Place, compare, is_whole, stopped

TOLD = {"settings": {"rank": 4, "method": {"name": "bellm", "sight": {"last": 1}}}, "data": "abc"}


def checkpoint(place: Place, step: int, done: bool = False) -> Path:
    """As the trainer leaves one."""
    folder = place.checkpoints / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    torch.save({"cpu": torch.get_rng_state()}, folder / "rng_state.pth")
    state = {"stateful_callbacks": {"TrainerControl": {"args": {"should_training_stop": done}}}}
    (folder / "trainer_state.json").write_text(json.dumps(state))
    return folder


def test_the_last_whole_one_is_taken_and_halves_go(tmp_path: Path):
    place = Place(tmp_path)
    assert place.last() is None
    for step in (8, 9, 10, 11, 12):
        checkpoint(place, step)
    state = place.checkpoints / "checkpoint-12" / "trainer_state.json"
    state.write_text(state.read_text()[:20])
    (place.checkpoints / "checkpoint-11" / "trainer_state.json").unlink()
    random = place.checkpoints / "checkpoint-10" / "rng_state.pth"
    random.write_bytes(random.read_bytes()[:100])
    assert place.last() == place.checkpoints / "checkpoint-9"
    assert sorted(p.name for p in place.checkpoints.iterdir()) == ["checkpoint-8", "checkpoint-9"]


def test_every_process_must_have_written_its_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    found = checkpoint(Place(tmp_path), 1)
    assert is_whole(found)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert not is_whole(found)
    for i in range(2):
        shutil.copy(found / "rng_state.pth", found / f"rng_state_{i}.pth")
    assert is_whole(found)


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
    assert place.finished and place.begin(TOLD, resume=False) is None
    assert stopped(checkpoint(place, 4, done=True))


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


def test_a_record_that_cannot_be_read_or_written(tmp_path: Path):
    (tmp_path / "training.json").write_text("{")
    with pytest.raises(ModelError, match=r"training\.json cannot be read"):
        Place(tmp_path).record()
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match="file cannot be written"):
        Place(tmp_path / "file").write({})
