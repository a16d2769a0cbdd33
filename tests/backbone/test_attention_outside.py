import pytest
import torch
from tests.tiny import PAD, tiny_model

from afterword.backbone.attention import NAME

IDS = torch.tensor([[7, 8, 9, 10, 11, 12, 13, 14], [30, 31, 32, 33, 34, PAD, PAD, PAD]])
MASK = (IDS != PAD).long()


@pytest.mark.parametrize("kind", ["llama", "gemma2", "gpt_oss", "mistral", "bert", "t5", "gpt2"])
def test_a_model_that_is_called_by_itself_gives_what_its_own_attention_gives(kind: str):
    model = tiny_model(kind)
    model.requires_grad_(False)
    wanted = model(IDS, attention_mask=MASK, output_attentions=True)
    model.set_attn_implementation(NAME)
    got = model(IDS, attention_mask=MASK)
    apart = (got.last_hidden_state - wanted.last_hidden_state)[MASK.bool()].abs().max()
    assert apart < 1e-5 * wanted.last_hidden_state.abs().max()
    bare, alone = model(IDS), tiny_model(kind).requires_grad_(False)(IDS)
    assert (bare.last_hidden_state - alone.last_hidden_state).abs().max() < 1e-5 * alone.last_hidden_state.abs().max()


def test_a_causal_model_goes_on_writing_where_it_stopped():
    model = tiny_model("gpt_oss").requires_grad_(False)
    wanted = model(IDS).last_hidden_state[:, -1]
    model.set_attn_implementation(NAME)
    first = model(IDS[:, :5], use_cache=True)
    got = model(IDS[:, 5:], past_key_values=first.past_key_values).last_hidden_state[:, -1]
    assert (got - wanted).abs().max() < 1e-5 * wanted.abs().max()
