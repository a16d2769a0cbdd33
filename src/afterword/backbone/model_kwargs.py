"""Arguments for from_pretrained: which are passed on to transformers, and which are refused and why."""

from __future__ import annotations

from typing import Any

from ..errors import ModelError

REASONS = {
    "the check at load chooses how layers are run": "attn_implementation experts_implementation",
    "device= says where the model goes, whole": "device_map max_memory tp_plan tp_size device_mesh",
    "it is an argument of its own": "revision token subfolder local_files_only trust_remote_code",
    "cache_folder= says where files are kept": "cache_dir force_download proxies",
    "weights are read from safetensors only": "use_safetensors gguf_file from_tf from_flax state_dict weights_only",
    "what the model returns is settled here": "config output_loading_info output_attentions output_hidden_states "
    "return_dict torchscript use_cache",
}


ELSEWHERE = {name: reason for reason, names in REASONS.items() for name in names.split()}
"""Arguments of transformers' `from_pretrained` that are refused, and why."""


def check_model_kwargs(model_kwargs: dict[str, Any] | None, dtype: Any, quantization_config: Any) -> dict[str, Any]:
    """Validate arguments for transformers' `from_pretrained`; add dtype and quantisation, and return them.

    Raises:
        ModelError: an argument is not allowed, or is given twice.
    """
    options = dict(model_kwargs or {})
    if "torch_dtype" in options:  # its older name
        options.setdefault("dtype", options.pop("torch_dtype"))
    for name, value in (("dtype", dtype), ("quantization_config", quantization_config)):
        if value is not None and options.get(name, value) is not value:
            raise ModelError(f"{name} is given twice, as {value!r} and in model_kwargs as {options[name]!r}: give one")
        if value is not None:
            options[name] = value
    for name in options:
        if name in ELSEWHERE:
            raise ModelError(f"model_kwargs holds {name!r}, which is not passed on: {ELSEWHERE[name]}")
    return options
