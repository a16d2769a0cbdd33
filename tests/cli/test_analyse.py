"""``afterword analyse``: what is printed is what the functions find, and what is wrong is said in one line."""

import gzip
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import Run
from tests.papers.drawn import drawn
from tests.tiny import tiny

from afterword import Encoder, bellm, classical, ditto, prompt
from afterword.cli import progress
from afterword.cli.model import read_methods
from afterword.papers.dependency import dependency
from afterword.papers.isotropy import isotropy, positive_pairs
from afterword.papers.turning import degradation
from afterword.post import Whiten
from afterword.tasks.pairs import read_pairs
from afterword.tune import score

WRONG = [
    ("turning-point -m BERT --dev DEV", "bert is bidirectional already"),
    ("turning-point -m LLAMA --dev none.jsonl", "none.jsonl does not exist"),
    ("turning-point -m LLAMA --dev DEV --plot a.gif", "a.gif"),
    ("turning-point -m LLAMA --dev DEV --pool max", "--pool max"),
    ("turning-point -m LLAMA --dev DEV --template x", "no template 'x'"),
    (
        "words -m BERT --pairs DEV --frequencies DEV --method classical",
        "bert is bidirectional: it has no language-model",
    ),
    ("words -m LLAMA --pairs DEV --frequencies no.txt", "no.txt does not exist"),
    ("dependency -m LLAMA --pairs DEV -i DEV", "pass --input or --pairs, not both"),
    ("impact -m LLAMA --pairs DEV", "llama has no [MASK]"),
    ("gains --pairs DEV -m LLAMA --method classical", "1 x --model and 1 x --method: pass two of one of them"),
    ("gains --pairs DEV -m LLAMA", "1 x --model and 0 x --method"),
    ("gains --pairs DEV -m LLAMA -m LLAMA --method echo", "both encoders are the same"),
    ("gains --pairs DEV -m LLAMA --method echo --method classical --method reba", "3 x --method"),
    ("gains --pairs DEV -m LLAMA --method echo --method classical --pairs none.jsonl", "none.jsonl does not exist"),
    (
        ("attention", "-m", "LLAMA", "a b", "--method", "classical", "--head", "9-1"),
        "head 9-1 (layer 8, head 0 from 0) does not exist: the model has 3 layers of 4",
    ),
    (
        ("attention", "-m", "LLAMA", "a b", "--method", "classical", "--layer", "4"),
        "layer 4 does not exist: the model has layers 1 to 3",
    ),
    (("attention", "-m", "LLAMA", "a b", "--head", "x"), "--head x"),
    (("attention", "-m", "LLAMA", "a b", "--method", "classical"), "reads no attention: pass --head or --layer"),
    (("attention", "-m", "LLAMA", "a b", "-i", "DEV", "--head", "1-1"), "give texts, or a file with --input, not both"),
    ("attention -m LLAMA -i DEV --field sentence1 --head 1-1", "there are 30 texts, and a matrix is that of one"),
    ("attention -m LLAMA -i DEV --field sentence1 --row 31", "31: the input has 30 texts"),
    (
        ("attention", "-m", "LLAMA", "a b", "--method", "classical", "--head", "1-1", "--max-length", "2"),
        "fit into --max-length 2",
    ),
    (("attention", "-m", "LLAMA", "a b", "--method", "bellm:last=1", "--plot", "a.svg"), "there is no matrix to draw"),
    (("attention", "-m", "LLAMA", "a b", "--dark"), "needs --plot"),
    ("attention -m no-model", "stdin holds no text: pass TEXT, or a file with --input"),
    ("attention -m no-model -i EMPTY", "empty.txt holds no text: pass TEXT"),
]


