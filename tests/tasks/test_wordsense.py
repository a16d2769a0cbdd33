"""Questions on word sense: the decisions against the authors' own, the protocol by hand, and what is refused."""

import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from tests.tasks.planted import Planted

from afterword import Encoder, Method, classical
from afterword.errors import BadRow, InputError, WordNotFound
from afterword.methods.states import States
from afterword.tasks.rows import Folder
from afterword.tasks.wordsense import DECISIONS, TASKS, OddSense
from afterword.text.segments import Segment, TokenizedText
from afterword.text.words import span_of, tokens_of

TASK = OddSense("Toy", "toy")


def folder(path: Path, *rows: Any) -> Folder:
    (path / "toy.jsonl").write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows))
    return Folder(path)


def question(*options: str, answer: int = 0, word: str = "w") -> dict[str, Any]:
    return {"word": word, "options": list(options), "answer": answer}


def test_the_decisions_by_hand() -> None:
    vectors = np.array([[3.0, 0.0], [0.0, 4.0], [0.0, 8.0]])
    assert DECISIONS["euclidean"](vectors) == pytest.approx([5 + math.sqrt(73), 9, 4 + math.sqrt(73)])
    assert DECISIONS["cosine"](vectors) == pytest.approx([2, 1, 1])
    assert DECISIONS["euclidean_centred"](vectors) == pytest.approx([math.sqrt(20), 1, math.sqrt(17)])
    a, b, c = np.array([[2, -4], [-1, 0], [-1, 4]]) / np.sqrt([[20], [1], [17]])
    assert DECISIONS["cosine_centred"](vectors) == pytest.approx(-np.array([a, b, c]) @ (a + b + c) / 3)


@pytest.mark.parametrize(
    ("rule", "array"),
    [
        ("euclidean", "paper_euclid_sum"),
        ("cosine", "paper_cos_sum"),
        ("euclidean_centred", "code_distance_shift"),
        ("cosine_centred", "code_cos_similarity_shift"),
    ],
)
def test_the_decisions_are_the_authors(oracle: Path, rule: str, array: str) -> None:
    with np.load(oracle / "word_sense.npz") as theirs:
        ours = [int(DECISIONS[rule](v).argmax()) for v in theirs["embeddings"]]
        assert ours == theirs[array].tolist()
        others = {name: (theirs[name] != theirs[array]).any() for name in theirs.files if name != "embeddings"}
    assert sum(others.values()) == 3, "the four rules differ, or this shows nothing"


def test_a_score_by_hand(tmp_path: Path) -> None:
    vectors = {
        "a w": [0.0], "b w": [0.1], "c w": [0.2], "d w": [9.0], "none": [5.0],
        "e w": [1.0], "f w": [1.0], "g w": [1.0],
    }  # fmt: skip
    rows = [
        question("a w", "b w", "c w", "d w", answer=3),  # right
        question("d w", "b w", "c w", answer=2),  # wrong
        question("a w", "b w", "none", answer=2),  # cannot be asked
        question("e w", "f w", "g w", answer=0),  # undecided
    ]
    scores = TASK.run(Planted(vectors), folder(tmp_path, *rows))
    assert scores.main == scores.metrics["accuracy"] == scores.metrics["accuracy_euclidean"] == 0.25
    assert scores.items["correct"].tolist() == [1, 0, 0, 0]
    assert (scores.metrics["questions"], scores.metrics["asked"]) == (4, 3)
    assert scores.notes[0].startswith("1 of 4 questions cannot be asked") and scores.notes[0].endswith(": w")
    assert scores.notes[1].startswith("in 1 of 4 questions no option stands out") and len(scores.notes) == 2


def test_the_decision_chooses_the_main_score(tmp_path: Path) -> None:
    # the long vector is the farthest, the one across is the least alike
    vectors = {"a w": [1.0, 0.0], "b w": [1.1, 0.0], "c w": [9.0, 0.0], "d w": [0.0, 1.0]}
    source = folder(tmp_path, question(*vectors, answer=3))
    assert TASK.run(Planted(vectors), source).main == 0
    scores = OddSense("Toy", "toy", decision="cosine").run(Planted(vectors), source)
    assert scores.main == scores.metrics["accuracy"] == scores.metrics["accuracy_cosine"] == 1
    assert scores.metrics["accuracy_euclidean"] == 0
    with pytest.raises(InputError, match="'manhattan'"):
        OddSense("Toy", "toy", decision="manhattan")


def test_which_occurrence_is_read(tmp_path: Path) -> None:
    options = {"w or w": [0.0], "w": [1.0], "w w w": [2.0]}
    source = folder(tmp_path, question(*options))
    for occurrence, spans in ((0, [(0, 1)] * 3), (-1, [(5, 6), (0, 1), (4, 5)])):
        planted = Planted(options)
        OddSense("Toy", "toy", occurrence=occurrence).run(planted, source)
        assert planted.asked == [list(zip(options, spans, strict=True))]


