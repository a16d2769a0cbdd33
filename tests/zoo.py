"""A tiny random model of every type that transformers knows, from its own default configuration made small.

The sizes follow rules on the names of a configuration's fields; `NEEDS` holds what single types need besides, and
`VARIANTS` further configurations of a type that are run in another way.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

import torch
from tests.tiny import LONGROPE
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from torch import nn
from transformers import (
    MODEL_FOR_TEXT_ENCODING_MAPPING,
    MODEL_MAPPING,
    AutoModel,
    AutoModelForTextEncoding,
    PreTrainedTokenizerFast,
)
from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

WIDTH, HEADS, HEAD, LAYERS, VOCABULARY = 64, 4, 16, 4, 320
LAYER_NAMES = (
    "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_decoder_layers num_encoder_layers "
    "num_blocks"
).split()
SIZES = [
    (LAYERS, " ".join(LAYER_NAMES)),
    (WIDTH, """hidden_size d_model n_embd dim emb_dim embedding_dim word_embed_proj_dim embed_dim projection_dim
        mm_hidden_size out_hidden_size lru_width attention_hidden_size input_embedding_size output_embedding_size
        projector_hidden_size projection_hidden_size text_hidden_size adapter_in_dim"""),
    (96, """intermediate_size ffn_dim d_ff hidden_dim ffn_hidden_size dff dim_ff d_inner encoder_ffn_dim
        decoder_ffn_dim feed_forward_size intermediate_size_mlp dense_intermediate_size n_inner"""),
    (32, """moe_intermediate_size shared_expert_intermediate_size moe_shared_expert_intermediate_size
        shared_intermediate_size expert_ffn_hidden_size moe_hidden_size embedding_size entity_emb_size ple_embed_dim
        embedding_rank hidden_size_per_layer_input pronunciation_embed_dim shape_embed_dim router_hidden_size
        laurel_rank hc_lowrank o_lora_rank prompt_mid_dim intra_bottleneck_size linear_value_head_dim"""),
    (24, "q_lora_rank qk_head_dim"),
    (HEAD, """head_dim d_kv d_head dim_head v_head_dim qk_nope_head_dim swa_head_dim linear_head_dim
        linear_key_head_dim kv_channels attention_head_size attention_head_dim mamba_d_head mamba_head_dim
        query_pre_attn_scalar kv_lora_rank index_head_dim time_step_rank adapter_rank chunk_size mamba_chunk_size
        mamba_dt_rank"""),
    (HEADS, """num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads
        attention_heads swa_num_attention_heads num_encoder_attention_heads num_decoder_attention_heads
        linear_num_heads linear_num_value_heads num_experts num_local_experts n_routed_experts moe_num_experts
        index_n_heads o_groups"""),
    (2, """num_key_value_heads num_kv_heads swa_num_key_value_heads linear_num_key_heads num_experts_per_tok moe_topk
        moe_k n_group hc_mult zero_expert_num moe_num_shared_experts"""),
    (1, """n_shared_experts num_shared_experts topk_group first_k_dense_replace num_dense_layers num_mtp_layers
        num_nextn_predict_layers moe_layer_start_index mamba_n_groups mamba_ngroups num_kv_shared_layers"""),
    (8, """qk_rope_head_dim mamba_d_state state_size ssm_state_size rotary_dim window_size sliding_window
        sliding_window_size local_attention attention_chunk_size attention_window_size keep_window_size index_topk
        relative_attention_num_buckets num_buckets"""),
    (20, "relative_attention_max_distance relative_max_distance rel_extent"),
    (2048, """max_position_embeddings n_positions n_ctx max_seq_len max_source_positions context_length
        max_encoder_position_embeddings max_decoder_position_embeddings max_sequence_length"""),
    (VOCABULARY, """vocab_size vocab_size_per_layer_input entity_vocab_size src_vocab_size tgt_vocab_size
        decoder_vocab_size text_vocab_size t2u_vocab_size pronunciation_vocab_size shape_vocab_size
        codebook_vocab_size char_vocab_size vision_vocab_size unpadded_vocab_size ngram_vocab_size_base"""),
]  # fmt: skip
"""Sizes, and the names of the fields that take them; a field that is smaller by default stays so."""
SIZE = {name: size for size, names in SIZES for name in names.split()}
TOWER_SIZE = {**SIZE, **dict.fromkeys(LAYER_NAMES, 2), "depth": 2}
"""Of a part for pictures or sound, which no text reaches."""
KEYS = {
    "num_key_value_heads": "num_attention_heads",
    "swa_num_key_value_heads": "swa_num_attention_heads",
    "linear_num_key_heads": "linear_num_value_heads",
}
"""Heads of keys stay as many as the heads where they are as many by default."""

MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 16}
ROTARY = {"rope_type": "default", "rope_theta": 10000.0}
AXES = {**ROTARY, "mrope_section": [2, 3, 3]}
MIXED = ["sliding_attention", "full_attention"] * 2
NEEDS: dict[str, dict[str, Any]] = {
    "bamba": {**MAMBA, "attn_layer_indices": [1, 3]},
    "chameleon": {"vocabulary_map": {"<image>": 300}},
    "cohere_compass_text": {"rope_parameters": {"full_attention": AXES}},
    "dbrx": {"attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 10000.0}},
    "deepseek_v2": {"num_experts_per_tok": 2},
    "dots1": {"n_shared_experts": 1, "n_routed_experts": 4, "num_experts_per_tok": 2, "first_k_dense_replace": 1},
    "dots3_note_text": {"num_key_value_heads": 4},
    "esm": {"vocab_size": VOCABULARY, "pad_token_id": 1, "mask_token_id": 3},
    "esmc": {"num_key_value_heads": 4, "vocab_size": VOCABULARY},
    "falcon_h1": {**MAMBA, "mamba_d_ssm": 128},
    "funnel": {"architectures": ["FunnelModel"]},
    "gemma2": {"attn_logit_softcapping": 1.5},
    "glm4v_moe_text": {"rope_parameters": {**ROTARY, "partial_rotary_factor": 0.5, "mrope_section": [1, 1, 2]}},
    "glm4v_text": {"rope_parameters": AXES},
    "glm5_next_text": {"num_key_value_heads": 4, "index_kpool": 4, "qk_rope_head_dim": 0, "head_dim": 0},
    "glm_image_text": {"rope_parameters": AXES},
    "glm_ocr_text": {"rope_parameters": AXES},
    "gpt_neo": {"attention_types": [[["global", "local"], 2]]},
    "granitemoehybrid": {**MAMBA, "layer_types": ["mamba", "attention"] * 2},
    "hunyuan_v1_dense": {"head_dim": 16},
    "hunyuan_v1_moe": {"head_dim": 16},
    "hunyuan_vl_text": {"head_dim": 16, "rope_parameters": {**ROTARY, "mrope_section": [2, 2, 2, 2]}},
    "layoutlmv3": {"coordinate_size": 12, "shape_size": 8},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2},
    "lilt": {"hidden_size": 96},
    "mamba2": {"num_heads": 8},
    "ministral": {"head_dim": 16},
    "mobilebert": {"intra_bottleneck_size": 32, "normalization_type": "layer_norm"},
    "mpnet": {"relative_attention_num_buckets": 32},
    "nemotron": {"num_key_value_heads": 2},
    "paddleocr_vl_text": {"rope_parameters": AXES},
    "qwen2_5_vl_text": {"rope_parameters": AXES},
    "qwen2_vl_text": {"rope_parameters": AXES},
    "qwen4_exp_text": {"indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 16, "indexer_budget": 8,
                       "indexer_compress_ratio": 4},
    "reformer": {"axial_pos_embds_dim": [16, 48]},
    "squeezebert": {"embedding_size": 64},
    "step3p5": {"sliding_window": 8},
    "t5gemma": {"is_encoder_decoder": False},
    "t5gemma2_text": {"dropout_rate": 0.0},
    "xmod": {"default_language": "en_XX"},
    "zamba": {"attention_hidden_size": 128, "attention_head_dim": 32},
}  # fmt: skip
"""What single types need besides; also where one is a part of another."""
VARIANTS: dict[str, dict[str, Any]] = {
    "esm, token dropout": {"token_dropout": True, "position_embedding_type": "rotary"},
    "falcon, alibi": {"alibi": True},
    "llama, dynamic": {"rope_parameters": {"rope_type": "dynamic", "factor": 64.0, "rope_theta": 10000.0},
                       "max_position_embeddings": 24},
    "llama, eos list": {"eos_token_id": [2, 5]},
    "phi3, longrope": {"rope_parameters": LONGROPE, "original_max_position_embeddings": 24},
    "qwen2, windows": {"use_sliding_window": True, "layer_types": MIXED},
    "stablelm, bias": {"use_qkv_bias": True, "use_parallel_residual": True},
}  # fmt: skip
"""Other configurations of a type, that are run in another way: "type, which"."""
KINDS = tuple(sorted({*CONFIG_MAPPING_NAMES, *VARIANTS}))
"""Every type that transformers knows, and the variants."""
TAKES = {
    "pictures": ("pixel_values", "pixel_values_videos", "vision"),
    "sound": ("input_values", "input_features", "audio_mel", "latents", "audio"),
    "time series": ("past_values",),
}
"""What takes no token ids takes this instead, by the first argument of its forward."""


class LeftOut(Exception):
    """No model of this type can be built tiny and run on token ids; the message says why."""


def type_of(kind: str) -> str:
    """The model_type of a kind, which may be a variant."""
    return kind.split(",", maxsplit=1)[0]


def base_class(config: Any) -> Any:
    """The class that a user's AutoModel gives; of T5 and its kin the encoder.

    Raises:
        LeftOut: there is none, a package is missing, or it takes no token ids.
    """
    table = MODEL_FOR_TEXT_ENCODING_MAPPING if type(config) in MODEL_FOR_TEXT_ENCODING_MAPPING else MODEL_MAPPING
    if type(config) not in table:
        raise LeftOut("AutoModel has no class for it: a part of another model, or several models in one")
    try:
        found = table[type(config)]
    except (ImportError, ValueError) as e:
        raise LeftOut(f"cannot be imported: {first_line(e)}") from e
    found = found[0] if isinstance(found, tuple) else found
    arguments = list(inspect.signature(found.forward).parameters)[1:]
    if "input_ids" not in arguments:
        whole = f"{config.model_type} {arguments[0]}"
        what = next((what for what, marks in TAKES.items() if any(m in whole for m in marks)), f"`{arguments[0]}`")
        raise LeftOut(f"takes {what}, no token ids")
    return found


def tiny_config(kind: str) -> Any:
    """A small configuration.

    Raises:
        LeftOut: none can be made.
    """
    made = CONFIG_MAPPING[type_of(kind)]
    try:
        changes = shrunk(made(), text=True) | copy.deepcopy(VARIANTS.get(kind, {}))
        return made(**changes)
    except Exception as e:
        raise LeftOut(f"cannot be built tiny: {first_line(e)}") from e


def shrunk(config: Any, *, text: bool) -> dict[str, Any]:
    """The fields that must differ from the defaults, as arguments for another configuration of the type."""
    sizes, inner = SIZE if text else TOWER_SIZE, getattr(type(config), "sub_configs", {})
    names = [f.name for f in dataclasses.fields(config)] if dataclasses.is_dataclass(config) else list(config.to_dict())
    layers = [_value(config, n) for n in LAYER_NAMES]
    changes: dict[str, Any] = {}
    for name in names:
        value = _value(config, name)
        if name in inner and value is not None:
            changes[name] = shrunk(value, text=text and hasattr(value, "vocab_size"))
            if value.model_type in CONFIG_MAPPING:
                changes[name]["model_type"] = value.model_type
        elif isinstance(value, int) and not isinstance(value, bool) and value > 0:
            small = _small(config, name, value, names, sizes)
            if small != value:
                changes[name] = small
        elif isinstance(value, list) and len(value) in layers and len(value) > LAYERS:
            changes[name] = varied(value, sizes["num_hidden_layers"])
        elif isinstance(value, dict) and "mrope_section" in value:
            changes[name] = {**value, "mrope_section": AXES["mrope_section"]}
    for name, value in copy.deepcopy(NEEDS.get(config.model_type, {})).items():
        changes[name] = {**changes.get(name, {}), **value} if name in inner else value
    return changes


def _small(config: Any, name: str, value: int, names: list[str], sizes: dict[str, int]) -> int:
    if name in KEYS and value == _value(config, KEYS[name]):
        return HEADS
    if name == "head_dim" and "qk_rope_head_dim" in names:
        return SIZE["qk_rope_head_dim"]
    if name in ("pad_token_id", "bos_token_id", "eos_token_id") and value >= VOCABULARY:
        return ("pad_token_id", "bos_token_id", "eos_token_id").index(name)
    return min(value, sizes.get(name, value))


def _value(config: Any, name: str) -> Any:
    """A field's value; where it differs from layer to layer, the one that holds for most."""
    try:
        return getattr(config, name, None)
    except RuntimeError:
        return config.to_dict().get(name)


