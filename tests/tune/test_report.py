"""What is written: the encoder that won, fitted, and everything that was tried."""

import json
from dataclasses import replace

import numpy as np
import pytest
from tests.tune.made_up import load, made_up

from afterword import Encoder, classical
from afterword.tasks.pairs import ScoredPairs
from afterword.tasks.scores import cosines
from afterword.tune import HeadMap, score, tune
from afterword.tune.report import as_json, chosen, grid, page, save


def test_a_real_gain_is_found_and_saved(tmp_path):
    """Scores made of the cosines of one recipe: it wins, and the folder gives what was measured."""
    encoder, pairs = load("bert", tmp_path / "model"), made_up(200)
    target = Encoder(encoder.backbone, classical("last", states="layer:1"))
    vectors = target.encode([*pairs.left, *pairs.right])
    pairs = ScoredPairs(pairs.left, pairs.right, cosines(vectors[:200], vectors[200:]), pairs.subsets)
    tuned = tune(encoder, pairs)
    assert tuned.choice.improved and str(tuned.recipes[tuned.choice.chosen]) == "classical:pool=last,states=layer:1"
    assert score(tuned.chosen, pairs) == pytest.approx(1, abs=1e-9)
    save(tuned, tmp_path / "out", [{"name": "x", "pairs": 2, "chosen": 1.0, "default": 0.5}])
    again = Encoder.load(tmp_path / "out", dtype="float64")
    assert again.method == target.method and score(again, pairs) == pytest.approx(1, abs=1e-6)
    written = json.loads((tmp_path / "out" / "tune.json").read_text())
    assert written["tried"] == len(written["recipes"]) == len(tuned.recipes)
    assert written["chosen"]["method"] == "classical:pool=last,states=layer:1" and written["improved"]
    assert sorted(written["split"]["rank"] + written["split"]["confirm"]) == list(range(200))


def test_a_winner_with_a_fitted_step_is_saved_with_it(tmp_path):
    encoder, pairs = load("bert", tmp_path / "model"), made_up(100)
    tuned = tune(encoder, pairs)
    for post in ("centre", "whiten", "remove_top", "tfidf"):
        at = next(i for i, r in enumerate(tuned.recipes) if r.post.startswith(post) or r.spec == post)
        tuned.encoder_of(at).save(tmp_path / post)
        vectors = Encoder.load(tmp_path / post, dtype="float64").encode([*pairs.left, *pairs.right])
        assert cosines(vectors[:100], vectors[100:]) == pytest.approx(tuned.cosines[at], abs=2e-5)


def row(method: str, rank: float | None, post: str = "none", **more: object) -> dict[str, object]:
    return {"method": method, "post": post, "level": 1, "rank": rank, "confirm": rank, "confirm_95": [0.4, 0.6], **more}


def found(simplest: str, improved: bool) -> dict[str, object]:
    rows = [row("echo", 0.55, "centre"), row("classical", 0.5)]
    best = next(r for r in rows if r["method"] == simplest)
    return {
        "tried": 7, "pairs": 41, "seed": 5, "undefined": 2, "improved": improved, "best": rows, "leader": rows[0],
        "default": rows[1], "simplest": {**best, "gain_95": [-0.01, 0.1]}, "notes": ["echo: whiten: too few"],
        "tests": [{"name": "t", "pairs": 9, "chosen": 0.51, "default": float("nan")}], "recipes": rows,
        "split": {"rank": list(range(20))},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("simplest", "improved", "verdict"),
    [
        ("echo", True, "chosen: echo + centre, better than the default by -1.00 to 10.00 on the half that confirms"),
        ("echo", False, "chosen: classical, the default: echo + centre ranked first, but its gain of -1.00 to 10.00"),
        ("classical", False, "chosen: classical, the default: no recipe is better by more than noise"),
    ],
)
def test_the_verdict(simplest: str, improved: bool, verdict: str):
    text = chosen(found(simplest, improved))
    assert verdict in text and "7 recipes, 41 pairs: 20 rank, 21 confirm (seed 5)" in text
    assert " 55.00   55.00 ( 40.00  60.00)      1  echo + centre  <- " in text
    assert "2 recipes without a score on one half or both: their" in text
    assert "note: 1 recipe not tried: echo: whiten: too few" in text
    assert "    nan   51.00  t, 9 pairs" in text


def test_the_verdict_beside_a_default_without_a_score():
    for improved, verdict in (
        (
            True,
            "chosen: echo + centre, which scores -1.00 to 10.00 on the half that confirms; the default's vectors are",
        ),
        (False, "echo + centre ranked first, but its score of -1.00 to 10.00 on the half that confirms is not sure"),
    ):
        report = found("echo", improved)
        assert verdict in chosen({**report, "default": row("classical", None)})


def test_notes_that_differ_in_numbers_are_one_line():
    wide = [f"classical:states=layer:{i}: whiten: 120 vectors differ in {90 + i} directions only" for i in range(3)]
    text = chosen({**found("echo", True), "notes": [*wide, "echo: remove_top: too few"]})
    assert text.count("note: ") == 2 and "note: 3 recipes not tried: classical:states=layer:0: whiten: 120 " in text
    assert "layer:1" not in text and max(map(len, text.splitlines())) <= 110


def test_a_recipe_without_a_score_on_the_second_half_shows_no_interval():
    report = found("echo", False)
    lost = {**row("echo", 0.55, "centre"), "confirm": None, "confirm_95": [-0.1, 0.1]}
    text = chosen({**report, "best": [lost, report["best"][1]], "simplest": {**lost, "gain_95": [None, None]}})
    (line, other) = (line for line in text.splitlines() if "<-" in line)
    assert "nan" in line and "(" not in line and line.index("echo") == other.index("classical")
    assert "echo + centre ranked first, but has no score on the half that confirms" in text


def test_a_recipe_counts_as_undefined_on_either_half(tmp_path):
    tuned = tune(load("bert", tmp_path / "model"), made_up(60))
    before = as_json(tuned)["undefined"]
    at = [i for i, score in enumerate(tuned.choice.rank + tuned.choice.confirm) if np.isfinite(score)][-2:]
    choice = replace(tuned.choice, rank=tuned.choice.rank.copy(), confirm=tuned.choice.confirm.copy())
    choice.rank[at[0]], choice.confirm[at] = np.nan, np.nan
    assert as_json(replace(tuned, choice=choice))["undefined"] == before + 2


def test_a_map_with_and_without_labels(tmp_path):
    correlation, scores = np.array([[0.1, 0.3], [0.2, np.nan]]), np.array([[0.6, 0.5], [0.4, 0.3]])
    text = grid(HeadMap(correlation, scores))
    assert text.splitlines()[2].split() == ["1", "60.00", "50.00"]
    assert "best head: 1-1, 60.00; chosen without labels: 1-2, whose diagonal" in text and "place 2 of 4" in text
    text = page({}, HeadMap(correlation), tmp_path)
    assert text.splitlines()[3].split() == ["2", "20.00", "nan"] and "chosen: head 1-2, whose" in text
    assert text.endswith(f"saved in {tmp_path}")