def test_vectors_that_say_nothing_give_nan_and_the_reason(tmp_path: Path) -> None:
    table = Encoder.load("afterword-mini", Method(classical().layout, States("static"), classical().weigh))
    source = folder(tmp_path, question("一行字", "银行", "行人", "行，走", word="行", answer=1))
    scores = TASK.run(table, source)
    assert math.isnan(scores.main) and "no option stands out" in scores.notes[0]
    lost = TASK.run(
        Planted({"a w": [np.nan], "b w": [0.0], "c w": [0.0]}), folder(tmp_path, question("a w", "b w", "c w"))
    )
    assert math.isnan(lost.main) and math.isnan(lost.metrics["accuracy_cosine"])


def test_a_real_encoder_against_plain_loops(data: Path) -> None:
    encoder = Encoder.load("afterword-mini", "echo")
    loaded = TASKS[0].load(Folder(data))
    questions = loaded.questions[:20]
    scores = replace(loaded, questions=questions).score(encoder, 0)
    vectors = [np.concatenate([encoder.encode_words(o, [q.word]) for o in q.options]) for q in questions]
    for rule in ("euclidean", "cosine"):
        chosen = [int(cdist(v, v, rule).sum(1).argmax()) for v in vectors]
        correct = [c == q.answer for c, q in zip(chosen, questions, strict=True)]
        assert scores.metrics[f"accuracy_{rule}"] == pytest.approx(np.mean(correct))
        if rule == "euclidean":
            assert scores.items["correct"].tolist() == correct and 0 < sum(correct) < len(correct)


def test_the_data_as_they_are(data: Path) -> None:
    slpwc, wsd = (task.load(Folder(data)).questions for task in TASKS)
    assert (len(slpwc), len(wsd)) == (300, 862)
    assert all(q.word in o for q in slpwc for o in q.options)
    lacking = {q.word: i for q in wsd for i, o in enumerate(q.options) if q.word not in o}
    assert set(lacking) == {"名称", "那里", "精简", "摄影"}
    assert all(q.answer == lacking[q.word] for q in wsd if q.word in lacking), "a foreign vector would be right"


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (question("a w", "b w", "c w", answer=3), "'answer' is 3: give the index of an option, 0 to 2"),
        ({**question("a w", "b w", "c w"), "answer": "B"}, "'answer' is 'B'"),
        (question("a w", "b w"), "'options' has 2 sentences: the odd one out is one of at least 3"),
        (question("a", "b", "c"), "'word' is 'w', which is in none of the options"),
        ({"sentence1": "a"}, "has no field 'options', only sentence1"),
    ],
)
def test_bad_rows_are_named_by_file_and_line(tmp_path: Path, row: Any, problem: str) -> None:
    source = folder(tmp_path, question("a w", "b w", "c w"), row)
    with pytest.raises(BadRow) as e:
        TASK.load(source)
    assert problem in str(e.value) and str(e.value).startswith(f"{tmp_path / 'toy.jsonl'}:2: ")


WRONG = {
    # word: what the released matcher misses, and why ours does not
    "aab": ([], [[1, 2, 3]], "it goes on after a partial match that failed, without going back: aa|aab"),
    "love": ([], [[1, 2]], "it reads the decoded tokens, '##' included; ours reads characters of the text"),
}


def test_the_released_matcher_and_ours(oracle: Path) -> None:
    """``get_index_of_word_in_tokens`` (Code/utinity.py of cqdyf099/ReBA) walks over tokens, ours over characters."""
    cases = json.loads((oracle / "word_matcher_cases.json").read_text())
    assert {case["word"] for case in cases} > set(WRONG)
    for case in cases:
        theirs, ours, _ = WRONG.get(case["word"], (case["indexes"], case["indexes"], ""))
        assert case["indexes"] == theirs
        assert matched(case["word"], case["tokens"]) == ours


def matched(word: str, tokens: list[str]) -> list[list[int]]:
    """The tokens of each occurrence, as an encoder finds them from the tokenizer's offsets."""
    content = [i for i, t in enumerate(tokens) if t not in ("[CLS]", "[SEP]")]
    pieces = [tokens[i].removeprefix("##") for i in content]
    ends = np.cumsum([0, *map(len, pieces)]).tolist()
    offsets = tuple(pairwise(ends))
    n = len(content)
    writing = TokenizedText((Segment(list(range(n)), ((0, n),)),), (offsets,), n, n)
    found: list[list[int]] = []
    while True:
        try:
            span = span_of((word, len(found)), "".join(pieces))
        except WordNotFound:
            return found
        found.append([content[i] for i in tokens_of(span, writing, 1, word)])
