"""The trained models that the package ships: small, open by name in either library, better than what they come from."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from afterword import Encoder, bellm
from afterword.backbone.model_source import OWN
from afterword.tasks.rows import Folder
from afterword.tasks.sts import sts

METHODS = {
    "afterword-mini-bellm": bellm(),
    "afterword-mini-distilled": bellm(last=6, template=None),
}
TEXTS = ["A man plays the guitar.", "Somebody makes music on a string instrument.", "Share prices fell.", "雨"]
LOAD = """
import sys
from afterword import Encoder
for name in sys.argv[1:]:
    print(name, len(Encoder.load(name).encode(["one", "two"])))
"""


def test_all_of_them_together_are_small():
    assert sum(path.stat().st_size for path in OWN.rglob("*") if path.is_file()) < 40e6
    assert {path.name for path in OWN.iterdir()} == {"afterword-mini", *METHODS}


def test_they_bring_their_method_and_say_nothing():
    assert {name: Encoder.load(name).method for name in METHODS} == METHODS
    settings = os.environ | {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "warning"}
    done = subprocess.run([sys.executable, "-c", LOAD, *METHODS], capture_output=True, text=True, env=settings)
    assert (done.stdout, done.stderr) == ("".join(f"{name} 2\n" for name in METHODS), "")


@pytest.mark.parametrize("name", METHODS)
def test_their_folders_tell_what_they_are(name: str):
    assert json.loads((OWN / name / "config.json").read_text())["dtype"] == "float16"
    card = (OWN / name / "README.md").read_text()
    assert "license: cc-by-sa-4.0" in card and "recipes/" in card and "evaluation" in card


@pytest.mark.parametrize("name", METHODS)
def test_sentence_transformers_opens_them(name: str):
    library = pytest.importorskip("sentence_transformers", reason="the extra st is not installed")
    theirs = library.SentenceTransformer(str(OWN / name), trust_remote_code=True, device="cpu")
    theirs = theirs.float()  # there a checkpoint keeps its own type
    ours = Encoder.load(name, device="cpu").encode(TEXTS)
    assert np.abs(theirs.encode(TEXTS) - ours).max() <= 1e-6 * np.abs(ours).max()


@pytest.mark.slow
def test_training_paid(data: Path):
    """On pairs that nothing was trained on: far above the same method untrained."""
    task, dev = sts("SICKR", split="dev"), Folder(data)
    scores = {name: 100 * task.run(Encoder.load(name), dev).main for name in METHODS}
    scores["untrained"] = 100 * task.run(Encoder.load("afterword-mini", bellm()), dev).main
    expected = {"afterword-mini-bellm": 64.88, "afterword-mini-distilled": 75.20, "untrained": 58.62}
    assert scores == pytest.approx(expected, abs=0.05)
