"""Promise 6: loading runs no code of a folder, reads no pickle and asks the hub for nothing that a folder names."""

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.tiny import tiny

from afterword import Encoder, classical
from afterword.errors import ModelError
from afterword.post import Normalise

TEXTS = ["The bank of the river.", "a b"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny("bert", tmp_path_factory.mktemp("models") / "bert")


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps((json.loads(path.read_text()) if path.exists() else {}) | changes))


def index_of(name: object) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        edit(folder / "model.safetensors.index.json", metadata={}, weight_map=dict.fromkeys(weights, name))
        torch.save(weights, folder / "weights.bin")
        shutil.copy(folder / "model.safetensors", folder.parent / "elsewhere.safetensors")
        (folder / "model.safetensors").rename(folder / "one.safetensors")

    return make


def adapter(weights: str = "adapter_model.safetensors", **config: object) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        edit(folder / "adapter_config.json", peft_type="LORA", base_model_name_or_path="org/base", **config)
        (folder / weights).write_text("")

    return make


def setting(**changes: object) -> Callable[[Path], None]:
    return lambda folder: edit(folder / "config.json", **changes)


KERNELS: dict[str, Callable[[Path], None]] = {
    "attention": setting(_attn_implementation="org/name"),
    "internal": setting(_attn_implementation_internal="org/name"),
    "by part": setting(attn_implementation={"": "org/name"}, text_config={"_attn_implementation": "org/name"}),
    "experts": setting(_experts_implementation="org/name", experts_implementation="org/name"),
}
"""Settings that name code of the hub; they have no effect."""
HOSTILE: dict[str, tuple[Callable[[Path], object], str]] = {
    "an index of a pickle": (index_of("weights.bin"), "weights.bin"),
    "an index outside": (index_of("../elsewhere.safetensors"), "../elsewhere.safetensors"),
    "weights by name": (setting(transformers_weights="adapter_model.bin"), "adapter_model.bin"),
    "code": (setting(auto_map={"AutoConfig": "x.C", "AutoModel": "x.M"}, model_type="own"), "trust_remote_code=True"),
    "code of the hub": (setting(auto_map={"AutoConfig": "org/x--x.C"}, model_type="own"), "trust_remote_code=True"),
    "a pickled adapter": (adapter("adapter_model.bin"), "adapter_model.safetensors"),
    "an adapter of code": (adapter(megatron_config={"x": 1}, megatron_core="os"), "megatron_config"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_folder_that_names_pickles_or_code_is_refused(
    name: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    make, value = HOSTILE[name]
    shutil.copytree(model, tmp_path / "a")
    make(tmp_path / "a")

    def unpickled(*_: object, **__: object) -> None:
        raise AssertionError("a pickle was read")

    monkeypatch.setattr(torch, "load", unpickled)
    with pytest.raises(ModelError, match=value) as caught:
        Encoder.load(tmp_path / "a", classical())
    assert "\n" not in str(caught.value)


ASKS = """
import sys
from pathlib import Path
from afterword import Encoder, classical
from afterword.errors import AfterwordError
for name in sys.argv[1:]:
    try:
        Encoder.load(name, None if Path(name, "modules.json").exists() else classical())
        print("loaded")
    except AfterwordError as e:
        print("refused", e)
"""


@pytest.mark.slow
def test_no_folder_makes_us_ask_the_hub(model: Path, tmp_path: Path):
    """A local server counts the connections to the hub: there are none."""
    changes = {**{name: make for name, (make, _) in HOSTILE.items()}, **KERNELS, "plain": lambda _: None}
    for name, make in changes.items():
        shutil.copytree(model, tmp_path / name)
        make(tmp_path / name)
    encoder = Encoder(Encoder.load(model, classical()).backbone, classical(), (Normalise(),))
    encoder.save(tmp_path / "saved")
    (tmp_path / "linked").symlink_to(tmp_path / "saved")
    assert np.array_equal(Encoder.load(tmp_path / "linked").encode(TEXTS), encoder.encode(TEXTS))
    callers: list[str] = []
    server = socket.create_server(("127.0.0.1", 0))

    def count() -> None:
        while True:
            try:
                caller, _ = server.accept()
            except OSError:
                return
            callers.append(caller.recv(200).decode(errors="replace").split("\r")[0])
            caller.close()

    threading.Thread(target=count, daemon=True).start()
    environment = {k: v for k, v in os.environ.items() if k not in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")}
    environment |= {"HF_ENDPOINT": f"http://127.0.0.1:{server.getsockname()[1]}", "HF_HOME": str(tmp_path / "home")}
    folders = [str(tmp_path / name) for name in (*changes, "saved")]
    command = [sys.executable, "-c", ASKS, *folders]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    server.close()
    assert callers == []
    loaded = len(KERNELS) + 2
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["refused"] * len(HOSTILE) + ["loaded"] * loaded
