"""Promise 1 (right): every family of models, every method, equals the formula on the model's own eager attention.

`make models` checks every type in transformers and writes docs/models.md; here a fixed sample of different families is
checked, by `make soak` every family, and the page must agree with the result.
"""

import json
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from packaging.version import Version
from scripts.generate_models_table import PAGE, TABLE, page, sort_of
from tests.eager import READING, STATES, Eager, bellm_mean, word_mean
from tests.families import difference, encode, texts
from tests.faults import FAULTS
from tests.judge import EXACT, Judge, Verdict, compare, judge
from tests.tiny import tiny
from tests.zoo import LeftOut, write

from afterword import Encoder, classical, ditto, echo, reba
from afterword.backbone.loading import load_backbone
from afterword.errors import AttentionNotSeen, UnsupportedModel
from afterword.methods import Method, bellm
from afterword.text.layout import Layout

SAMPLE = {
    "albert": "one layer's weights in every layer",
    "bert": "absolute positions, both ways",
    "bloom": "ALiBi, the model's own attention",
    "deberta-v2": "relative positions of its own",
    "deepseek_v3": "latent attention with values of another width, experts",
    "esm, token dropout": "a scale by the share of masks in a text",
    "falcon_h1": "a state space beside the attention of each layer",
    "gemma2": "softcap, windows in every second layer",
    "gemma4_text": "layers of different widths, shared keys",
    "gpt2": "absolute positions, causal",
    "gpt_oss": "sinks, windows, experts",
    "granite_swa": "weights that are handed out without the sinks' share",
    "inkling_text": "a bias of its own for each text",
    "lfm2": "convolutions between the layers with attention",
    "llama, dynamic": "rotary frequencies by the length of the text",
    "mamba": "no attention at all",
    "mistral": "a window, grouped heads",
    "modernbert": "windows both ways",
    "phi3, longrope": "two sets of rotary frequencies",
    "qwen2_vl": "the text tower of a model with pictures",
    "roberta": "positions that skip padding tokens",
    "t5": "a bias by distance",
}
"""Kinds chosen to differ."""
OLD = Version(version("transformers")) < Version(json.loads(TABLE.read_text("utf-8"))["transformers"])
WAYS = ("flat", "stacked", "eager")  # the better first: a run may do better than the page says, never worse
LENGTHS = (12, 5, 1, 23, 70, 5)
DOUBLE = 1e-13  # float64, of models that take no step in float32
ROWS = {row["kind"]: row for row in json.loads(TABLE.read_text("utf-8"))["types"]}
"""What docs/models.json says of each kind."""
OTHERS = [kind for kind, row in ROWS.items() if row["worst"] and kind not in SAMPLE]
"""Every other kind that is judged: for `make soak`."""


@pytest.mark.parametrize("kind", [*SAMPLE, *(pytest.param(kind, marks=pytest.mark.soak) for kind in OTHERS)])
def test_a_kind_is_what_the_page_says(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(
        "AFTERWORD_PACKED", "0"
    )  # as docs/models.json was made; packed weights have a law in test_batches
    try:
        folder = write(kind, tmp_path / "model")
    except LeftOut as e:
        if not OLD:
            raise
        pytest.skip(f"an older transformers: {e}")
    verdict, told = judge(kind, folder, LENGTHS), ROWS[kind]
    assert verdict.worst and not verdict.wrong
    assert set(told["worst"]) <= set(verdict.worst), f"make models: no longer exact, {verdict.refused}"
    assert WAYS.index(verdict.way) <= WAYS.index(told["way"]), f"make models: no longer {told['way']}"


def test_the_page_is_written_from_the_figures_and_holds_no_wrong_one():
    figures = json.loads(TABLE.read_text("utf-8"))
    assert PAGE.read_text("utf-8") == page(figures), "python scripts/generate_models_table.py --page"
    sorts = {row["kind"]: sort_of(row) for row in figures["types"]}
    assert [kind for kind, sort in sorts.items() if sort == "wrong"] == []
    assert {*SAMPLE} <= {*sorts}


@pytest.mark.parametrize("kind", ["llama", "bert"])
def test_a_planted_fault_is_found(kind: str, tmp_path: Path):
    """Texts of other lengths for each, since masks are kept from one forward to the next."""
    folder = write(kind, tmp_path / "model")
    own, backbone, judged = Judge(folder), load_backbone(folder), ("classical mean", "echo mean", "reba mean")
    for size, (name, fault) in enumerate(FAULTS.items(), 9):
        texts = [[20 + i for i in range(n)] for n in (size, size + 10)]
        with fault(backbone):
            spoilt = compare(Verdict(kind), own, backbone, texts, judged)
        assert sort_of(asdict(spoilt)) == "wrong" and set(spoilt.wrong) == set(judged), name
    assert not compare(Verdict(kind), own, backbone, [[20 + i for i in range(n)] for n in (4, 15)], judged).wrong


@pytest.mark.parametrize("kind", ["gpt2", "bert", "roberta", "t5", "gpt_oss"])
def test_float64_stays_float64(kind: str, tmp_path: Path):
    verdict = judge(kind, write(kind, tmp_path / "model"), LENGTHS, dtype=torch.float64)
    assert max(verdict.worst.values()) < DOUBLE, verdict.worst


@pytest.mark.parametrize("kind", ["llama", "gpt_oss", "bert", "t5"])
def test_options_and_words_of_reba(kind: str, tmp_path: Path):
    backbone, eager = load_backbone(tiny(kind, tmp_path)), Eager(tmp_path)
    for name in ("reba full", "reba last layer"):
        method, formula = READING[name]
        wanted = np.stack([formula(eager, t).numpy() for t in texts()])
        assert difference(encode(backbone, method, texts()), wanted) < EXACT, name
    long, word = [t for t in texts() if len(t) >= 4], (2, 4)
    got = Encoder(backbone, reba(2)).encode_words(long, [word] * len(long))
    assert difference(got, np.stack([word_mean(eager, t, word).numpy() for t in long])) < EXACT


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


def test_random_buckets_are_refused(tmp_path: Path):
    """Reformer reads texts of over two chunks through buckets that it draws anew each time."""
    with pytest.raises(UnsupportedModel, match="reformer cannot be run exactly"):
        load_backbone(write("reformer", tmp_path / "model"))


def test_attention_that_is_nearly_even_is_no_causal_one(tmp_path: Path):
    """MarkupLM's small random weights move no state by as much as a rounding: its matrices say what sees what."""
    verdict = judge("markuplm", write("markuplm", tmp_path / "model"), LENGTHS)
    assert verdict.worst["reba mean"] < EXACT and not verdict.wrong
