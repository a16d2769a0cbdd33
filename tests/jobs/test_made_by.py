"""A .parquet file of vectors says what made them, exactly enough to compare and to make more of the same."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from tests.cli.conftest import Run

from afterword import Encoder, parse_method
from afterword.jobs.stored import probes, read_info
from afterword.methods.serialize import from_json


def test_one_method_with_settings(run: Run, gpt2: Path, tmp_path: Path):
    out, spec = tmp_path / "out.parquet", "reba:copies=2,pool=mean"
    words = ("--method", spec, "--normalize", "--truncate-dim", 8, "--prompt", "query: ", "-o", out, "a dog", "a cat")
    assert run("embed", "-m", gpt2, *words).code == 0
    encoder = Encoder.load(gpt2, parse_method(spec))
    (info,) = read_info(out).values()
    assert (info.model, info.fingerprint, info.identity) == (str(gpt2), encoder.fingerprint, encoder.identity)
    assert (info.dimension, info.normalized, info.prompt) == (8, True, "query: ")
    assert np.array_equal(info.probes, probes(encoder))
    again = replace(encoder, method=from_json(info.method))
    vectors = again.encode(
        ["a dog", "a cat"],
        prompt=info.prompt,
        truncate_dim=info.dimension,
        normalize_embeddings=info.normalized,
    )
    assert np.array_equal(np.array(pq.read_table(out).column("vector").to_pylist(), np.float32), vectors)
    assert pq.read_schema(out).metadata[b"afterword.identity"] == encoder.identity.encode()


def test_each_of_several_methods(run: Run, gpt2: Path, tmp_path: Path):
    out, specs = tmp_path / "out.parquet", ["classical", "echo"]
    asked = [word for spec in specs for word in ("--method", spec)]
    assert run("embed", "-m", gpt2, *asked, "-o", out, "a dog").code == 0
    infos = read_info(out)
    assert list(infos) == specs
    for spec, info in infos.items():
        assert info.identity == Encoder.load(gpt2, parse_method(spec)).identity
        assert (info.normalized, info.prompt) == (False, None)


def test_vectors_of_words_are_of_an_encoder_too(run: Run, gpt2: Path, tmp_path: Path):
    out = tmp_path / "out.parquet"
    assert run("words", "-m", gpt2, "--method", "reba", "the bank", "bank", "-o", out).code == 0
    assert read_info(out)["vector"].identity == Encoder.load(gpt2, parse_method("reba")).identity
