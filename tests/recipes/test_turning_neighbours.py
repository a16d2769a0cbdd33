"""BeLLM trained with one layer more and one fewer than the turning point says."""

import gzip
import json
import sys
from pathlib import Path

import pytest
from tests.tiny import tiny

pytest.importorskip("sentence_transformers", reason="the extra train is not installed")
pytest.importorskip("peft", reason="the extra train is not installed")
pytest.importorskip("datasets", reason="the extra train is not installed")
sys.path.insert(0, str(Path(__file__).parents[2] / "recipes"))

import turning_neighbours
from turning_neighbours import table

WORDS = "cat dog king queen river bank money guitar pasta garden".split()


def write(file: Path, rows: list[dict[str, object]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    file.write_bytes(gzip.compress(text) if file.suffix == ".gz" else text)


def test_a_line_for_each_number_of_layers_names_the_turning_point():
    scores = {(last, seed): 50.0 + last + seed for last in (0, 1, 2, 3) for seed in (0, 1)}
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table(scores, 6, 4).splitlines()[2:]]
    assert [line[0] for line in lines] == ["last 3, t - 1", "last 2, t", "last 1, t + 1", "none"]
    assert lines[1][1:] == ["4", "52.50 ± 0.71", "+2.00", "+2.00"] and lines[3][1:] == ["6", "50.50 ± 0.71", "", ""]


@pytest.mark.slow
def test_finished_trainings_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    pairs = [(a, b) for i, a in enumerate(WORDS) for b in WORDS[i:]][:40]
    scored = [{"sentence1": f"The {a}.", "sentence2": f"A {b}.", "score": len(a) % 3 + 5 * (a == b)} for a, b in pairs]
    for name in ("stsb.dev.jsonl.gz", "stsb.test.jsonl", "sickr.test.jsonl"):
        write(tmp_path / "en/sts" / name, scored)
    triplets = [{"anchor": f"{i} cats", "positive": f"{i} animals", "negative": f"{i} dogs"} for i in range(16)]
    write(tmp_path / "nli/triplets_10k.jsonl.gz", triplets)
    given = ["--data", str(tmp_path), "--out", str(tmp_path / "out"), "--model", str(tiny("llama", tmp_path)),
             "--steps", "2", "--batch-size", "4", "--seeds", "1"]  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["turning_neighbours.py", *given])
    turning_neighbours.main()
    first = capsys.readouterr().out
    assert first.startswith("turning point: ") and ", t " in first
    done = (tmp_path / "out/scores.jsonl").read_text()
    monkeypatch.setattr(turning_neighbours, "train", None)
    turning_neighbours.main()
    assert (tmp_path / "out/scores.jsonl").read_text() == done
    assert first.endswith(capsys.readouterr().out.partition("\n")[2])