def varied(values: list[Any], n: int) -> list[Any]:
    """So many of them, each kind in turn in the order in which they first appear."""
    seen: list[Any] = []
    for value in values:
        if value not in seen:
            seen.append(value)
    return [seen[i % len(seen)] for i in range(n)]


def tiny_model(kind: str, seed: int = 0) -> nn.Module:
    """A model with large random weights, in eval mode, with its own eager attention.

    Raises:
        LeftOut: there is none that takes token ids.
    """
    config = tiny_config(kind)
    base_class(config)
    auto = AutoModelForTextEncoding if type(config) in MODEL_FOR_TEXT_ENCODING_MAPPING else AutoModel
    torch.manual_seed(seed)
    try:
        model = auto.from_config(config, attn_implementation="eager").eval()
    except Exception as e:
        raise LeftOut(f"cannot be built tiny: {first_line(e)}") from e
    randomise(model)
    return model  # type: ignore[no-any-return]


@torch.no_grad()
def randomise(model: nn.Module) -> None:
    """Weights larger than those models start with: attention is far from uniform, a mask that is ignored shows."""
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    for name, p in model.named_parameters():
        if not p.is_floating_point() or "A_log" in name or "dt" in name.rsplit(".", maxsplit=1)[-1]:
            continue
        if p.ndim >= 2:
            p.normal_(std=1.0 if id(p) in tables or "embed" in name else 1.2 * p.shape[-1] ** -0.5)
        elif name.endswith(("bias", "sinks")):
            p.normal_(std=0.3)