@pytest.mark.parametrize(("words", "said"), WRONG, ids=[said[:24] for _, said in WRONG])
def test_what_is_wrong_is_one_line(
    run: Run, llama: Path, bert: Path, dev: Path, tmp_path: Path, words: str | tuple[str, ...], said: str,
    monkeypatch: pytest.MonkeyPatch,
):  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").touch()
    known = {"BERT": bert, "LLAMA": llama, "DEV": dev, "EMPTY": tmp_path / "empty.txt"}
    ended = run("analyse", *(known.get(word, word) for word in (words.split() if isinstance(words, str) else words)))
    assert ended.code == 2 and len(ended.err.splitlines()) == 1 and said in ended.err, ended.err
    assert ended.out == "" and not (tmp_path / "a.svg").exists()


def test_an_unresolved_number_of_layers_is_one_line(run: Run, llama: Path):
    ended = run("embed", "-m", llama, "--method", "bellm:last=auto", "a")
    assert ended.code == 2 and len(ended.err.splitlines()) == 1
    assert "bellm(last='auto') needs pairs" in ended.err and "afterword analyse turning-point" in ended.err


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
    shown = drawn(tmp_path / "a.svg")
    assert {"layers kept", *methods} <= set(shown) and "30 pairs, dev" in " ".join(shown)
    found = json.loads(run(*words, "--json").out)
    assert found["layers"] == 3 and [c["scores"] for c in found["curves"]] == [list(c.scores) for c in curves]
    assert found["curves"][0]["method"] == f"bellm:last={curves[0].turning.last},pool=mean,template=bellm"


def test_a_template_of_ones_own_and_a_curve_without_a_point(run: Run, llama: Path, tmp_path: Path):
    (tmp_path / "dev.csv").write_text("sentence1,sentence2,score\n" + "a,a,1\nb,b,2\n" * 15)
    ended = run(
        "analyse", "turning-point", "-m", llama, "--dev", tmp_path / "dev.csv", "--template", 'one, "{text}"',
        "--pool", "last",
    )  # fmt: skip
    assert ended.code == 0
    assert "all pairs are equally similar" in ended.out.splitlines()[-1]
    (tmp_path / "flat.csv").write_text("sentence1,sentence2,score\n" + "a,b,1\n" * 30)
    ended = run(
        "analyse", "turning-point", "-m", tmp_path, "--dev", tmp_path / "dev.csv", "--dev", tmp_path / "flat.csv"
    )
    assert (ended.code, ended.out) == (2, "")  # before the model is looked for
    assert ended.err == "error: flat: all 30 pairs have the score 1: a correlation needs different ones\n"


def test_models_and_files_are_in_one_table_and_one_figure(run: Run, llama: Path, gpt2: Path, dev: Path, tmp_path: Path):
    other = tmp_path / "other.jsonl"
    other.write_text("\n".join(dev.read_text().splitlines()[::-1] * 2))
    words = ("analyse", "turning-point", "-m", llama, "-m", gpt2, "--dev", dev, "--dev", other, "--pool", "mean")
    ended = run(*words, "--template", "none", "--plot", tmp_path / "a.svg", "--dark")
    assert (ended.code, ended.err) == (0, "")
    head, _, *rows = ended.out.splitlines()[:4]
    assert head.startswith("Spearman x 100 of 90 pairs in 2 sets (dev, other; --json has the scores of each)")
    assert [row.split()[0] for row in rows] == [llama.name, gpt2.name]
    assert {llama.name, gpt2.name, "layers kept"} <= set(drawn(tmp_path / "a-dark.svg"))
    found = json.loads(run(*words, "--template", "none", "--json").out)
    assert [(f["model"], f["layers"]) for f in found] == [
        (str(llama), 3),
        (str(gpt2), len(found[1]["curves"][0]["scores"]) - 1),
    ]
    for model in found:
        (curve,) = model["curves"]
        assert list(curve["sets"]) == ["dev", "other"] and len(curve["band"]) == len(curve["scores"])
        means = np.mean(list(curve["sets"].values()), axis=0)
        assert curve["scores"] == pytest.approx(means) and curve["pairs"] == 90


