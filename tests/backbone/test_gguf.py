"""GGUF files: a tiny Qwen3 written with the gguf package, loaded by every spelling, and what users get wrong."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import gguf
import pytest
import torch
from tests.agreement import close
from tests.tiny import tiny_config, tiny_model, tiny_tokenizer
from transformers import AutoModelForCausalLM

from afterword import Encoder
from afterword.backbone import gguf_file, loading
from afterword.errors import MissingExtra, ModelError

TEXTS = ["The bank was steep.", "Die Bank war steil und bewachsen.", "a"]
WIDE = {"head_dim": 128}  # transformers reads no other width of heads from a Qwen3's GGUF file


def write_gguf(path: Path, architecture: str = "qwen3") -> torch.nn.Module:
    """Write a tiny random Qwen3 to a GGUF file in float32; returns its model."""
    config, model, tokenizer = tiny_config("qwen3", **WIDE), tiny_model("qwen3", **WIDE), tiny_tokenizer("qwen3")
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(config.vocab_size)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("gpt2")
    pieces = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
    pieces += [f"[unused{i}]" for i in range(config.vocab_size - len(pieces))]
    writer.add_token_list(pieces)
    writer.add_token_types([gguf.TokenType.NORMAL] * len(pieces))
    writer.add_token_merges(["t h", "i n", "Ġ t"])
    writer.add_eos_token_id(config.eos_token_id)
    writer.add_bos_token_id(config.bos_token_id)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        stem, suffix = name.rsplit(".", 1)
        writer.add_tensor(f"{names.get_name(f'model.{stem}')}.{suffix}", tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "tiny.F32.gguf"
    write_gguf(path)
    return path


@pytest.fixture(scope="module")
def encoder(file: Path) -> Encoder:
    return Encoder.load(file, "echo")


def test_the_weights_are_those_of_the_file(encoder: Encoder) -> None:
    original = tiny_model("qwen3", **WIDE).state_dict()
    loaded = encoder.backbone.model.state_dict()
    for name, weight in original.items():
        torch.testing.assert_close(loaded[name], weight)


def test_a_file_its_folder_and_the_saved_encoder_give_the_same_vectors(
    encoder: Encoder, file: Path, tmp_path: Path
) -> None:
    vectors = encoder.encode(TEXTS)
    encoder.save(tmp_path / "saved")
    for other in (Encoder.load(file.parent, "echo"), Encoder.load(tmp_path / "saved")):
        assert close(other.encode(TEXTS), vectors, 1e-6)
    tokens = encoder.backbone.tokenizer.hf(TEXTS[0])["input_ids"]
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "saved").model
    own = model(torch.tensor([tokens + tokens])).last_hidden_state
    assert torch.isfinite(own).all()


def test_the_file_is_named_with_its_quantisation(encoder: Encoder, file: Path) -> None:
    assert gguf_file.quantisation(file) == "F32"
    assert file.name in repr(encoder)


def test_mistakes_name_the_file_and_the_fix(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(file, tmp_path / "one.gguf")
    shutil.copy(file, tmp_path / "two.gguf")
    with pytest.raises(ModelError, match=r"one\.gguf"):
        Encoder.load(tmp_path)
    cut = tmp_path / "cut.gguf"
    for size in (file.stat().st_size // 2, 2048, 10):
        cut.write_bytes(file.read_bytes()[:size])
        with pytest.raises(ModelError, match=r"cut\.gguf is cut off"):
            Encoder.load(cut)
    cut.write_bytes(b"<!DOCTYPE html>")
    with pytest.raises(ModelError, match=r"cut\.gguf"):
        Encoder.load(cut)
    with pytest.raises(ModelError, match=r"none\.gguf"):
        Encoder.load(tmp_path / "none.gguf")
    write_gguf(cut, architecture="nothing-known")
    with pytest.raises(ModelError, match="nothing-known"):
        Encoder.load(cut)
    monkeypatch.setattr(loading, "free_memory", lambda: 1000)
    with pytest.raises(ModelError, match=r"tiny\.F32\.gguf.*dtype="):
        Encoder.load(file)


def test_without_the_package(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    monkeypatch.setattr(gguf_file, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="gguf"):
        Encoder.load(file)


def test_loading_prints_no_progress_bar(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Encoder.load(file)
    assert capfd.readouterr() == ("", "")


def test_a_folder_here_precedes_a_short_name(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "smollm2").mkdir()
    shutil.copy(file, tmp_path / "smollm2")
    monkeypatch.chdir(tmp_path)
    assert Encoder.load("smollm2").backbone.facts.kind == "qwen3"
