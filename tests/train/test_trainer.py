import itertools
import json
import os
import resource
import signal
import socket
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from accelerate.state import AcceleratorState
from safetensors.torch import load_file
from tests.killed import forked
from tests.train.conftest import BINARY, DEV, REPEATED, ROWS, SMALL, TEXTS, curve

from afterword import Encoder, classical
from afterword.errors import InputError, ModelError
from afterword.files.fingerprint import weights_digest
from afterword.train import train
from afterword.train.settings import Place
from afterword.train.trainer import Trainer


@contextmanager
def interrupted(at: int) -> Iterator[None]:
    """Ctrl-C in a step."""
    calls, step = itertools.count(1), Trainer.training_step

    def stop(self: Trainer, *args: Any, **kwargs: Any) -> Any:
        if next(calls) == at:
            raise KeyboardInterrupt
        return step(self, *args, **kwargs)

    Trainer.training_step = stop
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        Trainer.training_step = step


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"distinct": False, "accumulate": 2, "epochs": 3}, marks=pytest.mark.soak),
        pytest.param({"rank": 0, "checkpointing": True}, marks=pytest.mark.soak),
        {"loss": "cached_ranking", "mini_batch": 4, "steps": 11},
        pytest.param({"dev": DEV, "patience": 2, "epochs": 4}, marks=pytest.mark.soak),
    ],
    ids=["lora", "accumulate", "full rank", "cached", "early stopping"],
)
def test_a_resumed_run_is_the_uninterrupted_run(options: dict[str, Any], models: Path, tmp_path: Path):
    settings = {**SMALL, "every": 2, **options}
    whole = train(models / "llama", ROWS, tmp_path / "a", **settings)
    for steps in (4, 5):
        with interrupted(steps):
            train(models / "llama", ROWS, tmp_path / "b", resume=True, **settings)
        assert not (tmp_path / "b" / "modules.json").exists()
    for checkpoint in (tmp_path / "b" / "checkpoints").glob("checkpoint-*") if settings["rank"] else ():
        assert all("lora_" in name for name in load_file(checkpoint / "trained.safetensors"))
    again = train(models / "llama", ROWS, tmp_path / "b", resume=True, **settings)
    assert curve(tmp_path / "a") == curve(tmp_path / "b")
    assert weights_digest(whole.backbone.model) == weights_digest(again.backbone.model)
    assert not np.array_equal(again.encode(TEXTS), Encoder.load(models / "llama", settings["method"]).encode(TEXTS))


@pytest.mark.slow
def test_a_run_that_is_interrupted_while_it_saves(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    settings = {**SMALL, "every": 5, "dev": DEV, "patience": 1, "epochs": 3}
    whole = train(models / "llama", ROWS, tmp_path / "a", **settings)

    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Encoder, "save", stop)
        with pytest.raises(KeyboardInterrupt):
            train(models / "llama", ROWS, tmp_path / "b", **settings)
    again = train(models / "llama", ROWS, tmp_path / "b", resume=True, **settings)
    assert weights_digest(whole.backbone.model) == weights_digest(again.backbone.model)
    records = [json.loads((tmp_path / x / "training.json").read_text())["finished"] for x in "ab"]
    assert records[0] == records[1]
    finished = train(models / "llama", ROWS, tmp_path / "b", resume=True, **settings)
    assert np.array_equal(finished.encode(TEXTS), again.encode(TEXTS))


def test_a_value_that_is_not_finite_ends_the_run_and_keeps_the_last_good_checkpoint(models: Path, tmp_path: Path):
    settings = {**SMALL, "rank": 0, "learning_rate": 1e30, "every": 1, "clip": 0}
    with pytest.raises(ModelError, match=r"step \d: the (loss|gradient) is (nan|inf).*checkpoint-\d"):
        train(models / "gpt2", ROWS, tmp_path / "a", **settings)
    last = sorted((tmp_path / "a" / "checkpoints").glob("checkpoint-*"))[-1]
    assert all(weight.isfinite().all() for weight in load_file(last / "trained.safetensors").values())
    encoder = Encoder.load(models / "llama", classical())
    weight = encoder.backbone.model.get_submodule("layers.0.mlp.up_proj").weight
    handle = weight.register_hook(lambda gradient: gradient * torch.inf)
    with pytest.raises(ModelError, match=r"step 1: the gradient is (nan|inf)"):
        train(encoder, ROWS, tmp_path / "b", **{**SMALL, "rank": 0})
    handle.remove()
    assert np.isfinite(encoder.encode(TEXTS)).all()


@pytest.mark.parametrize("options", [{}, {"dev": DEV}, {"every": 9, "steps": 1}], ids=str)
def test_infinite_weights_are_not_saved(options: dict[str, Any], models: Path, tmp_path: Path):
    """Loss and gradient of the step are finite, and its update overflows."""
    settings = {**SMALL, "rank": 0, "learning_rate": 1e39, "every": 1, **options}
    with pytest.raises(ModelError, match=r"step 1: .* is not finite"):
        train(models / "gpt2", ROWS, tmp_path / "a", **settings)
    assert not list((tmp_path / "a" / "checkpoints").glob("*"))
    assert not (tmp_path / "a" / "modules.json").exists()