def test_what_is_given_twice_is_one_line(run: Run, llama: Path, dev: Path):
    for words in (("-m", llama, "-m", llama, "--dev", dev), ("-m", llama, "--dev", dev, "--dev", dev)):
        ended = run("analyse", "turning-point", *words)
        assert ended.code == 2 and len(ended.err.splitlines()) == 1 and "is repeated" in ended.err


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


def test_no_weights_are_read(run: Run, oracle: Path, tmp_path: Path):
    (tmp_path / "texts.txt").write_text("the thin line\nin the tin\n")
    for kind in ("bert", "roberta"):
        source, folder = oracle / "models" / kind, tmp_path / kind
        shutil.copytree(source, folder)
        (folder / "model.safetensors").write_bytes(b"no weights")
        words = ("analyse", "lengths", "-m", folder, "-i", tmp_path / "texts.txt")
        ended = run(*words, "--plot", tmp_path / "a.svg")
        assert (ended.code, ended.err) == (0, "") and (tmp_path / "a.svg").exists()
        (found,) = json.loads(run(*words, "--json").out)
        encoder = Encoder.load(source, classical())
        assert found["limit"] == encoder.max_length  # RoBERTa's positions begin at 2
        assert found["tokens"] == [len(encoder.weights(text)[0]) for text in ("the thin line", "in the tin")]
        assert ended.out.splitlines()[1].split()[:2] == [kind, "2"]


def test_a_saved_method_counts(run: Run, bert: Path, tmp_path: Path):
    Encoder.load(bert, prompt("promptbert"), max_length=20).save(tmp_path / "mine")
    (tmp_path / "texts.txt").write_text("the thin line\n")
    words = ("analyse", "lengths", "-m", tmp_path / "mine", "-i", tmp_path / "texts.txt", "--json")
    (found,) = json.loads(run(*words).out)
    (plain,) = json.loads(run(*words, "--method", "classical", "--max-length", 3).out)
    assert found["limit"] == 20 and found["tokens"][0] > plain["tokens"][0] and plain["over"] == 1


def test_tasks_and_what_is_wrong(run: Run, bert: Path, dev: Path, tmp_path: Path):
    found = json.loads(run("analyse", "lengths", "-m", bert, "--tasks", dev, "--json").out)
    assert [(f["name"], f["texts"]) for f in found] == [("dev", 37)]
    (tmp_path / "none.txt").write_text("")
    for words, said in (
        (("-i", tmp_path / "none.txt"), "none.txt"),
        (("-i", dev, "--tasks", dev), "pass a file or --tasks, not both"),
        (("--tasks", "STSB", "--data", tmp_path), "stsb.test"),
        (("--tasks", "STSB"), "--data"),
    ):
        ended = run("analyse", "lengths", "-m", bert, *words)
        assert ended.code == 2 and len(ended.err.splitlines()) == 1 and said in ended.err, ended.err


def test_gains(run: Run, llama: Path, dev: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "200")  # the whole table beside each other
    words = ("analyse", "gains", "-m", llama, "--method", "classical", "--method", "bellm:last=1", "--pairs", dev)
    ended = run(*words)
    assert (ended.code, ended.err) == (0, "")
    found = json.loads(run(*words, "--json").out)
    lines = ended.out.splitlines()
    assert lines[:2] == [f"first  {llama} classical", f"second {llama} bellm:last=1"]
    rows = [line.split() for line in lines[4:-1]]
    assert [row[0] for row in rows] == [f["by"] for f in found]
    whole = found[0]
    low, high = (100 * end for end in whole["interval"])
    mark = "*" if low > 0 or high < 0 else ""
    assert rows[0] == [
        "all", "all", "pairs", "30", f"{100 * whole['first']:.2f}", f"{100 * whole['second']:.2f}",
        f"{100 * whole['gain']:+.2f}{mark}", f"{low:+.2f}", "to", f"{high:+.2f}", "-", "-",
        f"{100 * whole['forward']:.0f}", "%",
    ]  # fmt: skip
    known = [end for f in found for end in (f["interval"][0], f["others_interval"][0]) if end is not None]
    assert f"of these {len(known)}, " in lines[-1]


