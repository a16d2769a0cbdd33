"""``analyse attention``: what is printed is what the functions find, as numbers and as shades."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import Run

VERB = ("analyse", "attention", "-m")


def test_the_numbers_of_a_head(run: Run, bert: Path, tmp_path: Path):
    words = (*VERB, bert, "a cat sat", "--head", "1-2")  # and no word of methods on stderr
    ended = run(*words, "--plot", tmp_path / "a.svg")
    assert (ended.code, ended.err) == (0, "") and "\x1b" not in ended.out
    assert (tmp_path / "a.svg").stat().st_size > 1000
    (found,) = json.loads(run(*words, "--json").out)
    (matrix,) = found["matrices"]
    lines = ended.out.splitlines()
    assert lines[0] == f"{bert.name}: head 1-2" and found["forward"] is None and matrix["weights"] is None
    printed = [line.split() for line in lines[3:]]
    assert [row[1] for row in printed] == matrix["tokens"]
    assert [row[2:] for row in printed] == [[f"{100 * v:.0f}" if v else "." for v in row] for row in matrix["matrix"]]
    np.testing.assert_allclose(np.sum(matrix["matrix"], 1), 1, atol=1e-5)


def test_a_words_row_and_who_won(run: Run, llama: Path, tmp_path: Path):
    (tmp_path / "a.txt").write_text("one\na bank b\n")
    words = (*VERB, llama, "-i", tmp_path / "a.txt", "--row", 2, "--method", "reba", "--token", "b b")
    assert run(*words).err == "error: 'b b' (occurrence 0, from 0) is not in the text 'a bank b'\n"
    ended = run(*words[:-1], "n")
    (found,) = json.loads(run(*words[:-1], "n", "--json").out)
    (matrix,), (row,) = found["matrices"], found["rows"]
    assert matrix["tokens"][row] == "n" and matrix["name"] == "backward attention"
    lines = [line.split() for line in ended.out.splitlines()[1:]]
    assert lines[0] == ["n", "won", "by"]
    assert [line[-2] for line in lines[1:]] == [f"{v:.3f}" for v in matrix["matrix"][row]]
    won = [f"{a}-{b}" if a else "-" for a, b in zip(matrix["layer"][row], matrix["head"][row], strict=True)]
    assert [line[-1] for line in lines[1:]] == won


def test_the_share_that_looks_forward(run: Run, llama: Path, tmp_path: Path):
    (tmp_path / "a.txt").write_text("one\na bank b\n")
    words = (*VERB, llama, "-i", tmp_path / "a.txt", "--method", "bellm:last=1", "--method", "classical")
    ended = run(*words)
    found = json.loads(run(*words, "--json").out)
    assert (ended.code, ended.err) == (0, "") and [f["matrices"] for f in found] == [[], []]
    shares = [[f"{100 * v:.1f}" for v in f["forward"]["layers"]] for f in found]
    printed = [re.findall(r"(\d+\.\d) %", line) for line in ended.out.splitlines()[2:]]
    assert printed == [[*share, f"{100 * f['forward']['even']:.1f}"] for share, f in zip(shares, found, strict=True)]
    assert "2 texts" in ended.out and ended.out.splitlines()[2].count("*") == 1 and shares[1] == ["0.0"] * 3


WRONG = [
    (
        ("LLAMA", "a b", "--method", "classical", "--head", "9-1"),
        "head 9-1 (layer 8, head 0 from 0) does not exist: the model has 3 layers of 4",
    ),
    (("LLAMA", "a b", "--method", "classical", "--layer", "4"), "layer 4 does not exist: the model has layers 1 to 3"),
    (("LLAMA", "a b", "--head", "x"), "head='x'"),
    (("LLAMA", "a b", "--method", "classical"), "reads no attention: pass --head or --layer"),
    (("LLAMA", "a b", "-i", "DEV", "--head", "1-1"), "give texts, or a file with --input, not both"),
    (
        ("LLAMA", "-i", "DEV", "--field", "sentence1", "--head", "1-1"),
        "there are 30 texts, and a matrix is that of one",
    ),
    (("LLAMA", "-i", "DEV", "--field", "sentence1", "--row", "31"), "31: the input has 30 texts"),
    (("LLAMA", "a b", "--method", "classical", "--head", "1-1", "--max-length", "2"), "fit into --max-length 2"),
    (("LLAMA", "a b", "--method", "bellm:last=1", "--plot", "a.svg"), "there is no matrix to draw"),
    (("LLAMA", "a b", "--dark"), "needs --plot"),
    (("no-model",), "stdin holds no text: pass TEXT, or a file with --input"),
    (("no-model", "-i", "EMPTY"), "empty.txt holds no text: pass TEXT"),
]


@pytest.mark.parametrize(("words", "said"), WRONG, ids=[said[:24] for _, said in WRONG])
def test_what_is_wrong_is_one_line(
    run: Run, llama: Path, dev: Path, tmp_path: Path, words: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").touch()
    known = {"LLAMA": llama, "DEV": dev, "EMPTY": tmp_path / "empty.txt"}
    ended = run(*VERB, *(known.get(word, word) for word in words))
    assert ended.code == 2 and len(ended.err.splitlines()) == 1 and said in ended.err, ended.err
    assert ended.out == "" and not (tmp_path / "a.svg").exists()
