"""``afterword analyse``: what is printed is what the functions find, and what cannot be is told in one line."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import Run
from tests.tiny import tiny

from afterword import Encoder, bellm, classical
from afterword.analysis.dependency import dependency
from afterword.analysis.turning import degradation, read_pairs
from afterword.cli.model import read_methods


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny("llama", tmp_path_factory.mktemp("llama"), tie_word_embeddings=True)


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    rows = [
        {"sentence1": f"a {i}", "sentence2": "b" * (i % 7 + 1), "score": int(random.integers(0, 6))} for i in range(30)
    ]
    (tmp_path / "dev.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path / "dev.jsonl"


def test_a_turning_point_is_printed_drawn_and_can_be_used(run: Run, llama: Path, dev: Path, tmp_path: Path):
    words = ("analyse", "turning-point", "-m", llama, "--dev", dev, "--pool", "mean")
    ended = run(*words, "--plot", tmp_path / "a.svg")
    assert (ended.code, ended.err) == (0, "")
    methods = {"mean, bellm template": bellm("auto"), "mean, no template": bellm("auto", template=None)}
    curves = degradation(Encoder.load(llama, classical()), read_pairs(dev), methods)
    lines = ended.out.splitlines()
    for line, told, curve in zip(lines[2:4], lines[5:7], curves, strict=True):
        assert line.startswith(curve.name) and curve.turning is not None
        cells = line.removeprefix(curve.name).split()
        assert [float(c.rstrip("*")) for c in cells] == [round(100 * s, 2) for s in curve.scores]
        assert [c.endswith("*") for c in cells].index(True) == curve.turning.kept
        (method,) = read_methods([told.split("--method ")[1].strip("'")]).values()
        template = "bellm" if "bellm t" in curve.name else None
        assert method == bellm(curve.turning.last, template=template)
    assert "layers kept" in (tmp_path / "a.svg").read_text()
    found = json.loads(run(*words, "--json").out)
    assert found["layers"] == 3 and [c["scores"] for c in found["curves"]] == [list(c.scores) for c in curves]
    assert found["curves"][0]["method"] == f"bellm:last={curves[0].turning.last},pool=mean,template=bellm"


def test_a_template_of_ones_own_and_a_curve_without_a_point(run: Run, llama: Path, tmp_path: Path):
    (tmp_path / "dev.csv").write_text("sentence1,sentence2,score\n" + "a,b,1\n" * 30)
    ended = run(
        "analyse", "turning-point", "-m", llama, "--dev", tmp_path / "dev.csv", "--template", 'one, "{text}"',
        "--pool", "last",
    )  # fmt: skip
    assert ended.code == 0
    assert ended.out.splitlines()[-1].endswith("all 30 pairs have the score 1: a correlation needs different ones")


def test_dependency_of_two_methods(run: Run, llama: Path, tmp_path: Path):
    (tmp_path / "texts.txt").write_text("the thin line\nin the tin\n")
    words = ("analyse", "dependency", "-m", llama, "-i", tmp_path / "texts.txt", "--method", "classical")
    spec = (*words, "--method", "bellm:template=none")
    ended = run(*spec, "--plot", tmp_path / "a.png")
    assert (ended.code, ended.err) == (0, "") and (tmp_path / "a.png").stat().st_size > 5000
    wanted = dependency(Encoder.load(llama, bellm(template=None)), ["the thin line", "in the tin"])
    name, pivot, mean = ended.out.splitlines()[2].split()[:3]
    assert (name, pivot, mean) == ("bellm:template=none", "last", f"{wanted.mean:.3f}")
    found = json.loads(run(*spec, "--json").out)
    assert [f["name"] for f in found] == ["classical", "bellm:template=none"]
    assert found[1]["values"] == wanted.values.tolist()


def test_dependency_of_two_models(run: Run, llama: Path, bert: Path, dev: Path):
    ended = run("analyse", "dependency", "-m", llama, "-m", bert, "--pairs", dev, "--method", "classical", "--json")
    found = json.loads(ended.out)
    assert [(f["name"], f["pivot"]) for f in found] == [(llama.name, "last"), ("bert", "first")]
    assert len(found[0]["values"]) == 30 + 7  # different texts


def test_words(run: Run, llama: Path, tmp_path: Path):
    (tmp_path / "texts.txt").write_text("the thin line\nin the tin\n")
    (tmp_path / "counts.txt").write_text("the 10\n")
    words = ("analyse", "words", "-m", llama, "-i", tmp_path / "texts.txt", "--frequencies", tmp_path / "counts.txt")
    ended = run(*words)
    assert (ended.code, ended.err) == (0, "")
    found = json.loads(run(*words, "--json").out)[0]
    lines = ended.out.splitlines()
    assert lines[0].startswith(f"{llama.name}: {found['share']:.2%} of 2 texts have a word that is not among the 100")
    assert [line.split()[0] for line in lines[2:]] == [w or "-" for w in found["words"]]


WRONG = [
    (("turning-point", "-m", "BERT", "--dev", "DEV"), "bert is bidirectional already"),
    (("turning-point", "-m", "LLAMA", "--dev", "none.jsonl"), "none.jsonl does not exist"),
    (("turning-point", "-m", "LLAMA", "--dev", "DEV", "--plot", "a.gif"), "a.gif is no figure"),
    (("turning-point", "-m", "LLAMA", "--dev", "DEV", "--pool", "max"), "pool='max'"),
    (("turning-point", "-m", "LLAMA", "--dev", "DEV", "--template", "x"), "no template 'x'"),
    (
        ("words", "-m", "BERT", "--pairs", "DEV", "--frequencies", "DEV", "--method", "classical"),
        "bert is bidirectional: it has no language-model",
    ),
    (("words", "-m", "LLAMA", "--pairs", "DEV", "--frequencies", "no.txt"), "no.txt does not exist"),
    (("dependency", "-m", "LLAMA", "--pairs", "DEV", "-i", "DEV"), "give --input or --pairs, not both"),
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


def test_impact(run: Run, bert: Path, dev: Path, tmp_path: Path):
    words = ("analyse", "impact", "-m", bert, "--pairs", dev, "--first", 3, "--heads", 2)
    ended = run(*words, "--plot", tmp_path / "a.svg")
    assert (ended.code, ended.err) == (0, "")
    found = json.loads(run(*words, "--json").out)
    lines = [line.split() for line in ended.out.splitlines()[2:]]
    assert [line[:2] for line in lines] == [["impact", "matrix"], *(["head", f["name"]] for f in found[1:])]
    assert [line[-1] for line in lines] == [f"{100 * f['spearman']:.2f}" for f in found] and len(found) == 3
    assert "masked as well" in (tmp_path / "a.svg").read_text()
    (tmp_path / "corpus.txt").write_text("a b\nb\n")
    counted = json.loads(run(*words, "--json", "--corpus", tmp_path / "corpus.txt").out)
    assert counted[0]["pearson"] != found[0]["pearson"]