ATTENTION = ("analyse", "attention", "-m")


def test_the_numbers_of_a_head(run: Run, bert: Path, tmp_path: Path):
    words = (*ATTENTION, bert, "a cat sat", "--head", "1-2")  # and no word of methods on stderr
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
    words = (*ATTENTION, llama, "-i", tmp_path / "a.txt", "--row", 2, "--method", "reba", "--token", "b b")
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
    words = (*ATTENTION, llama, "-i", tmp_path / "a.txt", "--method", "bellm:last=1", "--method", "classical")
    ended = run(*words)
    found = json.loads(run(*words, "--json").out)
    assert (ended.code, ended.err) == (0, "") and [f["matrices"] for f in found] == [[], []]
    shares = [[f"{100 * v:.1f}" for v in f["forward"]["layers"]] for f in found]
    printed = [re.findall(r"(\d+\.\d) %", line) for line in ended.out.splitlines()[2:]]
    assert printed == [[*share, f"{100 * f['forward']['even']:.1f}"] for share, f in zip(shares, found, strict=True)]
    assert "2 texts" in ended.out and ended.out.splitlines()[2].count("*") == 1 and shares[1] == ["0.0"] * 3


def test_impact(run: Run, bert: Path, dev: Path, tmp_path: Path):
    words = ("analyse", "impact", "-m", bert, "--pairs", dev, "--first", 3, "--heads", 2)
    ended = run(*words, "--plot", tmp_path / "a.svg")
    assert (ended.code, ended.err) == (0, "")
    found = json.loads(run(*words, "--json").out)
    lines = [line.split() for line in ended.out.splitlines()[2:]]
    assert [line[:2] for line in lines[:3]] == [["impact", "matrix"], *(["head", f["name"]] for f in found[1:])]
    assert [line[-1] for line in lines[:3]] == [f"{100 * f['spearman']:.2f}" for f in found] and len(found) == 3
    first = found[0]["texts_measured"][0]
    assert np.array(first["matrix"]).shape == (len(first["tokens"]),) * 2 and len(first["tfidf"]) > 0
    shown = " ".join(drawn(tmp_path / "a.svg"))
    assert "bert: impact matrix" in shown and "in: a 0" in shown and "masked token" in shown
    (tmp_path / "corpus.jsonl").write_text('{"text": "a b"}\n{"text": "b"}\n')
    counted = json.loads(run(*words, "--json", "--corpus", tmp_path / "corpus.jsonl").out)
    assert counted[0]["texts_measured"][0]["tfidf"] != first["tfidf"]


