"""``afterword similar``: the numbers are those of `Encoder.similarity`, and each is on the line of its texts."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import Run

from afterword import Encoder, classical
from afterword.errors import TextsUnknown

TEXTS = ["The bank raised its rates.", "银行提高了利率。", "We sat on the bank of the river."]


def test_a_page(run: Run, minilm: Path):
    ended = run("similar", "-m", minilm, *TEXTS)
    assert ended.code == 0 and ended.err == f"warning: {TextsUnknown(1)}\n"
    encoder = Encoder.load(minilm)
    with pytest.warns(TextsUnknown):
        vectors = encoder.encode(TEXTS)
    table = encoder.similarity(vectors, vectors)
    lines = [line.split() for line in ended.out.splitlines()]
    for i in range(3):
        assert lines[1 + i][:4] == [str(i + 1), *(f"{x:.3f}" for x in table[i])]
        assert TEXTS[i] in ended.out
    pairs = [float(words[0]) for words in lines[4:] if words]
    assert pairs == sorted((round(float(table[i, j]), 3) for i, j in ((0, 1), (0, 2), (1, 2))), reverse=True)


def test_two_lists_and_several_methods(run: Run, gpt2: Path, tmp_path: Path):
    (tmp_path / "b.csv").write_text("text\nmoney\nwater\n")
    spec = ("similar", "-m", gpt2, "--method", "classical", "--method", "echo", "--against", tmp_path / "b.csv", *TEXTS)
    found = json.loads(run(*spec, "--json").out)
    assert found["texts"] == TEXTS and found["against"] == ["money", "water"]
    encoder = Encoder.load(gpt2, classical())
    wanted = encoder.similarity(encoder.encode(TEXTS), encoder.encode(["money", "water"]))
    assert np.allclose(found["similarity"]["classical"], wanted, atol=1e-6)
    assert np.shape(found["similarity"]["echo"]) == (3, 2)
    lines = run(*spec, "--top", 2).out.splitlines()
    assert lines[0].split() == ["classical", "echo"] and len(lines) == 3
    i, j = np.unravel_index(wanted.argmax(), wanted.shape)
    echo = found["similarity"]["echo"][i][j]
    assert lines[1].split()[:2] == [f"{wanted.max():.3f}", f"{echo:.3f}"]
    assert TEXTS[i] in lines[1] and lines[1].endswith(f"  {j + 2}  {['money', 'water'][j]}")


def test_other_ways_of_comparing(run: Run, gpt2: Path):
    spec = ("similar", "-m", gpt2, "--method", "classical", "--json", *TEXTS, "--by")
    vectors = Encoder.load(gpt2, classical()).encode(TEXTS)
    found = json.loads(run(*spec, "dot").out)["similarity"]["vector"]
    assert np.allclose(found, vectors @ vectors.T, rtol=1e-5)
    found = json.loads(run(*spec, "manhattan").out)["similarity"]["vector"]
    assert found[0][1] == pytest.approx(-np.abs(vectors[0] - vectors[1]).sum(), rel=1e-5)


def test_rejected_rows_keep_their_numbers_and_are_summed_up_behind_the_answer(run: Run, gpt2: Path):
    spec = ("similar", "-m", gpt2, "--method", "classical")
    ended = run(*spec, "--json", stdin=b"dog\n\ncat\n")
    assert ended.code == 1 and ended.err == "rejected: 1 of 3 rows: line 2: is empty\n"
    found = json.loads(ended.out)
    assert (found["texts"], found["lines"]) == (["dog", "cat"], [1, 3])
    assert found["rejected"] == [{"line": 2, "reason": "is empty"}]


def test_equal_texts_are_compared_once(run: Run, gpt2: Path):
    spec = ("similar", "-m", gpt2, "--method", "classical", "dog", "cat", "dog", "dog")
    ended = run(*spec)
    assert ended.err == "equal texts: 2 of 4 rows repeat an earlier one\n" and ended.code == 0
    lines = ended.out.splitlines()
    assert [lines[k].split()[0] for k in (1, 2)] == ["1", "2"] and lines[1].endswith("(3x) dog")
    assert len(lines) == 5 and lines[-1].endswith("  (3x) dog  cat")
    found = json.loads(run(*spec, "--json").out)
    assert found["texts"] == ["dog", "cat", "dog", "dog"] and np.shape(found["similarity"]["vector"]) == (4, 4)
    (pair,) = found["pairs"]
    assert (pair["text"], pair["lines"], pair["against"], pair["against_lines"]) == ("dog", [1, 3, 4], "cat", [2])
    assert pair["similarity"]["vector"] == found["similarity"]["vector"][0][1]


def test_a_threshold_leaves_out_what_is_less_similar(run: Run, gpt2: Path):
    spec = ("similar", "-m", gpt2, "--method", "classical", *(f"text {i}" for i in range(8)))
    every = [p["similarity"]["vector"] for p in json.loads(run(*spec, "--json", "--threshold", -1).out)["pairs"]]
    assert len(every) == 28 and every == sorted(every, reverse=True)
    found = json.loads(run(*spec, "--json", "--threshold", every[14]).out)["pairs"]
    assert len(found) == 15
    assert len(json.loads(run(*spec, "--json", "--threshold", every[14], "--top", 3).out)["pairs"]) == 3


@pytest.mark.parametrize(
    "words", [("dog",), (" ",), ("--centre", *TEXTS[:2]), ("--centre", "--by", "euclidean", *TEXTS)]
)
def test_what_cannot_be_compared(run: Run, gpt2: Path, words: tuple[str, ...]):
    ended = run("similar", "-m", gpt2, "--method", "classical", *words)
    assert ended.code == 2 and ended.out == "" and ended.last.startswith("error: ")


def centred(*sides: np.ndarray) -> np.ndarray:
    mean = np.concatenate(sides).astype(np.float64).mean(0)
    one, other = ((side - mean) / np.linalg.norm(side - mean, axis=1, keepdims=True) for side in (sides[0], sides[-1]))
    return one @ other.T


def test_centred_cosines_are_those_less_the_mean_of_both_sides(run: Run, gpt2: Path, tmp_path: Path):
    others = ["A dog barks.", "The bank of the river."]
    (tmp_path / "others.txt").write_text("\n".join(others))
    encoder = Encoder.load(gpt2, classical())
    left, right = encoder.encode(TEXTS), encoder.encode(others)
    words = ("similar", "-m", gpt2, "--method", "classical", "--centre", "--json", *TEXTS)
    for found, wanted in (
        (run(*words), centred(left)),
        (run(*words, "--against", tmp_path / "others.txt"), centred(left, right)),
    ):
        told = json.loads(found.out)
        assert found.code == 0 and told["centred"] is True
        np.testing.assert_allclose(told["similarity"]["vector"], wanted, atol=2e-5)
    assert "centred" not in json.loads(run("similar", "-m", gpt2, "--method", "classical", "--json", *TEXTS).out)
