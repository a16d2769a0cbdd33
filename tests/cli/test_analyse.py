"""``afterword analyse``: what cannot be is told in one line."""

from pathlib import Path

import pytest
from tests.cli.conftest import Run

WRONG = [
    (("turning-point", "-m", "BERT", "--dev", "DEV"), "bert is bidirectional already"),
    (("turning-point", "-m", "LLAMA", "--dev", "none.jsonl"), "none.jsonl does not exist"),
    (("turning-point", "-m", "LLAMA", "--dev", "DEV", "--plot", "a.gif"), "a.gif"),
    (("turning-point", "-m", "LLAMA", "--dev", "DEV", "--pool", "max"), "pool='max'"),
    (("turning-point", "-m", "LLAMA", "--dev", "DEV", "--template", "x"), "no template 'x'"),
    (
        ("words", "-m", "BERT", "--pairs", "DEV", "--frequencies", "DEV", "--method", "classical"),
        "bert is bidirectional: it has no language-model",
    ),
    (("words", "-m", "LLAMA", "--pairs", "DEV", "--frequencies", "no.txt"), "no.txt does not exist"),
    (("dependency", "-m", "LLAMA", "--pairs", "DEV", "-i", "DEV"), "pass --input or --pairs, not both"),
    (("impact", "-m", "LLAMA", "--pairs", "DEV"), "llama has no [MASK]"),
]


@pytest.mark.parametrize(("words", "said"), WRONG, ids=[said[:24] for _, said in WRONG])
def test_what_is_wrong_is_one_line(run: Run, llama: Path, bert: Path, dev: Path, words: tuple[str, ...], said: str):
    known = {"BERT": bert, "LLAMA": llama, "DEV": dev}
    ended = run("analyse", *(known.get(word, word) for word in words))
    assert ended.code == 2 and len(ended.err.splitlines()) == 1 and said in ended.err, ended.err


def test_an_unresolved_number_of_layers_is_one_line(run: Run, llama: Path):
    ended = run("embed", "-m", llama, "--method", "bellm:last=auto", "a")
    assert ended.code == 2 and len(ended.err.splitlines()) == 1
    assert "bellm(last='auto') needs pairs" in ended.err and "afterword analyse turning-point" in ended.err
