"""``afterword explain`` and ``similar --explain``: the library's numbers, in the terminal, as JSON and as a page."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import Run
from tests.explain.test_explanation import HOSTILE, pictures

from afterword import Encoder, classical, echo

BILLED = ("they billed me too much", "I was charged twice for the same purchase.")


def test_a_score_in_the_terminal(run: Run, minilm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    ended = run("explain", "-m", minilm, *BILLED)
    assert ended.code == 0 and ended.err == ""
    lines = [line.strip() for line in ended.out.splitlines()]
    found = Encoder.load(minilm).explain(*BILLED)
    assert lines[0].split()[0] == f"{found.cosine:.3f}" == "0.571"
    assert lines[2:4] == [f"[CLS] {text} [SEP]" for text in BILLED]
    pairs = [(f"{p.value:#.3g}", f"{p.a} · {p.b}") for p in found.top(6)]
    assert [tuple(line.split(maxsplit=1)) for line in lines[5:11]] == pairs
    assert lines[12 : 12 + len(found.notes()[1:])] == found.notes()[1:]
    assert "billed · charged" in dict(map(reversed, pairs))
    assert not any(line != line.rstrip() for line in ended.out.splitlines())


def test_methods_beside_each_other_as_json_and_as_a_page(
    run: Run, gpt2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    page = tmp_path / "see.html"
    spec = ("explain", "-m", gpt2, "--method", "classical", "--method", "echo", *BILLED)
    found = json.loads(run(*spec, "--json", "--html", page).out)
    encoder = Encoder.load(gpt2, classical())
    for name, method in {"classical": classical(), "echo": echo()}.items():
        wanted = Encoder(encoder.backbone, method).explain(*BILLED)
        assert np.allclose(found[name]["table"], wanted.table, atol=1e-6)
        assert np.sum(found[name]["word_table"]) == pytest.approx(found[name]["cosine"], abs=1e-6)
        assert found[name]["method"] == wanted.method and found[name]["outside"] == wanted.outside
        assert tuple(found[name]["tokens"]) == wanted.tokens and found[name]["pairs"][0]["a"] == wanted.top(1)[0].a
    html = page.read_text("utf-8")
    assert html.startswith("<!doctype html>") and len(pictures(html)) == 4
    first = run(*spec).out.splitlines()[0]
    cosines = [f"{found[name]['cosine']:.3f}" for name in ("classical", "echo")]
    assert re.findall(r"0\.\d{3}", first) == cosines
    monkeypatch.setenv("COLUMNS", "60")
    narrow = run(*spec).out
    assert re.findall(r"(?:^|\n\n)(0\.\d{3})  cosine", narrow) == cosines


def test_the_words_of_one_text(run: Run, gpt2: Path) -> None:
    head, *lines = run("explain", "-m", gpt2, "--method", "classical", "a red dog").out.splitlines()
    assert "classical mean last" in head and "sum 1.00" in head
    assert [line.split()[1] for line in lines] == ["a", "red", "dog"]
    found = json.loads(run("explain", "-m", gpt2, "--method", "classical", "a red dog", "--json").out)["vector"]
    assert [word for word, _ in found["words"]] == ["a", "red", "dog"]
    assert sum(weight for _, weight in found["tokens"]) == pytest.approx(1)


def test_of_a_long_text_the_words_that_stand_out(run: Run, gpt2: Path) -> None:
    out = run("explain", "-m", gpt2, "--method", "classical", "dog " * 70 + "house", "a red house").out
    assert " … " in out and "Of the first text, the 60 words of 71" in out and out.count("dog") < 70


def test_the_first_pair_of_similar(run: Run, minilm: Path, tmp_path: Path) -> None:
    (tmp_path / "more.txt").write_text(f"A parcel is late.\n{BILLED[1]}\n")
    spec = ("similar", "-m", minilm, BILLED[0], "--against", tmp_path / "more.txt", "--explain")
    assert "billed · charged" in run(*spec, "--top", 1).out
    cut = json.loads(run(*spec, "--truncate-dim", 64, "--prompt", "so: ", "--json").out)
    (explained,) = cut["explained"].values()
    assert explained["cosine"] == pytest.approx(next(iter(cut["pairs"][0]["similarity"].values())), abs=1e-6)
    assert "explained" not in json.loads(run(*spec, "--threshold", 0.99, "--json").out)


def test_mistakes(run: Run, gpt2: Path, tmp_path: Path) -> None:
    three = run("explain", "-m", gpt2, "a", "b", "c")
    assert three.code == 2 and "3 texts" in three.last
    missing = run("explain", "-m", gpt2, "a", "b", "--html", tmp_path / "no" / "see.html")
    assert missing.code == 2 and "see.html" in missing.last
    blank = run("explain", "-m", gpt2, "--method", "classical", "a", "  ")
    assert blank.code == 2 and "text 1 is blank" in blank.last
    hostile = run("explain", "-m", gpt2, "--method", "classical", HOSTILE[:300], "b", "--html", tmp_path / "see.html")
    assert hostile.code == 0 and "\x1b" not in hostile.out and "\u202e" not in hostile.out
    assert len(pictures((tmp_path / "see.html").read_text("utf-8"))) == 2
