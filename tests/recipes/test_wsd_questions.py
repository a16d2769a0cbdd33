"""The questions of WSD from the sentences they were drawn from."""

import json
import random
from pathlib import Path
from typing import Any

import wsd_questions
from tests.scripts import Ended, script

from afterword.tasks.task import read_rows, text, texts

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
    theirs = read_rows(folder / "wsd_questions.jsonl.gz", checks)
    assert len(ours) == 862 and ours == theirs


def test_both_forms_and_the_command(tmp_path: Path) -> None:
    rows, whole = tmp_path / "wsd.jsonl", tmp_path / "wsd.json"
    rows.write_text(json.dumps({"word": "词", "senses": SENSES}))
    whole.write_text(json.dumps({"词": SENSES}))
    outs = [tmp_path / "a.jsonl.gz", tmp_path / "b.jsonl.gz"]
    for given, out in zip((rows, whole), outs, strict=True):
        done = script(wsd_questions.__file__, given, out)
        assert done == Ended(0, f"1 questions in {out}\n", "")
    assert outs[0].read_bytes() == outs[1].read_bytes()
    (found,) = read_rows(outs[0], {"word": text, "options": texts, "answer": int})
    assert found["word"] == "词" and found["options"][found["answer"]] == "e"
