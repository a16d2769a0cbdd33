"""The questions of WSD from the sentences they were drawn from."""

import json
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.scripts import Ended, script

from afterword.errors import BadRow, DataError, MissingDataset
from afterword.tasks.rows import read_rows, text, texts

RECIPES = Path(__file__).parents[2] / "recipes"
sys.path.insert(0, str(RECIPES))

import wsd_questions  # noqa: E402

SENSES = {"one": ["a", "b", "c", "d"], "none": [], "two": ["e", "f"], "three": ["g", "h", "i"]}


def test_a_question_by_hand() -> None:
    skipped = {"alone": {"one": ["a", "b", "c"]}, "few": {"one": ["a", "b"], "two": ["c"]}, "empty": {}}
    (found,) = wsd_questions.questions([*skipped.items(), ("word", SENSES)])
    assert found["word"] == "word" and sorted(found["options"]) == ["a", "b", "c", "e"]
    assert found["options"][found["answer"]] == "e"
    order = [0, 1, 2, 3]
    random.seed(0)
    random.shuffle(order)
    assert found["options"] == [["a", "b", "c", "e"][i] for i in order]


def test_the_authors_file_comes_out(data: Path) -> None:
    folder = data / "zh" / "wordsense"
    ours = list(wsd_questions.questions(wsd_questions.read(folder / "wsd.jsonl.gz")))
    checks: dict[str, Any] = {"word": text, "options": texts, "answer": int}
    theirs = list(read_rows(folder / "wsd_questions.jsonl.gz", checks))
    assert len(ours) == 862 and ours == theirs


def test_without_the_sorting_network_thirty_questions_would_differ(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = list(wsd_questions.read(data / "zh" / "wordsense" / "wsd.jsonl.gz"))
    theirs = list(wsd_questions.questions(words))
    monkeypatch.setattr(wsd_questions, "argsort", lambda counts: np.argsort(counts, kind="stable").tolist())
    stable = list(wsd_questions.questions(words))
    assert [q["word"] for q in stable] == [q["word"] for q in theirs]
    assert [q["answer"] for q in stable] == [q["answer"] for q in theirs]
    assert sum(a != b for a, b in zip(stable, theirs, strict=True)) == 30
    senses = dict(words)
    for a, b in zip(stable, theirs, strict=True):  # and where they do, among senses that are equally frequent
        counts = Counter({s: len(found) for s, found in senses[a["word"]].items() if found})
        for drawn in (a, b):
            odd = drawn["options"][drawn["answer"]]
            rest = set(drawn["options"]) - {odd}
            assert any(odd in senses[a["word"]][s] for s in counts if counts[s] == min(counts.values()))
            assert any(rest <= set(senses[a["word"]][s]) for s in counts if counts[s] == max(counts.values()))


@pytest.mark.parametrize("length", range(12))
def test_the_network_sorts(length: int) -> None:
    chance = np.random.default_rng(length)
    for _ in range(50):
        numbers = chance.integers(0, 4, length)
        order = wsd_questions.argsort(numbers.tolist())
        assert sorted(order) == list(range(length)) and (np.diff(numbers[order]) >= 0).all()


def test_both_forms_and_the_command(tmp_path: Path) -> None:
    rows, whole = tmp_path / "wsd.jsonl", tmp_path / "wsd.json"
    rows.write_text(json.dumps({"word": "词", "senses": SENSES}))
    whole.write_text(json.dumps({"词": SENSES}))
    outs = [tmp_path / "a.jsonl.gz", tmp_path / "b.jsonl.gz"]
    for given, out in zip((rows, whole), outs, strict=True):
        done = run(given, out)
        assert done == Ended(0, f"1 questions in {out}\n", "")
    assert outs[0].read_bytes() == outs[1].read_bytes()
    (found,) = read_rows(outs[0], {"word": text, "options": texts, "answer": int})
    assert found["word"] == "词" and found["options"][found["answer"]] == "e"


def run(*args: Path) -> Ended:
    return script(RECIPES / "wsd_questions.py", *args)


def test_what_cannot_be_read(tmp_path: Path) -> None:
    def read(name: str, content: str) -> None:
        (tmp_path / name).write_text(content)
        list(wsd_questions.read(tmp_path / name))

    with pytest.raises(BadRow, match=r"a\.jsonl:1: 'senses' is .*, not an object of lists of sentences"):
        read("a.jsonl", '{"word": "a", "senses": {"one": [1]}}')
    with pytest.raises(DataError, match=r"a.json: 'a' is \[\], not an object of lists"):
        read("a.json", '{"a": []}')
    with pytest.raises(DataError, match=r"b\.json is no object of words"):
        read("b.json", "[]")
    with pytest.raises(DataError, match=r"c\.json cannot be read"):
        read("c.json", "{")
    with pytest.raises(MissingDataset):
        list(wsd_questions.read(tmp_path / "none.json"))
    done = run(tmp_path / "none.jsonl", tmp_path / "out.jsonl")
    assert done == Ended(2, "", f"wsd_questions: {tmp_path / 'none.jsonl'} does not exist\n")
    assert not (tmp_path / "out.jsonl").exists()