def test_a_full_disk_keeps_the_last_good_checkpoint(models: Path, tmp_path: Path):
    """A limit on the size of files stands for the disk: at step 4 a checkpoint no longer fits."""
    step, calls = Trainer.training_step, itertools.count(1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(self: Trainer, *args: Any, **kwargs: Any) -> Any:
        if next(calls) == 4:
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
        return step(self, *args, **kwargs)

    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    Trainer.training_step = fill
    try:
        with pytest.raises(ModelError, match=r"checkpoint-4.*checkpoint-2") as found:
            train(models / "llama", ROWS, tmp_path / "a", every=2, **SMALL)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
        Trainer.training_step = step
    assert "\n" not in str(found.value)
    assert [p.name for p in (tmp_path / "a" / "checkpoints").glob("checkpoint-*")] == ["checkpoint-2"]
    whole = train(models / "llama", ROWS, tmp_path / "b", every=2, **SMALL)
    again = train(models / "llama", ROWS, tmp_path / "a", every=2, resume=True, **SMALL)
    assert weights_digest(whole.backbone.model) == weights_digest(again.backbone.model)


KILLED = [
    "--method", "bellm:last=2,template=none", "--batch-size", 6, "--rank", 4, "--learning-rate", 3e-3, "--every", 3,
]  # fmt: skip


def same_weights(a: Path, b: Path, start: Path) -> bool:
    """Whether two runs came to the same finite weights, bit for bit, and to others than they began with."""
    found = [load_file(folder / "model.safetensors") for folder in (a, b, start)]
    moved = any(not torch.equal(found[2][n], w) for n, w in found[1].items())
    return moved and all(torch.equal(found[0][n], w) and bool(w.isfinite().all()) for n, w in found[1].items())


@pytest.mark.slow
def test_killed_before_a_file_changes_it_comes_to_the_same_weights(chance: Random, models: Path, tmp_path: Path):
    rows, (a, b) = tmp_path / "rows.jsonl", (tmp_path / "a", tmp_path / "b")
    rows.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    words = ["train", "-m", models / "llama", "--data", rows, *KILLED, "--epochs", 2]
    code, calls = forked([*words, "--out", a], tmp_path / "log")
    of_checkpoints = [i for i, call in enumerate(calls) if "checkpoint-" in call]
    assert code == 0 and len(of_checkpoints) > 6  # four are made, two of them go
    code, _ = forked([*words, "--out", b], tmp_path / "log", chance.choice(of_checkpoints[:7]))
    assert code == -signal.SIGKILL and not (b / "modules.json").exists()
    code, _ = forked([*words, "--out", b, "--resume"], tmp_path / "log")
    assert code == 0 and same_weights(a, b, models / "llama")


def as_two_processes(make: Callable[[], object]) -> list[int]:
    """Do it in two processes, each with what torchrun gives to one of two; their exit codes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = []
    for rank in "01":
        child = os.fork()
        if not child:
            code = 99
            try:
                signal.alarm(200)  # one would wait for the other, if that has failed
                AcceleratorState._reset_state(reset_partial_state=True)  # of an earlier training, in this process
                os.environ.update(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE="2", LOCAL_WORLD_SIZE="2")
                os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
                make()
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def test_the_second_process_does_not_mind_what_the_first_has_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "loss.jsonl").touch()
    with pytest.raises(InputError, match=r"loss\.jsonl"):
        Place(tmp_path).begin({}, resume=False)
    monkeypatch.setenv("RANK", "1")
    assert Place(tmp_path).begin({}, resume=False) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "losses",
    [["ranking"], pytest.param(["cached_ranking", "released"], marks=pytest.mark.soak)],
    ids=" ".join,
)
def test_two_processes_are_one_with_a_batch_of_both(losses: list[str], models: Path, tmp_path: Path):
    """Negatives are gathered: each process alone would see half of them. No text is in the batch of both."""
    settings = {**SMALL, "epochs": 1, "dropout": 0.0, "dev": DEV, "every": 2, "weights": (0, 1, 0)}
    for loss in losses:
        rows = BINARY if loss == "released" else REPEATED
        two = partial(train, models / "llama", rows, tmp_path / f"two {loss}", **{**settings, "loss": loss})
        assert as_two_processes(two) == [0, 0]
    for loss in losses:
        rows = BINARY if loss == "released" else REPEATED
        for name, more in (("one", {"batch_size": 12}), ("half", {"steps": 1})):
            train(models / "llama", rows, tmp_path / f"{name} {loss}", **{**settings, **more, "loss": loss})
        found = {name: curve(tmp_path / f"{name} {loss}") for name in ("one", "two", "half")}
        assert abs(found["two"][1] - found["one"][1]) <= 1e-5 < abs(found["half"][1] - found["one"][1])
        assert found["two"].keys() == found["one"].keys() and all(
            abs(found["two"][s] - x) <= 1e-3 for s, x in found["one"].items()
        )
        assert Encoder.load(tmp_path / f"two {loss}").encode(TEXTS).shape == (4, 64)
        assert json.loads((tmp_path / f"two {loss}" / "training.json").read_text())["fixed"]["processes"] == 2
