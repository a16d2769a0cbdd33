"""Promise 1 (right): configurations whose layers differ, bidirectional ones, long windows and unbounded scores."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests import zoo
from tests.eager import READING, SEEING, STATES, Eager, Today, bellm_mean
from tests.families import texts
from tests.tiny import tiny, tiny_tokenizer
from torch import Tensor
from transformers import AutoConfig, AutoModel

from afterword import Encoder, Method
from afterword.backbone.backbone import Backbone
from afterword.backbone.loading import load_backbone
from afterword.backbone.self_check import check
from afterword.errors import ModelError, UnsupportedModel
from afterword.text.tokenizer import Tokenizer

EXACT = 1e-5


def vectors(backbone: Backbone, method: Method, ids: list[list[int]]) -> np.ndarray:
    """In one batch; what a method says of a model that it was not made for is known here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Encoder(backbone, method).encode(ids)


def same(found: np.ndarray, wanted: list[Tensor]) -> bool:
    """Row by row within `EXACT` of the row's largest component; a row of zeros is zeros."""
    rows = np.stack([w.numpy() for w in wanted])
    return bool(np.isfinite(found).all() and (abs(found - rows) <= EXACT * abs(rows).max(1, keepdims=True)).all())


def stated(folder: Path, **settings: Any) -> Path:
    """A folder whose configuration says what it is to say: older transformers write a Gemma's window halved."""
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))
    return folder


def test_an_embeddinggemma_is_saved_with_its_window_or_not_at_all(tmp_path: Path):
    folder = stated(tiny("gemma3_text", tmp_path / "own", use_bidirectional_attention=True), sliding_window=12)
    encoder = Encoder.load(folder, STATES["classical mean"][0])
    config: Any = encoder.backbone.model.config
    if type(config).from_dict(config.to_dict()).sliding_window != 7:
        with pytest.raises(ModelError, match="would read its attention window of 7 tokens back as 4; update transfor"):
            encoder.save(tmp_path / "saved")
        return
    encoder.save(tmp_path / "saved")
    assert np.array_equal(Encoder.load(tmp_path / "saved").encode(texts()), encoder.encode(texts()))


@pytest.mark.parametrize("window", [12, 512])
def test_embeddinggemma_is_exact_by_every_method(window: int, tmp_path: Path):
    """Gemma 3 both ways: a window looks half its width to either side."""
    folder = stated(tiny("gemma3_text", tmp_path, use_bidirectional_attention=True), sliding_window=window)
    backbone, eager = load_backbone(folder), Eager(folder)
    assert backbone.facts.way == "flat" and not backbone.facts.causal
    assert backbone.model.config.sliding_window == window // 2 + 1  # type: ignore[union-attr]
    for name, (method, formula) in {**STATES, **READING}.items():
        assert same(vectors(backbone, method, texts()), [formula(eager, t) for t in texts()]), name
    assert same(vectors(backbone, SEEING["bellm 2"][0], texts()), [bellm_mean(eager, t, 0) for t in texts()])


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("mistral", {"sliding_window": 520}),
        ("gpt_oss", {"sliding_window": 520}),
        ("modernbert", {"local_attention": 1040}),
        ("gemma3_text", {"sliding_window": 1040, "use_bidirectional_attention": True}),
    ],
)
def test_windows_beyond_those_of_the_check_are_kept(kind: str, settings: dict[str, Any], tmp_path: Path):
    """Longer than any text of the self-check, which sees them shortened; texts on both sides share a batch."""
    folder = stated(tiny(kind, tmp_path, max_position_embeddings=2048, **settings), **settings)
    backbone, eager = load_backbone(folder), Eager(folder)
    g = torch.Generator().manual_seed(1)
    long = [torch.randint(10, 260, (n,), generator=g).tolist() for n in (700, 530, 40, 519)]
    seeing = "bellm 2" if backbone.facts.causal else "ditto"
    for name in ("classical last", seeing):
        method, formula = {**STATES, **READING, **SEEING}[name]
        assert same(vectors(backbone, method, long), [formula(eager, t) for t in long]), name
    wider = {name: value if value is True else 4096 for name, value in settings.items()}
    wide = tiny(kind, tmp_path / "wide", max_position_embeddings=2048, **wider)
    method, formula = STATES["classical last"]
    assert not same(vectors(backbone, method, long[:1]), [formula(Eager(wide), long[0])])  # the window matters


@pytest.mark.parametrize("scale", [1, 1e6])
def test_scores_without_a_bound_give_eagers_vectors(scale: float):
    """MobileBERT has no norms: scores of 1e7 and 1e13, of which float32 keeps some seven digits."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        "mobilebert", vocab_size=300, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
        embedding_size=32, intra_bottleneck_size=32, normalization_type="no_norm",
    )  # fmt: skip
    model: Any = AutoModel.from_config(config, attn_implementation="eager").eval()
    zoo.randomise(model)
    for name, layer in model.named_modules():
        if name.endswith(("attention.self.query", "attention.self.key")):
            layer.weight.data.mul_(scale**0.5)
    model.set_attn_implementation("afterword")
    backbone = check(model, Tokenizer(tiny_tokenizer("bert")))
    today = Today(backbone)
    for name in ("classical mean", "reba last", "reba mean", "ditto"):
        method, formula = {**STATES, **READING}[name]
        assert same(vectors(backbone, method, texts()), [formula(today, t) for t in texts()]), name


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("fsmt", r"fsmt is an encoder and a decoder"),
        ("udop", "udop does not run by itself on a text of 7 tokens: Bbox is required"),
        ("canine", "canine does not run by itself on a text of 3 tokens"),
    ],
)
def test_what_eager_attention_runs_on_some_inputs_only_is_refused_with_the_reason(
    kind: str, reason: str, tmp_path: Path
):
    with pytest.raises(UnsupportedModel, match=reason) as error:
        load_backbone(zoo.write(kind, tmp_path))
    assert "\n" not in str(error.value)
