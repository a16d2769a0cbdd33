"""``analyse lengths``: counted by the tokenizer, without the model's weights."""

import json
import shutil
from pathlib import Path

from tests.cli.conftest import Run

from afterword import Encoder, classical, prompt


def test_no_weights_are_read(run: Run, oracle: Path, tmp_path: Path):
    (tmp_path / "texts.txt").write_text("the thin line\nin the tin\n")
    for kind in ("bert", "roberta"):
        source, folder = oracle / "models" / kind, tmp_path / kind
        shutil.copytree(source, folder)
        (folder / "model.safetensors").write_bytes(b"no weights")
        words = ("analyse", "lengths", "-m", folder, "-i", tmp_path / "texts.txt")
        ended = run(*words, "--plot", tmp_path / "a.svg")
        assert (ended.code, ended.err) == (0, "") and (tmp_path / "a.svg").exists()
        (found,) = json.loads(run(*words, "--json").out)
        encoder = Encoder.load(source, classical())
        assert found["limit"] == encoder.max_length  # RoBERTa's positions begin at 2
        assert found["tokens"] == [len(encoder.weights(text)[0]) for text in ("the thin line", "in the tin")]
        assert ended.out.splitlines()[1].split()[:2] == [kind, "2"]


def test_a_saved_method_counts(run: Run, bert: Path, tmp_path: Path):
    Encoder.load(bert, prompt("promptbert"), max_length=20).save(tmp_path / "mine")
    (tmp_path / "texts.txt").write_text("the thin line\n")
    words = ("analyse", "lengths", "-m", tmp_path / "mine", "-i", tmp_path / "texts.txt", "--json")
    (found,) = json.loads(run(*words).out)
    (plain,) = json.loads(run(*words, "--method", "classical", "--max-length", 3).out)
    assert found["limit"] == 20 and found["tokens"][0] > plain["tokens"][0] and plain["over"] == 1


def test_tasks_and_what_is_wrong(run: Run, bert: Path, dev: Path, tmp_path: Path):
    found = json.loads(run("analyse", "lengths", "-m", bert, "--tasks", dev, "--json").out)
    assert [(f["name"], f["texts"]) for f in found] == [("dev", 37)]
    (tmp_path / "none.txt").write_text("")
    for words, said in (
        (("-i", tmp_path / "none.txt"), "none.txt"),
        (("-i", dev, "--tasks", dev), "pass a file or --tasks, not both"),
        (("--tasks", "STSB", "--data", tmp_path), "stsb.test"),
        (("--tasks", "STSB"), "--data"),
    ):
        ended = run("analyse", "lengths", "-m", bert, *words)
        assert ended.code == 2 and len(ended.err.splitlines()) == 1 and said in ended.err, ended.err
