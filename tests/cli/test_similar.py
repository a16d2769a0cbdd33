"""``afterword similar``: the numbers are those of `Encoder.similarity`, and each is on the line of its texts."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from tests.cli.conftest import Run

from afterword import Encoder, classical
from afterword.cli.page import one_line
from afterword.cli.similar import Wanted, compared, page
from afterword.cli.similar_texts import Side
from afterword.errors import TextsUnknown

TEXTS = ["The bank raised its rates.", "银行提高了利率。", "We sat on the bank of the river."]
LONG = st.text(st.characters(codec="utf-8") | st.sampled_from("中é \u0301\u200d👩\x1b\n"), min_size=1, max_size=300)


def side(texts: list[str], methods: int, numbered: bool, seed: int = 0) -> Side:
    draw = np.random.default_rng(seed)
    vectors = {f"method:number={k}": draw.normal(size=(len(texts), 3)) for k in range(methods)}
    return Side(texts, [[i + 1] * (1 + i % 2) for i in range(len(texts))], vectors, [], numbered)


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


@given(
    texts=st.lists(LONG, min_size=2, max_size=6), others=st.none() | st.lists(LONG, min_size=1, max_size=5),
    methods=st.integers(1, 6), width=st.integers(40, 200), numbered=st.booleans(),
)  # fmt: skip
def test_each_score_is_on_the_line_of_its_texts_at_any_width(texts, others, methods, width, numbered):
    sides = [side(texts, methods, numbered), *([side(others, methods, True, 1)] if others is not None else [])]
    scores = compared(sides, Wanted("cosine", 10, None))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(width))
        lines = page(scores)
    assert max(map(cell_len, lines)) <= width
    starts = [one_line(("(2x) " if i % 2 else "") + text)[:3].strip() for i, text in enumerate(texts)]
    ends = (
        starts
        if others is None
        else [one_line(("(2x) " if i % 2 else "") + t)[:3].strip() for i, t in enumerate(others)]
    )
    for k, (i, j) in enumerate(zip(scores.pairs.rows, scores.pairs.columns, strict=True)):
        for values in scores.by_method.values():
            score = f"{values[k]:.3f}"
            assert any(score in line.split() and starts[i] in line and ends[j] in line for line in lines), (
                score,
                lines,
            )
    if methods == 1:
        (table,) = scores.tables().values()
        for row, start in zip(table, starts, strict=True):
            of_row = [line for line in lines if start in line]
            assert all(any(f"{x:.3f}" in line.split() for line in of_row) for x in row)


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


def test_long_names_of_methods_are_numbered(run: Run, gpt2: Path):
    spec = ("similar", "-m", gpt2, "--method", "classical", "--method", "reba:copies=1,pool=mean", "dog", "cat")
    lines = run(*spec).out.splitlines()
    assert lines[:2] == ["m1  classical", "m2  reba:copies=1,pool=mean"] and lines[2].split() == ["m1", "m2"]


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
    ended = run(*spec, stdin=b"dog\n\n \n\n\ncat\n")
    assert ended.err == "rejected: 4 of 6 rows: line 2: is empty; line 3: is blank; line 4: is empty; and 1 more\n"
    assert [line.split()[0] for line in ended.out.splitlines()[1:3]] == ["1", "6"]
    assert ended.out.splitlines()[-1].split()[1:] == ["1", "dog", "6", "cat"]


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
    assert run(*spec, "--threshold", 2).out.splitlines()[-1] == "no pair has a similarity of at least 2"
    assert run(*spec, "--threshold", "nan").err.endswith("--threshold: nan is not a number\n")


@pytest.mark.parametrize("stdin", [b"", b"\n\n"])
def test_one_text_alone_and_no_text_are_refused(run: Run, gpt2: Path, stdin: bytes):
    ended = run("similar", "-m", gpt2, "--method", "classical", stdin=b"dog\n" + stdin)
    assert ended.code == 2 and "one text alone: give another, or a file with --against" in ended.err
    if stdin:
        ended = run("similar", "-m", gpt2, "--method", "classical", stdin=stdin)
        assert ended.code == 2 and "no text can be compared: line 1: is empty; line 2: is empty" in ended.err


def test_a_large_matrix_is_left_to_json(run: Run, gpt2: Path):
    page = run("similar", "-m", gpt2, "--method", "classical", "--top", 4, *(f"text {i}" for i in range(30))).out
    assert page.splitlines()[0] == "30 x 30 similarities; --json prints them all"
    assert len(page.splitlines()) == 6


def test_control_characters_in_a_method_s_name_are_not_printed():
    vectors = {"a\x1b[31m": np.eye(2), "@a\nb.py:name": np.eye(2)}
    lines = page(compared([Side(["x", "y"], [[1], [2]], vectors, [], False)], Wanted(None, 10, None)))
    assert lines[0].split() == ["a\N{REPLACEMENT CHARACTER}[31m", "@a", "b.py:name"]
    assert all(line.isprintable() for line in lines)


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


def test_what_cannot_be_centred(run: Run, gpt2: Path):
    few = run("similar", "-m", gpt2, "--method", "classical", "--centre", *TEXTS[:2])
    assert few.code == 2 and "--centre: 2 texts: without their mean" in few.err
    far = run("similar", "-m", gpt2, "--method", "classical", "--centre", "--by", "euclidean", *TEXTS)
    assert far.code == 2 and "--centre: changes no distance: give --by cosine, not euclidean" in far.err