def write(kind: str, folder: Path, seed: int = 0) -> Path:
    """Write a model and its tokenizer as a user would have them.

    Raises:
        LeftOut: there is none that takes token ids.
    """
    model: Any = tiny_model(kind, seed)
    try:
        model.save_pretrained(folder)
    except Exception as e:
        raise LeftOut(f"cannot be saved: {first_line(e)}") from e
    tokenizer(model.config).save_pretrained(folder)
    return folder


def tokenizer(config: Any) -> PreTrainedTokenizerFast:
    """Bytes; the padding token has the type's own id, since RoBERTa and its kin count positions by it."""
    pad = getattr(config.get_text_config(), "pad_token_id", None)
    specials = ["<pad>", "<s>", "</s>", "[MASK]", "[CLS]", "[SEP]", "<mask>", "<|endoftext|>"]
    if isinstance(pad, int) and 0 < pad < len(specials):
        specials.insert(pad, specials.pop(0))
    vocabulary = {token: i for i, token in enumerate([*specials, *sorted(pre_tokenizers.ByteLevel.alphabet())])}
    backend = Tokenizer(models.BPE(vocabulary, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    encoder = config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES
    single = "$A </s>" if config.is_encoder_decoder else "[CLS] $A [SEP]" if encoder else "<s> $A"
    around = [(t, vocabulary[t]) for t in single.split() if t != "$A"]
    backend.post_processor = processors.TemplateProcessing(single=single, special_tokens=around)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", bos_token="<s>", eos_token="</s>", cls_token="[CLS]",
        sep_token="[SEP]", additional_special_tokens=["<mask>", "<|endoftext|>"],
        **({"mask_token": "[MASK]"} if encoder else {}),
    )  # fmt: skip


def first_line(e: BaseException) -> str:
    """What an error says, in one line, without the places of this machine."""
    said = re.sub(r" from '[^']*'", "", str(e))
    lines = (line.strip() for line in said.splitlines())
    return next((line for line in lines if line and not line.startswith("Class validation")), type(e).__name__)[:300]
