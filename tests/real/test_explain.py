"""Scores of two models that people use, divided over words: they add up, and what stands out makes sense."""

from __future__ import annotations

from pathlib import Path

import pytest

from afterword import Encoder, bellm, classical, echo, prompt, reba
from afterword.backbone.named_models import NAMED, installed
from afterword.post import Centre, Truncate, Whiten

pytestmark = pytest.mark.real
PAIRS = [
    ("they billed me too much", "I was charged twice for the same purchase."),
    ("How many people live in Berlin?", "Berlin has 3.5 million inhabitants."),
    ("Die Katze saß auf der Fensterbank.", "Am Fenster lag ein Kater, dem's gefiel."),
    ("银行提高了利率。", "我坐在河岸上，看 3.5 条船。"),
]
WORDS = {2: ["Die", "Katze", "saß", "auf", "der", "Fensterbank", "."], 3: [*"银行提高了利率。"]}
METHODS = [classical(), classical("last"), reba(), reba(pool="mean"), echo(), prompt("eol"), bellm(2)]
needs = pytest.mark.skipif(not installed("smollm2"), reason=f"{NAMED['smollm2'].packages[0]} is not installed")


@pytest.fixture(scope="module")
def smollm2() -> Encoder:
    return Encoder.load("smollm2", classical())


def check(encoder: Encoder) -> None:
    for number, pair in enumerate(PAIRS):
        found, vectors = encoder.explain(*pair), encoder.encode(pair)
        cosine = encoder.similarity(vectors[0], vectors[1]).item()
        assert found.table.sum() == pytest.approx(cosine, abs=1e-6)
        assert found.words()[2].sum() == pytest.approx(cosine, abs=1e-6)
        if number in WORDS:
            assert [part.text for part in found.a.words if part.of_text] == WORDS[number]


@pytest.mark.filterwarnings("ignore:1 text is mostly")
@pytest.mark.parametrize("method", METHODS[:4], ids=str)
def test_minilm(minilm: Path, method) -> None:
    encoder = Encoder.load(minilm, method)
    check(encoder)
    whitened = Encoder(encoder.backbone, method, (Truncate(300), Centre(), Whiten(16)))
    check(whitened.fit([f"text {i} of {pair[i % 2]}" for i in range(30) for pair in PAIRS[:2]]))


@needs
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_smollm2(smollm2: Encoder, method) -> None:
    check(Encoder(smollm2.backbone, method))


def test_what_stands_out(minilm: Path) -> None:
    encoder = Encoder.load(minilm)
    best = [{(pair.a, pair.b) for pair in encoder.explain(*texts).top(4)} for texts in PAIRS[:2]]
    assert ("billed", "charged") in best[0]
    assert {("many", "million"), ("people", "inhabitants")} <= best[1]
    found = encoder.explain(*PAIRS[0])
    assert 0.15 < found.outside / found.cosine < 0.4 and found.table.max() < 0.1 * found.cosine
