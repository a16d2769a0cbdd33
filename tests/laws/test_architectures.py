"""Every family of models, every method: what the seam gives is what the model's own eager attention gives.

The tiny models are random, their texts of several lengths share one batch, and windows are shorter than the texts.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scripts.generate_models_table import PAGE, agrees, page
from tests.eager import MASKING, READING, SEEING, STATES, Eager, bellm_mean
from tests.families import Verdict, difference, encode, judge, texts
from tests.tiny import ENCODERS, FAMILIES, MORE, MUST, tiny

from afterword import Encoder, classical, ditto, echo, reba
from afterword.errors import AttentionNotSeen
from afterword.layout import Layout
from afterword.loading import load_backbone
from afterword.methods import Method, bellm

EXACT = 1e-5  # float32, of the vector's largest component
DOUBLE = 1e-6  # float64, where the model itself takes some steps in float32
BY_THE_EAGER_WAY = {"bloom", "falcon", "mpt", "gptj", "gpt_neo", "codegen", "mpnet", "deberta-v2"}
IN_BATCHES_OF_ONE_LENGTH = {"mt5", "llama4_text", "lfm2", "mamba"}


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Each family is judged once, for its own tests and for the table."""
    known: dict[str, Verdict] = {}

    def of(kind: str) -> Verdict:
        if kind not in known:
            known[kind] = judge(kind, tmp_path_factory.mktemp("family") / "model")
        return known[kind]

    return of


@pytest.mark.parametrize("kind", MUST)
def test_a_family_that_must_be_exact_is_so_by_every_method(kind: str, verdicts: Any):
    verdict = verdicts(kind)
    assert verdict.way == ("stacked" if kind == "t5" else "flat")
    assert not verdict.refused
    expected = {*STATES, *READING, "reba word"} | ({*MASKING} if kind in ENCODERS else {*SEEING})
    assert set(verdict.worst) == expected
    assert max(verdict.worst.values()) < EXACT, verdict.worst


@pytest.mark.parametrize("kind", MORE)
def test_no_other_family_is_silently_wrong(kind: str, verdicts: Any):
    verdict = verdicts(kind)
    assert verdict.worst or verdict.refused
    assert all(w < EXACT for w in verdict.worst.values()), verdict.worst
    stacked = kind in IN_BATCHES_OF_ONE_LENGTH
    own = "refused" if kind == "bart" else "eager" if kind in BY_THE_EAGER_WAY else "flat"
    assert verdict.way == ("stacked" if stacked else own)


@pytest.mark.parametrize("kind", sorted(set(FAMILIES) - {"bart"}))
def test_float64_stays_float64(kind: str, tmp_path: Path):
    verdict = judge(kind, tmp_path / "model", torch.float64)
    assert max(verdict.worst.values()) < DOUBLE, verdict.worst
    if kind in ("gpt2", "bert", "roberta", "electra", "distilbert", "albert", "t5", "gpt_oss", "mpnet", "deberta-v2"):
        assert max(verdict.worst.values()) < 1e-13, "these take no step in float32"


@pytest.mark.slow
def test_the_page_is_what_the_families_give(verdicts: Any):
    assert agrees(PAGE.read_text("utf-8"), page([verdicts(kind) for kind in FAMILIES])), "make docs"


def test_a_page_that_says_otherwise_is_noticed():
    assert agrees("| gpt2 | exact | 4e-07 |", "| gpt2 | exact | 8e-07 |")
    assert not agrees("| gpt2 | exact | 4e-07 |", "| gpt2 | exact | 8e-04 |")
    assert not agrees("| gpt2 | exact | 4e-07 |", "| gpt2 | refused | 4e-07 |")


@pytest.mark.parametrize("method", [reba(), reba(pool="mean"), ditto()], ids=str)
@pytest.mark.parametrize("kind", ["mamba"])
def test_what_shows_no_attention_refuses_what_reads_it_by_name(kind: str, method: Method, tmp_path: Path):
    backbone = load_backbone(tiny(kind, tmp_path))
    with pytest.raises(AttentionNotSeen, match=f"^{kind} shows no attention"):
        Encoder(backbone, method)
    assert Encoder(backbone, classical()).encode(texts()).shape == (len(texts()), 64)


