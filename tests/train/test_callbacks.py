import json
from pathlib import Path
from types import SimpleNamespace

from tests.train.conftest import DEV, ROWS, SMALL, curve

from afterword.train import train
from afterword.train.callbacks import LossLog


def test_the_curve_goes_on_where_the_checkpoint_was(tmp_path: Path):
    path = tmp_path / "loss.jsonl"
    path.write_text('{"loss": 3, "step": 1}\n{"loss": 2, "step": 2}\n{"loss": 1, "step": 3}\n')
    state = SimpleNamespace(is_world_process_zero=True, log_history=[{"loss": 3, "step": 1}])
    written = LossLog(path)
    written.on_train_begin(None, state, None)
    state.log_history.append({"loss": 2.5, "step": 2})
    written.on_log(None, state, None)
    assert [json.loads(line) for line in path.read_text().splitlines()] == state.log_history
    state.is_world_process_zero = False
    written.on_log(None, state, None)
    written.on_train_begin(None, state, None)
    assert len(path.read_text().splitlines()) == 2


def test_the_bar_shows_the_last_loss_and_score(models: Path, tmp_path: Path, capsys):
    train(models / "llama", ROWS, tmp_path / "a", dev=DEV, every=6, progress=True, **SMALL)
    out, err = capsys.readouterr()
    shown = err.replace("\r", "\n")
    assert not out and "12/12" in shown
    assert f"loss={curve(tmp_path / 'a')[11]:.4f}" in shown or f"loss={curve(tmp_path / 'a')[12]:.4f}" in shown
