"""Whether every token stands where the model itself puts it, padding that a user wrote into a text included."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests import tiny as tiny_families
from tests.families import difference
from tests.tiny import MASK, SHAPE, VOCABULARY, tiny_model, tiny_tokenizer
from torch import nn

from afterword import Encoder, classical
from afterword.backbone.attention import NAME
from afterword.backbone.backbone import Backbone
from afterword.backbone.introspection import position_offset, skipped_token
from afterword.backbone.self_check import check
from afterword.text.tokenizer import Tokenizer


@pytest.mark.parametrize(
    ("kind", "token"), [("roberta", 1), ("camembert", 1), ("bert", None), ("llama", None), ("t5", None)]
)
def test_the_token_that_takes_no_position_is_found(kind: str, token: int | None):
    model = tiny_model(kind)
    assert skipped_token(model, position_offset(model), [None, -1, 0, 1, 2, 3, VOCABULARY]) == token
    assert skipped_token(model, position_offset(model), [0, 2, None]) is None


def test_a_model_without_a_table_of_tokens_says_nothing():
    model = tiny_model("bert")
    model.set_input_embeddings(nn.Identity())
    assert skipped_token(model, 2, [1]) is None


PAD_AT_1 = {"pad_token_id": 1, "bos_token_id": 0, "max_position_embeddings": 514}
ESM = {**SHAPE, "pad_token_id": 1, "mask_token_id": MASK, "emb_layer_norm_before": False}
XLM = {"emb_dim": 64, "n_layers": 3, "n_heads": 4, "vocab_size": 300, "pad_token_id": 1, "max_position_embeddings": 512}
MORE: dict[str, dict[str, Any]] = {
    "data2vec-text": {**SHAPE, **PAD_AT_1},
    "esm absolute": {**ESM, "token_dropout": False, "position_embedding_type": "absolute"},
    "esm": {**ESM, "token_dropout": True, "position_embedding_type": "rotary"},
    "xlm": {**XLM, "pad_index": 1},
}
PADDED = [[40, 1, 1, 41, 42], [50, 51, 1], [1, 60, 61, 62, 1, 63], [70, 71, 72, 73], [1, 1], [40, 41, 42, 43, 1]]
KINDS = ["roberta", "xlm-roberta", "camembert", "mpnet", "bert", "llama", "t5", *MORE]


@pytest.fixture(scope="module")
def loaded() -> Callable[[str], Backbone]:
    found: dict[str, Backbone] = {}

    def backbone(kind: str) -> Backbone:
        if kind not in found:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(tiny_families, "FAMILIES", {**tiny_families.FAMILIES, **MORE})
                model, tokenizer = tiny_model(kind), tiny_tokenizer("roberta")
            model.set_attn_implementation(NAME)
            found[kind] = check(model, Tokenizer(tokenizer))
        return found[kind]

    return backbone


def alone(backbone: Backbone, ids: list[int]) -> np.ndarray:
    """The model's own vector of one text: its mean over all tokens, none of which is masked."""
    model = copy.deepcopy(backbone.model)
    model.set_attn_implementation("eager")
    tokens = torch.tensor([ids])
    with torch.no_grad():
        return model(input_ids=tokens, attention_mask=torch.ones_like(tokens)).last_hidden_state[0].mean(0).numpy()


@pytest.mark.parametrize("kind", KINDS)
def test_padding_within_a_text_is_a_token_like_any_other(kind: str, loaded: Callable[[str], Backbone]):
    backbone = loaded(kind)
    encoder, tokenizer = Encoder(backbone, classical()), backbone.tokenizer.hf
    wanted = np.stack([alone(backbone, _whole(encoder, ids)) for ids in PADDED])
    assert difference(encoder.encode(PADDED), wanted) < 1e-5
    assert difference(np.stack([encoder.encode([ids])[0] for ids in PADDED]), wanted) < 1e-5
    typed = ["a<pad>b", "<pad><pad> the end", "no padding", "<pad>"]
    wanted = np.stack([alone(backbone, tokenizer(text).input_ids) for text in typed])
    assert difference(encoder.encode(typed), wanted) < 1e-5


@pytest.mark.parametrize("kind", ["roberta", "esm absolute", "esm"])
def test_what_stands_beside_a_text_changes_nothing(kind: str, loaded: Callable[[str], Backbone]):
    encoder = Encoder(loaded(kind), classical())
    clean, company = [30, 31, 32, 33, 34, 35], [[MASK] * 20, [1, MASK, 1, 40] * 5, [MASK, 50], [0, 2, 4, 5]]
    assert (
        difference(encoder.encode([clean, *company])[:1], alone(encoder.backbone, _whole(encoder, clean))[None]) < 1e-5
    )
    for text in company:
        wanted = alone(encoder.backbone, _whole(encoder, text))[None]
        assert difference(encoder.encode([clean, *company, text])[-1:], wanted) < 1e-5


def _whole(encoder: Encoder, ids: list[int]) -> list[int]:
    tokenizer = encoder.backbone.tokenizer
    return [*tokenizer.prefix, *ids, *tokenizer.suffix]
