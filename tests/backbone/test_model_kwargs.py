from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.tiny import tiny

from afterword import Encoder, classical, reba
from afterword.backbone.model_kwargs import ELSEWHERE, check_model_kwargs
from afterword.errors import ModelError
from afterword.post import Normalise


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a plain model at its root and a saved encoder in a subfolder."""
    folder = tiny("gpt2", tmp_path_factory.mktemp("repository"))
    Encoder(Encoder.load(folder).backbone, reba(), (Normalise(),)).save(folder / "inside" / "encoder")
    return folder


def test_arguments_of_the_model_reach_it(models: Path) -> None:
    assert Encoder.load(models, model_kwargs={"torch_dtype": "float64"}).encode("dog").dtype == np.float64
    assert Encoder.load(models, dtype="float64", model_kwargs={"dtype": "float64"}).encode("dog").dtype == np.float64
    louder = Encoder.load(models, model_kwargs={"scale_attn_by_inverse_layer_idx": True})
    assert np.abs(louder.encode("a dog") - Encoder.load(models).encode("a dog")).max() > 1e-3
    with pytest.raises(ModelError, match="dtype is given twice"):
        Encoder.load(models, dtype="float64", model_kwargs={"dtype": "float32"})
    with pytest.raises(ModelError, match="no_such_argument"):
        Encoder.load(models, model_kwargs={"no_such_argument": 1})


@pytest.mark.parametrize("name", ELSEWHERE)
def test_arguments_that_would_break_it_are_refused_by_name(models: Path, name: str) -> None:
    with pytest.raises(ModelError, match=f"model_kwargs holds '{name}'"):
        Encoder.load(models, model_kwargs={name: None})


def test_a_quantisation_config_reaches_the_model(tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    from transformers import BitsAndBytesConfig

    config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32)
    folder = tiny("llama", tmp_path, intermediate_size=128)  # rows of whole blocks, as AVX512-BF16 needs them
    encoder = Encoder.load(folder, classical(), quantization_config=config)
    kinds = {type(m).__name__ for m in encoder.backbone.model.modules()}
    assert "Linear4bit" in kinds and np.isfinite(encoder.encode("dog")).all()
    assert check_model_kwargs({"quantization_config": config}, None, None)["quantization_config"] is config
