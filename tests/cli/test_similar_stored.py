"""Queries against stored vectors: the same pairs as embedding the texts again, and only if they were made alike."""

import base64
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.cli.conftest import Run

from afterword.jobs.stored import PREFIX, StoredVectors

TEXTS = [*(f"text number {i}" for i in range(20)), "", "the bank", "the bank", "water " * 60]


@pytest.fixture
def stored(run: Run, gpt2: Path, tmp_path: Path) -> Path:
    (tmp_path / "t.txt").write_text("\n".join(TEXTS) + "\n")
    write(run, gpt2, tmp_path, "--method", "classical")
    return tmp_path / "t.parquet"


def write(run: Run, model: Path, folder: Path, *words: object) -> None:
    path = folder / "t.parquet"
    path.unlink(missing_ok=True)
    assert run("embed", "-m", model, *words, "-i", folder / "t.txt", "-o", path).code == 1


def pairs(run: Run, *words: object) -> list[dict]:
    return json.loads(run("similar", *words, "--json").out)["pairs"]


@pytest.mark.parametrize("by", ["cosine", "euclidean"])
def test_stored_vectors_give_what_embedding_again_gives(run: Run, gpt2: Path, stored: Path, by: str):
    spec = ("-m", gpt2, "--method", "classical", "--by", by, "--top", 30, "a bank", "rain", "--against")
    found, wanted = pairs(run, *spec, stored), pairs(run, *spec, stored.with_suffix(".txt"))
    for pair in found:
        pair["against_lines"] = [row + 1 for row in pair["against_rows"]]
    assert [21, 22] in [pair.pop("against_rows") for pair in found]
    for pair in (*found, *wanted):
        pair["similarity"] = (
            pytest.approx(pair["similarity"]["vector"], abs=2e-6) if pair in wanted else pair["similarity"]["vector"]
        )
    assert found == wanted and len(found) == 30


def test_the_method_and_the_settings_of_the_file_are_taken(run: Run, gpt2: Path, stored: Path):
    folder = stored.parent
    write(run, gpt2, folder, "--method", "echo:pool=last", "--truncate-dim", 7, "--normalize", "--prompt", "of: ")
    ended = run("similar", "-m", gpt2, "the bank", "--against", stored, "--top", 1)
    assert ended.code == 0 and ended.out == "1.000  21  the bank  (2x) the bank\n".replace(
        "21  the bank  ", "the bank  21  "
    )
    assert ended.err == f"no vector: 1 of 24 rows of {stored}\n"
    found = run("similar", "-m", gpt2, "--truncate-dim", 8, "a", "--against", stored)
    assert found.code == 2 and f"8: the vectors of {stored} have 7" in found.err
    assert (
        pairs(run, "-m", gpt2, "--prompt", "", "the bank", "--against", stored, "--top", 1)[0]["similarity"]["vector"]
        < 0.9999
    )


def test_several_methods_of_a_file(run: Run, gpt2: Path, stored: Path):
    write(run, gpt2, stored.parent, "--method", "classical", "--method", "echo")
    page = run("similar", "-m", gpt2, "the bank", "--against", stored, "--top", 2).out.splitlines()
    assert page[0].split() == ["classical", "echo"] and page[1].split()[:3] == ["1.000", "1.000", "the"]
    both = pairs(run, "-m", gpt2, "--method", "echo", "the bank", "--against", stored)
    assert both[0]["similarity"]["vector"] == pytest.approx(1) and both[0]["against"] == "the bank"


def test_vectors_of_another_encoder_are_refused(run: Run, gpt2: Path, bert: Path, stored: Path):
    for words in (("-m", gpt2, "--max-length", 9), ("-m", gpt2, "--method", "echo"), ("-m", bert)):
        ended = run("similar", *words, "a bank", "--against", stored)
        assert (ended.code, ended.out) == (
            2,
            "",
        ) and f"the vectors of {stored} were made by {gpt2} by classical" in ended.err


def test_vectors_with_conditions_are_searched_with_a_condition(run: Run, gpt2: Path, tmp_path: Path):
    method, path = ("--method", "prompt:template=csts"), tmp_path / "c.parquet"
    rows = [{"text": "a dog runs", "about": about} for about in ("speed", "animals")] + [
        {"text": "a", "about": "speed"}
    ]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = (*method, "-i", tmp_path / "c.jsonl", "--condition-field", "about")
    assert run("embed", "-m", gpt2, *words, "-o", path).code == 0
    for given in ((), method):
        found = pairs(run, "-m", gpt2, *given, "--condition", "speed", "a dog runs", "--against", path, "--top", 1)
        assert found[0]["similarity"]["vector"] == pytest.approx(1, abs=1e-6) and found[0]["against"] == "a dog runs"
    two = json.loads(run("similar", "-m", gpt2, *method, "--condition", "speed", "a dog runs", "a", "--json").out)
    stored = StoredVectors(path).vectors("vector", np.array([0, 2]))
    wanted = stored[0] @ stored[1] / np.linalg.norm(stored[0]) / np.linalg.norm(stored[1])
    assert two["pairs"][0]["similarity"]["vector"] == pytest.approx(wanted, abs=1e-5)
    assert run("similar", "-m", gpt2, *method, "a", "--against", path).code == 2


def test_probes_that_differ_are_refused(run: Run, gpt2: Path, stored: Path):
    table = pq.read_table(stored)
    notes = dict(table.schema.metadata)
    key = f"{PREFIX}probes".encode()
    other = StoredVectors(stored).infos["vector"].probes * np.float32(1.001)
    notes[key] = base64.b64encode(other.astype("<f4").tobytes())
    pq.write_table(table.replace_schema_metadata(notes), stored)
    ended = run("similar", "-m", gpt2, "a bank", "--against", stored)
    assert ended.code == 2 and "the probe texts differ by" in ended.err


def test_stored_vectors_are_compared_with_each_other(run: Run, gpt2: Path, stored: Path):
    spec = ("-m", gpt2, "--method", "classical", "--top", 25)
    found, wanted = pairs(run, *spec, "-i", stored), pairs(run, *spec, "-i", stored.with_suffix(".txt"))
    again = pairs(run, *spec, "-i", stored, "--column", "text")
    assert len(found) == 25
    for pair, other, third in zip(found, wanted, again, strict=True):
        for one in (other, third):
            assert one["similarity"]["vector"] == pytest.approx(pair["similarity"]["vector"], abs=2e-6)
    assert {(p["text"], p["against"]) for p in found} == {(p["text"], p["against"]) for p in wanted}
    page = run("similar", "-m", gpt2, "-i", stored, "--threshold", 0.5)
    assert page.code == 0 and "(2x) the bank" in page.out and page.err == f"no vector: 1 of 24 rows of {stored}\n"
    assert run("similar", "-m", gpt2, "--method", "echo", "-i", stored).code == 2
