"""From options to an encoder."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cli.conftest import Run, array

from afterword import Encoder, bellm, classical, reba
from afterword.cli.model import ModelChoice, read_methods
from afterword.jobs.embedder import MethodsEmbedder
from afterword.jobs.vectors_info import VectorsInfo, to_notes
from afterword.methods.serialize import to_json


def test_methods_by_the_names_of_their_vectors():
    assert read_methods(None) == {}
    assert read_methods(["reba"]) == {"vector": reba()}
    assert read_methods(["reba", "bellm:last=2"]) == {"reba": reba(), "bellm:last=2": bellm(last=2)}


def test_how_a_model_is_loaded(gpt2: Path):
    encoder = ModelChoice(str(gpt2), "cpu", "bfloat16", 7).load(reba())
    assert (str(encoder.backbone.dtype), encoder.max_length, encoder.method) == ("torch.bfloat16", 7, reba())


def test_float64_is_written_as_it_is(run: Run, gpt2: Path, tmp_path: Path):
    words = ("embed", "-m", gpt2, "--method", "classical", "--dtype", "float64", "a text")
    wanted = Encoder.load(gpt2, "classical", dtype="float64").encode(["a text"])
    assert run(*words, "-o", tmp_path / "out.npy").code == 0
    made = np.load(tmp_path / "out.npy")
    assert made.dtype == np.float64 and np.array_equal(made, wanted)
    assert np.array_equal([row["vector"] for row in run(*words).rows], wanted)


def test_a_saved_encoder_has_its_own_method(run: Run, gpt2: Path, tmp_path: Path):
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


LIGHT = """
0 --version
0 --help
0 embed --help
0 methods
0 methods reba --json
0 compare --list
0 evaluate --list
2 embed -m minilm --method ecco a
2 embed -m minilm --method reba:pool=men a
2 embed -m minilm --method ditto:head=x a
2 embed -m minilm --method prompt:template=foo a
2 embed -m minilm --method prompt:template=csts a
2 embed -m minilm --method reba --condition a b
2 embed -m minilm --device gpu a
2 embed -m minilm -i nope.csv
2 embed -m minilm -i rows.csv --field nope
2 embed -m minilm -o out.foo a
2 embed -m minilm -o nope/out.npy a
2 embed -m ./nope -o out.npy a
2 embed -m rows.csv -o out.npy a
2 embed -m afterword-mni -o out.npy a
2 similar -m minilm --method ecco a b
2 similar -m minilm --method reba a --against classical.parquet
2 words -m minilm --span 1 a b
2 inspect -m minilm --method ecco
2 compare nope
2 train -m minilm --data nope.jsonl --out out
2 train -m minilm --data rows.csv --out out
2 train -m ./nope --data pairs.jsonl --out out
2 tune -m minilm --dev nope.jsonl --out out
2 tune -m minilm --dev pairs.jsonl --method ecco --out out
2 tune -m minilm --dev pairs.jsonl --copies x --out out
2 evaluate -m minilm --tasks stss --data .
2 evaluate -m minilm --tasks sts --data nope
2 evaluate -m minilm --tasks sts --data . --method ecco
2 analyse turning-point -m minilm --dev nope.jsonl
2 analyse dependency -m minilm -i rows.csv --field a --method ecco
2 analyse words -m minilm --frequencies nope -i rows.csv --field a
2 analyse impact -m minilm -i nope.csv
"""
"""Exit codes and command lines."""

CHILD = """
import shlex, sys
from afterword.cli import main
for line in sys.stdin.read().split("\\n"):
    code = main(shlex.split(line))
    heavy = [name for name in ("torch", "transformers", "sentence_transformers", "mteb") if name in sys.modules]
    print("##", code, line, *heavy, flush=True)
"""


def test_what_is_wrong_is_told_before_torch_is_imported(tmp_path: Path):
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    (tmp_path / "pairs.jsonl").write_text('{"sentence1": "a", "sentence2": "b", "score": 1}\n' * 2)
    info = VectorsInfo("minilm", to_json(classical()), "0" * 32, "1" * 32, 1, False, None, np.zeros((8, 1), np.float32))
    table = pa.table({"text": ["a"], "vector": pa.array([[1.0]], pa.list_(pa.float32(), 1))})
    pq.write_table(table.replace_schema_metadata(to_notes({"vector": info})), tmp_path / "classical.parquet")
    lines = LIGHT.strip().splitlines()
    asked = "\n".join(line.partition(" ")[2] for line in lines)
    done = subprocess.run([sys.executable, "-c", CHILD], input=asked, capture_output=True, text=True, cwd=tmp_path)
    told = [line.removeprefix("## ") for line in done.stdout.splitlines() if line.startswith("## ")]
    assert told == lines, done.stderr


@pytest.mark.parametrize("specs", [["classical"], ["classical", "reba", "prompt"]])
def test_it_tells_how_many_texts_are_done(gpt2: Path, specs: list[str]):
    told: list[float] = []
    embedder = MethodsEmbedder.open(ModelChoice(str(gpt2)), read_methods(specs), {"batch_tokens": 32})
    embedder([f"a text of some words, {i}" for i in range(20)], None, told.append)
    assert len(told) > 3 and sum(told) == pytest.approx(20)
