"""Panels of attention matrices."""

from pathlib import Path

import numpy as np
from tests.plots.conftest import drawn

from afterword.analysis.attention import AttentionMatrix
from afterword.plots.attention import draw_attention
from afterword.plots.colours import DARK

TOKENS = ("<s>", "银", "$b")


def backward() -> AttentionMatrix:
    layers, heads = np.triu(np.full((3, 3), 2)), np.triu(np.arange(1, 10).reshape(3, 3))
    layers[0, 0] = 1
    return AttentionMatrix("backward attention", TOKENS, np.triu(np.full((3, 3), 0.5)), np.ones(3) / 3, layers, heads)


def test_the_heads_that_won_and_the_weights(tmp_path: Path):
    draw_attention([("mini", backward())], tmp_path / "a.svg", "银 $b")
    texts = drawn(tmp_path / "a.svg")
    assert {"1-1", "2-2", "2-3", "2-5", "2-6", "2-9"} == {t for t in texts if len(t) == 3 and t[1] == "-"}
    assert (
        texts.count("银") == 2 == texts.count("$b")
        and "weight" in texts
        and "takes in" in texts
        and "looks at" not in texts
    )
    whole = " ".join(texts)
    assert "Backward attention: layer 2 has the strongest weight of 83% of the pairs" in whole
    assert "mini; “银 $b”, 3 tokens" in whole and "takes in those that look back at it" in whole


def test_several_matrices_share_a_scale(tmp_path: Path):
    plain = AttentionMatrix("head 1-2", TOKENS, np.eye(3))
    draw_attention([("mini", plain), ("mini", backward())] * 2, tmp_path / "a.svg", page=DARK)
    texts = drawn(tmp_path / "a.svg")
    assert texts.count("head 1-2") == 2 == texts.count("backward attention") and "0.25" in texts
    assert (
        texts.count("looks at") == 2 == texts.count("takes in")
        and texts.count("attention weight") == 1
        and "Plain and backward attention" in texts
    )


def test_one_head_names_what_looks_at_itself(tmp_path: Path):
    draw_attention([("mini", AttentionMatrix("head 1-2", TOKENS, np.diag([0.1, 0.3, 0.2])))], tmp_path / "a.svg")
    assert "look most at themselves are 银, $b, <s>" in " ".join(drawn(tmp_path / "a.svg"))
