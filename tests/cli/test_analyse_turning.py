"""``analyse turning-point``: what is printed is what the function finds, and can be used."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import Run
from tests.papers.drawn import drawn

from afterword import Encoder, bellm, classical
from afterword.cli.model import read_methods
from afterword.papers.turning import degradation, read_pairs


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