def test_a_long_run_says_how_far_it_is(run: Run, bert: Path, dev: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(progress, "EVERY", 0.0)
    ended = run("analyse", "impact", "-m", bert, "--pairs", dev, "--first", 3, "--heads", 0)
    assert ended.code == 0
    assert [line.partition(", left ")[0] for line in ended.err.splitlines()] == [
        f"impact matrices: {done} of 3 texts" for done in (1, 2)
    ]


def test_two_models_and_a_single_text_of_a_packed_file(run: Run, bert: Path, tmp_path: Path):
    shutil.copytree(bert, tmp_path / "other")
    with gzip.open(tmp_path / "texts.jsonl.gz", "wt") as file:
        file.write('{"text": "the thin line"}\n')
    words = ("analyse", "impact", "-m", bert, "-m", tmp_path / "other", "-i", tmp_path / "texts.jsonl.gz", "--heads", 0)
    ended = run(*words, "--plot", tmp_path / "a.svg")
    assert {path.name for path in tmp_path.glob("a*.svg")} == {"a-bert.svg", "a-other.svg"}
    lines = ended.out.splitlines()
    assert lines[0].startswith("bert: no correlation with TF-IDF: 1 of 1 texts left out") and len(lines) == 2
    assert lines[1].startswith("other: ") and "nan" not in ended.out
    found = json.loads(run(*words, "--json").out)
    assert [(f["model"], f["pearson"], f["undefined"]) for f in found] == [("bert", None, 1), ("other", None, 1)]


def test_texts_without_a_correlation_are_refused(run: Run, bert: Path, tmp_path: Path):
    (tmp_path / "same.txt").write_text("the thin line\n" * 5)
    (tmp_path / "two.txt").write_text("the thin line\nthe\n")
    for verb in ("impact", "heads"):
        ended = run("analyse", verb, "-m", bert, "-i", tmp_path / "same.txt")
        assert (ended.code, ended.out) == (2, "") and len(ended.err.splitlines()) == 1
        assert "one TF-IDF in 5 texts" in ended.err and "pass --corpus" in ended.err
        ended = run("analyse", verb, "-m", bert, "-i", tmp_path / "two.txt")
        assert ended.code == 0 and "mean over 1 text " in ended.out, ended.out


def test_heads_by_score(run: Run, bert: Path, dev: Path, tmp_path: Path):
    words = ("analyse", "heads", "-m", bert, "--dev", dev, "--test", dev, "--test", dev)
    ended = run(*words, "--top", 2, "--head", "2-3", "--plot", tmp_path / "a.svg")
    assert (ended.code, ended.err) == (0, "") and "is first by" in (tmp_path / "a.svg").read_text()
    found = json.loads(run(*words, "--json").out)
    assert len(found) == 16 and [f["dev"] for f in found] == sorted((f["dev"] for f in found), reverse=True)
    best = found[0]
    wanted = score(Encoder.load(bert, ditto(best["name"])), read_pairs(dev))
    assert best["dev"] == pytest.approx(wanted, abs=1e-3) and best["test"] == pytest.approx(best["dev"])
    lines = [line.split() for line in ended.out.splitlines()[3:]]
    assert [line[0] for line in lines[:2]] == [f["name"] for f in found[:2]] and lines[-1][0] == "2-3"
    assert lines[0][2:] == [f"{100 * best[key]:.2f}" for key in ("pearson", "spearman", "dev", "test")]


def test_heads_without_labels_and_what_is_wrong(run: Run, bert: Path, dev: Path, tmp_path: Path):
    (tmp_path / "texts.txt").write_text("the thin line\nin the tin\n")
    (tmp_path / "flat.csv").write_text("sentence1,sentence2,score\na,b,1\nb,c,1\n")
    (tmp_path / "one.csv").write_text("sentence1,sentence2,score\na,b,1\n")
    texts = ("analyse", "heads", "-m", bert, "-i", tmp_path / "texts.txt")
    found = json.loads(run(*texts, "--json").out)
    assert [f["pearson"] for f in found] == sorted((f["pearson"] for f in found), reverse=True)
    mamba = tiny("mamba", tmp_path / "mamba")
    for words, said in (
        ((*texts, "--head", "9-1"), "head 9-1 (layer 8, head 0 from 0) does not exist: the model has 4 layers of 4"),
        ((*texts, "--head", "x"), "write layer-head, both from 1"),
        (("analyse", "heads", "-m", bert, "--dev", tmp_path / "flat.csv"), "all 2 pairs have the score 1"),
        (("analyse", "heads", "-m", bert, "--dev", tmp_path / "one.csv"), "1 pair: a correlation needs at least 2"),
        (("analyse", "heads", "-m", mamba, "--dev", dev), "attention"),
    ):
        ended = run(*words)
        assert ended.code == 2 and len(ended.err.splitlines()) == 1 and said in ended.err, ended.err
