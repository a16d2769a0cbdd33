"""A model's folder makes us read nothing outside it, no pickle, nothing of the hub; what it asks for is refused."""

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
from afterword.backbone.file_safety import check_file, check_links
from afterword.errors import AfterwordError
from afterword.post import Normalise

TEXTS = ["The bank of the river.", "a b"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny("bert", tmp_path_factory.mktemp("models") / "bert")


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A model that may be broken, in a folder beside which other things lie."""
    shutil.copytree(whole, tmp_path / "a")
    return tmp_path / "a"


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps((json.loads(path.read_text()) if path.exists() else {}) | changes))


def refused(folder: Path) -> str:
    with pytest.raises(AfterwordError) as caught:
        Encoder.load(folder, classical())
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600
    return str(caught.value)


def index_of(name: object) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        names = dict.fromkeys(load_file(folder / "model.safetensors"), name)
        edit(folder / "model.safetensors.index.json", metadata={}, weight_map=names)
        torch.save(load_file(folder / "model.safetensors"), folder / "weights.bin")
        shutil.copy(folder / "model.safetensors", folder.parent / "else.safetensors")
        (folder / "model.safetensors").rename(folder / "one.safetensors")

    return make


def adapter(weights: str = "adapter_model.safetensors", **config: object) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        edit(folder / "adapter_config.json", peft_type="LORA", base_model_name_or_path="org/base", **config)
        (folder / weights).write_text("")

    return make


def alone(folder: Path) -> None:
    adapter()(folder)
    (folder / "config.json").unlink()


def link(name: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (folder / name).rename(folder.parent / "else.json")
        (folder / name).symlink_to(folder.parent / "else.json")

    return make


def setting(**changes: object) -> Callable[[Path], None]:
    return lambda folder: edit(folder / "config.json", **changes)


def tokenizer(**changes: object) -> Callable[[Path], None]:
    return lambda folder: edit(folder / "tokenizer_config.json", **changes)


def linked_templates(folder: Path) -> None:
    (folder.parent / "else").mkdir()
    (folder.parent / "else" / "a.jinja").write_text("secret")
    (folder / "additional_chat_templates").symlink_to(folder.parent / "else")


def deep(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text("[" * 200_000)


KERNELS: dict[str, Callable[[Path], None]] = {
    "kernel": setting(_attn_implementation="org/name"),
    "kernel 2": setting(attn_implementation="org/name"),
    "kernel 3": setting(_attn_implementation_internal="org/name"),
    "kernel 4": setting(attn_implementation={"": "org/name"}),
    "kernel 5": setting(text_config={"_attn_implementation": "org/name"}),
    "experts": setting(_experts_implementation="org/name", experts_implementation="org/name"),
}
"""Settings that name code of the hub; no folder decides which code runs, so they are without effect."""
HOSTILE: dict[str, tuple[Callable[[Path], object], str]] = {
    "an index of a pickle": (index_of("weights.bin"), "reads weights from 'weights.bin': it may name"),
    "an index outside": (index_of("../else.safetensors"), "reads weights from '../else.safetensors'"),
    "an absolute index": (index_of("/tmp/else.safetensors"), "reads weights from '/tmp/else.safetensors'"),
    "an index of numbers": (index_of(3), "reads weights from None"),
    "weights by name": (
        setting(transformers_weights="adapter_model.bin"),
        "reads its weights from 'adapter_model.bin'",
    ),
    "weights outside": (setting(transformers_weights="../else.safetensors"), "from '../else.safetensors'"),
    "code": (setting(auto_map={"AutoConfig": "x.C", "AutoModel": "x.M"}, model_type="own"), "runs code of its own"),
    "code of the hub": (setting(auto_map={"AutoConfig": "org/x--x.C"}, model_type="own"), "runs code of its own"),
    "a pickled adapter": (adapter("adapter_model.bin"), "holds no adapter_model.safetensors"),
    "an adapter of code": (adapter(megatron_config={"x": 1}, megatron_core="os"), "sets megatron_config"),
    "an adapter alone": (alone, "holds an adapter without its model: load 'org/base'"),
    "a link": (link("tokenizer.json"), "tokenizer.json leads out of the folder, to"),
    "a linked configuration": (link("config.json"), "config.json leads out of the folder, to"),
    "linked templates": (linked_templates, "a.jinja leads out of the folder, to"),
    "a tokenizer outside": (
        tokenizer(fast_tokenizer_files=["../x/tokenizer.1.json"]),
        "reads a tokenizer from '../x/t",
    ),
    "no quantisation": (setting(quantization_config=5), "its quantization_config names no quant_method: 5"),
    "an unknown quantisation": (
        setting(quantization_config={"quant_method": "gptq"}),
        "are quantised by 'gptq', cannot",
    ),
    "a deep configuration": (deep("config.json"), "config.json is nested too deeply"),
    "a deep index": (deep("model.safetensors.index.json"), "index.json is nested too deeply"),
    "deep modules": (deep("modules.json"), "modules.json is nested too deeply"),
    "a deep tokenizer": (deep("tokenizer_config.json"), "tokenizer_config.json is nested too deeply"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_leads_out_of_a_folder_is_refused_by_name(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch):
    make, said = HOSTILE[name]
    make(folder)

    def unpickled(*_: object, **__: object) -> None:
        raise AssertionError("a pickle was read")

    monkeypatch.setattr(torch, "load", unpickled)
    assert said in refused(folder)


def test_what_stays_in_a_folder_loads(folder: Path, tmp_path: Path):
    expected = Encoder.load(folder, classical()).encode(TEXTS)
    (folder / "model.safetensors").rename(tmp_path / "shared.safetensors")
    (folder / "model.safetensors").symlink_to(tmp_path / "shared.safetensors")
    (folder / "tokenizer.json").rename(folder / "real.json")
    (folder / "tokenizer.json").symlink_to("real.json")
    (tmp_path / "link").symlink_to(folder)
    (folder / "README.md").symlink_to(tmp_path / "shared.safetensors")  # the user's own, which nobody reads
    (folder / "passwords").symlink_to("/etc/passwd")
    loop = "{% for i in range(10 ** 12) %}{{ i }}{% endfor %}"  # nobody asks for it, so it is never run
    edit(folder / "tokenizer_config.json", chat_template=loop, vocab_file="../else.txt", tokenizer_file="/dev/null")
    assert np.array_equal(Encoder.load(tmp_path / "link", classical()).encode(TEXTS), expected)


def test_a_link_in_a_modules_folder_is_refused(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    encoder = Encoder.load(whole, classical("cls"))
    encoder.save("~/a")  # as a shell reads it
    pooling = tmp_path / "a" / "1_Pooling" / "config.json"
    assert np.array_equal(Encoder.load("~/a").encode(TEXTS), encoder.encode(TEXTS))
    pooling.rename(tmp_path / "a" / "real.json")
    pooling.symlink_to("../real.json")
    Encoder.load(tmp_path / "a")
    edit(pooling, pooling_mode=5)
    with pytest.raises(AfterwordError, match="pools by 5: known are"):
        Encoder.load(tmp_path / "a")
    (tmp_path / "a" / "real.json").rename(tmp_path / "else.json")
    pooling.unlink()
    pooling.symlink_to(tmp_path / "else.json")
    with pytest.raises(AfterwordError, match=r"1_Pooling/config\.json leads out of the folder, to"):
        Encoder.load(tmp_path / "a")


def test_the_hubs_cache_links_to_its_own_files(tmp_path: Path):
    snapshot, blobs = tmp_path / "models--a--b" / "snapshots" / "123", tmp_path / "models--a--b" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    (blobs / "abc").write_text("{}")
    (snapshot / "config.json").symlink_to("../../blobs/abc")
    check_links(snapshot)
    (snapshot / "vocab.txt").symlink_to(tmp_path)  # a folder is no file that is read
    check_links(snapshot)
    (tmp_path / "else").write_text("")
    (snapshot / "merges.txt").symlink_to(tmp_path / "else")
    with pytest.raises(AfterwordError, match=r"merges\.txt leads out of the folder"):
        check_links(snapshot)


def test_an_honest_index_passes(tmp_path: Path):
    edit(tmp_path / "model.safetensors.index.json", weight_map={"a": "model-00001-of-00001.safetensors"})
    check_file(tmp_path / "model.safetensors.index.json")


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
def test_no_folder_makes_us_ask_the_hub(whole: Path, tmp_path: Path):
    """A hub of our own counts who comes: nobody, but for the name that is one of the hub's."""
    asking = {**{name: make for name, (make, _) in HOSTILE.items()}, **KERNELS}
    for name, make in asking.items():
        shutil.copytree(whole, tmp_path / name)
        make(tmp_path / name)
    shutil.copytree(whole, tmp_path / "plain")
    Encoder(Encoder.load(whole, classical()).backbone, classical(), (Normalise(),)).save(tmp_path / "saved")
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
    folders = [str(tmp_path / name) for name in (*asking, "plain", "saved")]
    command = [sys.executable, "-c", ASKS]
    done = subprocess.run([*command, *folders], env=environment, capture_output=True, text=True, check=True)
    assert callers == []
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["refused"] * len(HOSTILE) + ["loaded"] * 8
    server.close()
