"""Folders that were saved at commit b363d3b open to the vectors they gave then: names on disk are a promise."""

from __future__ import annotations

import json
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from afterword import Encoder
from afterword.files import fingerprint
from afterword.methods.serialize import from_json, to_json
from afterword.post import Whiten
from afterword.tasks import results
from afterword.tasks.pairs import Pairs
from afterword.tasks.rows import Folder
from afterword.tasks.task import Embedder
from afterword.tune.recipes import Grid
from afterword.tune.report import as_json
from afterword.tune.tuning import tune

HERE = Path(__file__).parent / "saved"
ABOUT: dict[str, Any] = json.loads((HERE / "about.json").read_text("utf-8"))
VECTORS = load_file(HERE / "vectors.safetensors")
NAMES = sorted(ABOUT["encoders"])
OURS = [name for name in NAMES if (HERE / name / "afterword.json").exists()]

NEAR = 2e-6
"""Of a vector's length, or of 1 where that is less. On the machine that wrote them, the vectors are equal to the last
bit. But sums in products of matrices have an order that depends on the processor and on the version of torch."""

SINCE = {"products": "float32"}
"""What joined the fingerprint after b363d3b, and what it says of these encoders: products in bfloat16 came later."""


@pytest.fixture(scope="module")
def opened() -> dict[str, Encoder]:
    return {name: Encoder.load(HERE / name) for name in NAMES}


def test_they_are_all_there_and_small():
    files = [path for path in HERE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert sum(path.stat().st_size for path in files) < 300_000
    assert len(NAMES) == 9 and len(OURS) == 7
    assert {name.partition("/")[0] for name in VECTORS} == {*NAMES}


@pytest.mark.parametrize("name", sorted(VECTORS))
def test_the_vectors_are_those_of_then(opened: dict[str, Encoder], name: str):
    folder, _, kind = name.partition("/")
    encoder, texts = opened[folder], ABOUT["texts"]
    encode = {
        "sentences": lambda: encoder.encode(texts, on_long="ignore"),
        "passages": lambda: encoder.encode_document(texts, on_long="ignore"),
        # words took no prompt then
        "words": lambda: encoder.encode_words(texts, ABOUT["words"], prompt="", on_long="ignore"),
    }
    near(encode[kind](), VECTORS[name])


def near(found: Any, wanted: Any) -> None:
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    lengths = np.linalg.norm(wanted, axis=1)
    assert lengths.min() > 0.1
    assert (np.linalg.norm(found - wanted, axis=1) / np.maximum(lengths, 1)).max() <= NEAR


@pytest.mark.parametrize("name", NAMES)
def test_the_fingerprint_is_that_of_then_but_for_what_joined_it(opened: dict[str, Encoder], name: str):
    encoder = opened[name]
    assert fingerprint.weights_digest(encoder.backbone.model).hex() == ABOUT["encoders"][name]["weights"]
    described = fingerprint.described(encoder)
    assert {key: described.pop(key) for key in SINCE} == SINCE
    others = [f"{library} {installed}" for library, then in ABOUT["versions"].items()
              if (installed := version(library)) != then and library != "afterword"]  # fmt: skip
    if others:
        pytest.skip(f"{', '.join(others)}: a model's settings and a tokenizer's are written by these libraries")
    described["versions"] = ABOUT["versions"]
    whole = json.dumps(described, sort_keys=True, default=str).encode()
    whole += bytes.fromhex(ABOUT["encoders"][name]["weights"])
    assert blake2b(whole, digest_size=16).hexdigest() == ABOUT["encoders"][name]["fingerprint"]


@pytest.mark.parametrize("name", OURS)
def test_a_method_is_written_as_it_was(opened: dict[str, Encoder], name: str):
    then = json.loads((HERE / name / "afterword.json").read_text("utf-8"))["method"]
    assert set(then) == {"name", "layout", "states", "weigh", "sight"}
    assert to_json(opened[name].method) == then == to_json(from_json(then))


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_is_written_as_it_was(opened: dict[str, Encoder], name: str, tmp_path: Path):
    opened[name].save(tmp_path)
    for path in (HERE / name).rglob("*.json"):
        file, beside = path.relative_to(HERE / name), path.name.startswith(("tune", "tokenizer", "config."))
        if not beside:  # these are transformers' own, or what tuning found
            assert json.loads((tmp_path / file).read_text("utf-8")) == json.loads(path.read_text("utf-8")), file


def test_class_paths_on_disk_are_those_of_the_code():
    from afterword import st

    kinds = {module["type"] for name in OURS for module in json.loads((HERE / name / "modules.json").read_text())}
    assert {kind for kind in kinds if kind.startswith("afterword.")} == {"afterword.st.Afterword", "afterword.st.Flow"}
    assert st.Afterword.__module__ == st.Flow.__module__ == "afterword.st"
    assert (st.Afterword.__qualname__, st.Flow.__qualname__) == ("Afterword", "Flow")


@pytest.mark.parametrize("name", ["llama-bellm", "bert-tfidf"])
def test_sentence_transformers_opens_them(name: str):
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(HERE / name), trust_remote_code=True, device="cpu")
    near(model.encode(ABOUT["texts"]), VECTORS[f"{name}/sentences"])


def test_a_result_is_read_and_found_finished(monkeypatch: pytest.MonkeyPatch):
    path = HERE / "results" / "llama-released" / "reba-2-last-released" / "pairs.json"
    result, source = results.read(path), Folder(HERE)
    ours = json.loads(path.read_text("utf-8"))["afterword"]
    assert ours["encoder"] == ABOUT["encoders"]["llama-released"]["fingerprint"]
    task = Pairs(**ours["options"])
    monkeypatch.setattr(results, "versions", lambda _: ours["versions"])
    digests = {name: source.digest(name) for name in task.files()}
    assert results.key(task, digests, ours["encoder"]) == result.key == ours["key"]
    assert results.revision(digests) == result.revision
    again = json.loads(json.dumps(result.to_json()))
    assert {**again["afterword"], "items": ours["items"]} == ours


def test_a_result_comes_out_again(opened: dict[str, Encoder]):
    then = results.read(HERE / "results" / "llama-released" / "reba-2-last-released" / "pairs.json").scores[0]
    encoder: Embedder = opened["llama-released"]  # type: ignore[assignment]
    now = Pairs("pairs", "pairs.jsonl").load(Folder(HERE)).score(encoder, 0)
    assert now.metrics == pytest.approx(then.metrics, abs=1e-6)
    assert np.array_equal(now.items["gold"], then.items["gold"])
    assert np.allclose(now.items["similarity"], then.items["similarity"], rtol=0, atol=1e-6)


def test_a_tune_report_has_the_keys_it_had_and_the_recipes_in_their_order(opened: dict[str, Encoder]):
    then = json.loads((HERE / "tuned" / "tune.json").read_text("utf-8"))
    assert from_json(then["chosen"]["as"]) == opened["tuned"].method
    pairs = Pairs("pairs", "pairs.jsonl").load(Folder(HERE))
    now = as_json(tune(opened["tuned"], pairs, Grid(heads="none", posts=(Whiten(),))))
    assert list(now) == list(then) and now["split"] == then["split"]
    assert [list(now[key]) for key in ("chosen", "default", "simplest")] == [
        list(then[key]) for key in ("chosen", "default", "simplest")
    ]
    had, has = (
        [(r["method"], r["post"], r["level"]) for r in report["recipes"] if r["post"] in ("none", "centre")]
        for report in (then, now)
    )
    assert [recipe for recipe in has if recipe in had] == had  # others have come since, also among the leaders