def test_a_convolution_that_leaks_between_texts_is_noticed(tmp_path: Path):
    checks = load_backbone(tiny("lfm2", tmp_path)).facts.checks
    assert float(checks["flat"].split()[0]) > 1e-2


@pytest.mark.parametrize("kind", ["phi3", "llama dynamic"])
def test_long_rotary_frequencies_do_not_reach_short_texts(kind: str, tmp_path: Path):
    encoder = Encoder(load_backbone(tiny(kind, tmp_path)), classical())
    both = [texts()[1][:10], [*texts()[1], *texts()[1]][:40], texts()[1][:24], texts()[1][:23]]
    together = encoder.encode(both)
    alone = np.concatenate([encoder.encode([t]) for t in reversed(both)])[::-1]
    assert difference(together, alone) < 1e-6
    eager = Eager(tmp_path)
    assert difference(together, np.stack([STATES["classical mean"][1](eager, t).numpy() for t in both])) < EXACT
    assert encoder.backbone.facts.split_at == 24


def test_a_model_beyond_its_dynamic_limit_does_not_remember_it(tmp_path: Path):
    encoder = Encoder(load_backbone(tiny("llama dynamic", tmp_path)), echo())
    before = encoder.encode(texts()[:1])
    encoder.encode([texts()[1]])  # 46 tokens and <s>: beyond 24
    assert np.array_equal(before, encoder.encode(texts()[:1]))


@pytest.mark.parametrize("n", [5, 6, 7, 12, 13])
@pytest.mark.parametrize("kind", ["mistral", "gemma3_text", "modernbert", "llama4_text"])
def test_windows_and_chunks_just_under_and_over_the_text(kind: str, n: int, tmp_path: Path):
    backbone, eager = load_backbone(tiny(kind, tmp_path)), Eager(tmp_path)
    sizes = [n - len(eager.prefix) - len(eager.suffix), 17, 3]
    short = [texts()[1][:size] for size in sizes]
    got = encode(backbone, classical(), short)
    assert difference(got, np.stack([STATES["classical mean"][1](eager, t).numpy() for t in short])) < EXACT


@pytest.mark.parametrize("kind", ["mistral", "gemma2", "gpt_oss", "llama", "gpt2"])
@pytest.mark.parametrize("triangle", ["upper", "full"])
def test_reba_reads_layers_that_see_differently(kind: str, triangle: Any, tmp_path: Path):
    """Windows and full layers in one model, and both-ways layers behind causal ones: one maximum over all of them."""
    backbone, eager = load_backbone(tiny(kind, tmp_path)), Eager(tmp_path)
    seeing = Method(Layout(copies=2), weigh=reba(pool="mean", triangle=triangle).weigh, sight=bellm(2).sight)
    wanted = []
    for ids in texts():
        s = eager.see(ids, copies=2, last=2)
        new = ((s.attention + s.attention.mT) / 2).amax((0, 1))
        new = new if triangle == "full" else new.triu()
        wanted.append((new[list(s.at)] @ s.last).mean(0).numpy())
    assert difference(encode(backbone, seeing, texts()), np.stack(wanted)) < EXACT


@pytest.mark.parametrize("kind", ["llama", "mistral"])
def test_both_ways_layers_change_what_they_should(kind: str, tmp_path: Path):
    backbone, eager = load_backbone(tiny(kind, tmp_path)), Eager(tmp_path)
    one, two, none = (encode(backbone, m, texts()) for m in (bellm(1), bellm(2), bellm(0, layers=())))
    assert difference(one, none) > 1e-3 and difference(two, one) > 1e-3
    assert difference(none, np.stack([bellm_mean(eager, t, 0).numpy() for t in texts()])) < EXACT
