import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.eager import READING, STATES, Eager
from tests.families import difference, encode, texts
from tests.tiny import FAMILIES, GROUPED, tiny, tiny_config, tiny_tokenizer
from transformers import AutoConfig, AutoModel

from afterword import Encoder, classical
from afterword.backbone.loading import load_backbone
from afterword.backbone.saving import write_model
from afterword.errors import ModelError, UnsupportedModel


def test_an_encoder_and_decoder_gives_its_encoder(tmp_path: Path):
    torch.manual_seed(0)
    AutoModel.from_config(tiny_config("t5")).save_pretrained(tmp_path / "t5")
    tiny_tokenizer("t5").save_pretrained(tmp_path / "t5")
    assert type(load_backbone(tmp_path / "t5").model).__name__ == "T5EncoderModel"


@pytest.mark.parametrize("kind", ["bart", "m2m_100"])
def test_the_encoder_of_an_encoder_decoder_is_run_and_saved_by_itself(kind: str, tmp_path: Path):
    torch.manual_seed(0)
    AutoModel.from_config(AutoConfig.for_model(kind, **FAMILIES["bart"])).save_pretrained(tmp_path / "whole")
    tiny_tokenizer("bart").save_pretrained(tmp_path / "whole")
    encoder, eager = Encoder.load(tmp_path / "whole", classical()), Eager(tmp_path / "whole")
    assert not any("decoder" in name for name, _ in encoder.backbone.model.named_parameters())
    for name in ("classical mean", "reba mean", "ditto"):
        method, reference = {**STATES, **READING}[name]
        wanted = np.stack([reference(eager, t).numpy() for t in texts()])
        assert difference(encode(encoder.backbone, method, texts()), wanted) < 1e-5, name
    encoder.save(tmp_path / "saved")
    assert not (tmp_path / "saved" / "1_Pooling").exists()  # stock modules would run the decoder
    again = Encoder.load(tmp_path / "saved")
    assert np.array_equal(again.encode(texts()), encoder.encode(texts()))
    again.save(tmp_path / "twice")
    assert np.array_equal(Eager(tmp_path / "twice").see(texts()[0]).last, eager.see(texts()[0]).last)


def test_what_would_lose_or_mix_up_an_encoder_of_both_is_refused(tmp_path: Path):
    peft = pytest.importorskip("peft", reason="the extra train is not installed")
    folder = tiny("bart", tmp_path / "bart")
    kept = {k: v for k, v in load_file(folder / "model.safetensors").items() if "encoder.layers.1.fc1" not in k}
    backbone = load_backbone(folder)
    adapted = peft.get_peft_model(backbone.model, peft.LoraConfig(target_modules=["q_proj"]))
    with pytest.raises(ModelError, match=r"'default' on the encoder of a bart .*merge_and_unload"):
        write_model(adapted, backbone.tokenizer.hf, tmp_path / "adapted")
    (folder / "modules.json").write_text(json.dumps([
        {"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]))  # fmt: skip
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode": "mean"}')
    with pytest.raises(ModelError, match="sentence-transformers pools the states of this bart's decoder"):
        Encoder.load(folder)
    assert Encoder.load(folder, "classical").encode(texts()).shape == (len(texts()), 64)
    save_file(kept, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match=r"lacks 2 weights, encoder\.layers\.1\.fc1"):
        load_backbone(folder)


def test_an_encoder_that_transformers_cannot_run_alone_is_refused_by_name(tmp_path: Path):
    sizes = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
             "decoder_attention_heads": 2, "src_vocab_size": 300, "tgt_vocab_size": 300}  # fmt: skip
    AutoModel.from_config(AutoConfig.for_model("fsmt", **sizes)).save_pretrained(tmp_path)
    tiny_tokenizer("bart").save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModel, match=r"fsmt is .* \(FSMTEncoder\) is a plain module of torch"):
        load_backbone(tmp_path)


@pytest.mark.parametrize("kind", ["qwen2_vl", "gemma3", "llava"])
def test_of_a_model_that_sees_the_tower_of_texts_is_kept(kind: str, tmp_path: Path):
    eyes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2,
            "image_size": 28, "patch_size": 14, "depth": 1, "embed_dim": 32, "num_heads": 2}  # fmt: skip
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}
    words = {**GROUPED, **({"rope_parameters": rope} if kind == "qwen2_vl" else {})}
    blank = AutoConfig.for_model(kind)
    parts = {f"{n}_config": {**s, "model_type": getattr(blank, f"{n}_config").model_type}
             for n, s in (("text", words), ("vision", eyes))}  # fmt: skip
    torch.manual_seed(0)
    model = AutoModel.from_config(AutoConfig.for_model(kind, **parts), attn_implementation="eager").eval()
    model.save_pretrained(tmp_path / "whole")
    tiny_tokenizer("gpt2").save_pretrained(tmp_path / "whole")
    with torch.no_grad():
        alone = [model(input_ids=torch.tensor([t])).last_hidden_state[0].mean(0).numpy() for t in texts()]
    encoder = Encoder(load_backbone(tmp_path / "whole"), classical())
    facts = encoder.backbone.facts
    assert (facts.way, facts.layers, facts.heads, facts.max_length) == ("flat", 3, 4, 512)
    assert not any("vis" in name for name, _ in encoder.backbone.model.named_parameters())
    got = encoder.encode(texts())
    assert difference(got, np.stack(alone)) < 1e-5
    encoder.save(tmp_path / "saved")
    assert np.array_equal(Encoder.load(tmp_path / "saved").encode(texts()), got)
