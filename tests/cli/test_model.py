"""From options to an encoder."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Run, array

from afterword import Encoder, bellm, reba
from afterword.cli.model import MethodsEmbedder, ModelChoice, read_methods


def test_methods_by_the_names_of_their_vectors():
    assert read_methods(None) == {}
    assert read_methods(["reba"]) == {"vector": reba()}
    assert read_methods(["reba", "bellm:last=2"]) == {"reba": reba(), "bellm:last=2": bellm(last=2)}


def test_how_a_model_is_loaded(gpt2: Path):
    encoder = ModelChoice(str(gpt2), "cpu", "bfloat16", 7).load(reba())
    assert (str(encoder.backbone.dtype), encoder.max_length, encoder.method) == ("torch.bfloat16", 7, reba())


def test_float64_is_written_as_it_is(run: Run, gpt2: Path, tmp_path: Path):
    import numpy as np

    words = ("embed", "-m", gpt2, "--method", "classical", "--dtype", "float64", "a text")
    wanted = Encoder.load(gpt2, "classical", dtype="float64").encode(["a text"])
    assert run(*words, "-o", tmp_path / "out.npy").code == 0
    made = np.load(tmp_path / "out.npy")
    assert made.dtype == np.float64 and np.array_equal(made, wanted)
    assert np.array_equal([row["vector"] for row in run(*words).rows], wanted)


def test_a_saved_encoder_has_its_own_method(run: Run, gpt2: Path, tmp_path: Path):
    import numpy as np

    encoder = Encoder.load(gpt2, reba(pool="mean"))
    encoder.prompts = {"query": "query: "}
    encoder.save(tmp_path / "saved")
    ended = run("embed", "-m", tmp_path / "saved", "--prompt-name", "query", "a text")
    assert (ended.code, ended.err) == (0, "")
    assert np.array_equal(array(ended.rows), encoder.encode(["a text"], prompt_name="query"))


def test_why_there_is_no_vector(minilm: Path):
    embedder = MethodsEmbedder.open(ModelChoice(str(minilm)), {}, {})
    assert embedder.why_nan("\x01") == "holds no token that the model knows"
    assert "not finite" in embedder.why_nan("dog")


def test_help_is_light():
    heavy = {"torch", "transformers", "numpy", "rich", "pyarrow"}
    code = f"import sys, afterword.cli; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("specs", [["classical"], ["classical", "reba", "prompt"]])
def test_it_tells_how_many_texts_are_done(gpt2: Path, specs: list[str]):
    told: list[float] = []
    embedder = MethodsEmbedder.open(ModelChoice(str(gpt2)), read_methods(specs), {"batch_tokens": 32})
    embedder([f"a text of some words, {i}" for i in range(20)], None, told.append)
    assert len(told) > 3 and sum(told) == pytest.approx(20)
