"""``analyse isotropy``: what is printed is what the function finds for each encoder."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.conftest import Run

from afterword import Encoder, classical, ditto
from afterword.papers.isotropy import isotropy, positive_pairs
from afterword.post import Whiten
from afterword.tasks.pairs import read_pairs


def test_methods_and_steps(run: Run, bert: Path, dev: Path, tmp_path: Path):
    words = ("analyse", "isotropy", "-m", bert, "--pairs", dev, "--method", "classical", "--method", "ditto:head=1-2")
    words = (*words, "--post", "none", "--post", "whiten:dimensions=4")
    ended = run(*words, "--plot", tmp_path / "a.svg")
    assert (ended.code, ended.err) == (0, "") and (tmp_path / "a.svg").exists()
    found = json.loads(run(*words, "--json").out)
    assert [f["name"] for f in found] == [
        "classical", "classical+whiten:dimensions=4", "ditto:head=1-2", "ditto:head=1-2+whiten:dimensions=4",
    ]  # fmt: skip
    pairs = read_pairs(dev)
    texts, positives = list(dict.fromkeys((*pairs.left, *pairs.right))), positive_pairs(pairs)
    plain = Encoder.load(bert, classical())
    whitened = replace(plain, method=ditto("1-2"), post=(Whiten(dimensions=4),)).fit(texts)
    for encoder, told in ((plain, found[0]), (whitened, found[3])):
        wanted = isotropy(encoder, texts, positives)
        assert (told["texts"], told["positives"]) == (len(texts), len(positives))
        for key in ("average_cosine", "uniformity", "alignment"):
            assert told[key] == pytest.approx(getattr(wanted, key), abs=1e-4), (told["name"], key)
    assert ended.out.splitlines()[2].split()[1:] == [
        f"{found[0][key]:.3f}" for key in ("average_cosine", "uniformity", "alignment")
    ]


def test_texts_of_two_models_and_what_is_wrong(run: Run, bert: Path, gpt2: Path, dev: Path, tmp_path: Path):
    (tmp_path / "texts.txt").write_text("the thin line\nin the tin\n")
    (tmp_path / "one.txt").write_text("the thin line\n")
    (tmp_path / "none.txt").write_text("")
    (tmp_path / "blank.csv").write_text("sentence1,sentence2,score\n,a cat,5\na dog,the dog,5\n")
    words = ("analyse", "isotropy", "-m", bert, "-i", tmp_path / "texts.txt", "--method", "classical")
    ended = run(*words, "-m", gpt2)
    assert [line.split()[:2] for line in ended.out.splitlines()[2:]] == [["bert", "classical"], ["gpt2", "classical"]]
    for more, said in (
        (("--plot", tmp_path / "a.png"), "pass --pairs"),
        (("--fit", dev), "has no effect"),
        (("-m", bert), "is repeated"),
    ):
        ended = run(*words, *more)
        assert ended.code == 2 and len(ended.err.splitlines()) == 1 and said in ended.err, ended.err
    start = ("analyse", "isotropy", "-m", bert, "--method", "classical")
    for more, said in (
        (("--pairs", dev, "--above", 9), "no pair has a score above 9, the highest is 5: lower --above 9"),
        (("--pairs", tmp_path / "blank.csv"), "blank.csv:2: 'sentence1' is empty"),
        (("-i", tmp_path / "one.txt"), "1 text has no cosine with another"),
        (("-i", tmp_path / "none.txt"), "none.txt"),
    ):
        ended = run(*start, *more)
        assert ended.code == 2 and len(ended.err.splitlines()) == 1 and said in ended.err, ended.err


def test_one_pair_and_a_models_own_method(run: Run, minilm: Path, tmp_path: Path):
    (tmp_path / "one.csv").write_text("sentence1,sentence2,score\nthe thin line,in the tin,5\n")
    ended = run("analyse", "isotropy", "-m", minilm, "--pairs", tmp_path / "one.csv")
    assert (ended.code, ended.err) == (0, "")
    head, _, row = ended.out.splitlines()
    assert head == "2 texts, 1 positive pair" and row.split()[0] == "classical" and len(row.split()) == 4
