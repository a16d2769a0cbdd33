"""``afterword similar``: the numbers are those of `Encoder.similarity`, the page is one that a person can read."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import Run

from afterword import Encoder, classical
from afterword.cli.console import shown
from afterword.cli.similar import ranked

TEXTS = ["The bank raised its rates.", "银行提高了利率。", "We sat on the bank of the river."]


def test_a_page(run: Run, minilm: Path):
    ended = run("similar", "-m", minilm, *TEXTS)
    assert (ended.code, ended.err) == (0, "")
    encoder = Encoder.load(minilm)
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
    page = run(*spec, "--top", 2).out
    assert page.splitlines()[0] == "classical" and "echo" in page.splitlines() and "a" in page.splitlines()[1].split()
    best = np.unravel_index(wanted.argmax(), wanted.shape)
    first = next(line for line in page.splitlines() if line.startswith(f"{wanted.max():.3f}"))
    assert TEXTS[best[0]] in first and ["money", "water"][best[1]] in first


def test_other_ways_of_comparing(run: Run, gpt2: Path):
    spec = ("similar", "-m", gpt2, "--method", "classical", "--json", *TEXTS, "--by")
    vectors = Encoder.load(gpt2, classical()).encode(TEXTS)
    found = json.loads(run(*spec, "dot").out)["similarity"]["vector"]
    assert np.allclose(found, vectors @ vectors.T, rtol=1e-5)
    found = json.loads(run(*spec, "manhattan").out)["similarity"]["vector"]
    assert found[0][1] == pytest.approx(-np.abs(vectors[0] - vectors[1]).sum(), rel=1e-5)


def test_texts_that_cannot_be_compared_are_left_out(run: Run, gpt2: Path):
    ended = run("similar", "-m", gpt2, "--method", "classical", "--json", stdin=b"dog\n\ncat\n")
    assert ended.code == 1 and ended.err == "rejected: line 2: is empty\n"
    assert json.loads(ended.out)["texts"] == ["dog", "cat"]


def test_a_large_matrix_is_left_to_json(run: Run, gpt2: Path):
    page = run("similar", "-m", gpt2, "--method", "classical", "--top", 4, *(f"text {i}" for i in range(30))).out
    assert page.splitlines()[0] == "30 x 30 similarities; --json prints them all"
    assert len(page.splitlines()) == 6


def test_what_a_terminal_would_obey_is_not_printed():
    assert shown("a\x1b[31mred\nb").plain == "a\N{REPLACEMENT CHARACTER}[31mred b"


def test_ranking_is_that_of_sorting_all():
    table = np.random.default_rng(0).integers(0, 50, (40, 30)) / 50
    everything = sorted((-table[i, j], i, j) for i in range(40) for j in range(30))
    values = [table[pair] for pair in ranked(table, False, 25)]
    assert values == [-v for v, _, _ in everything[:25]]
    assert ranked(table[:3, :3], True, 99) == [
        (i, j) for _, i, j in sorted((-table[i, j], i, j) for i, j in ((0, 1), (0, 2), (1, 2)))
    ]
