"""How near `encode` comes to its ceiling: its CPU time over that of the same matrix products alone.

    python benchmarks/ceiling.py

The products are those of the linear layers of MiniLM, with the model's own weights, for the very numbers of tokens that
each forward had, by the faster of the plain and the packed kernel. Whatever `encode` does besides (tokenizing,
attention, norms, activations, pooling, Python) is in the part over 1.
"""

from collections.abc import Callable
from typing import Any

import torch
from measure import Row, in_turns, main, medians, ratio
from models import minilm_folder, stsb_sentences

from afterword import Encoder
from afterword.backbone.linear_patching import is_linear, is_transposed, shape_of
from afterword.backbone.linear_probe import choose
from afterword.backbone.linear_products import pack, packed_linear, plain_linear

AIMS = {"float32": "<= 1.25", "bfloat16": "<= 1.67"}


def forwards(encoder: Encoder, sentences: list[str]) -> list[int]:
    """How many tokens each forward has."""
    seen: list[int] = []
    handle = encoder.backbone.model.register_forward_pre_hook(
        lambda _, __, given: seen.append(given["input_ids"].numel()), with_kwargs=True
    )
    encoder.encode(sentences)
    handle.remove()
    return seen


def products(encoder: Encoder, tokens: list[int]) -> Callable[[], None]:
    """The same products, and nothing else."""
    backbone, calls = encoder.backbone, []
    inputs: dict[tuple[int, int], Any] = {}
    for name, module in backbone.model.named_modules():
        if not is_linear(module) or "pooler" in name:  # a pooler reads one token, and nobody reads the pooler
            continue
        shape, weight, transposed = shape_of(module), module.weight.detach(), is_transposed(module)
        seconds = choose(shape, backbone.dtype, also=("plain", "packed")).seconds
        packed = pack(weight.T if transposed else weight) if min(seconds, key=seconds.__getitem__) == "packed" else None
        for n in tokens:
            x = inputs.setdefault((n, shape.inputs), torch.randn(1, n, shape.inputs).to(backbone.dtype))
            calls.append((x, packed if packed is not None else weight, packed is not None, transposed))

    def run() -> None:
        with torch.no_grad():
            for x, weight, is_packed, transposed in calls:
                packed_linear(x, weight, None) if is_packed else plain_linear(x, weight, None, transposed)

    return run


def measure(quick: bool) -> list[Row]:
    sentences = stsb_sentences()[:16] if quick else stsb_sentences()
    rows = []
    for dtype, aim in list(AIMS.items())[: 1 if quick else None]:  # bfloat16 is slow where it is emulated
        encoder = Encoder.load(minilm_folder(), device="cpu", dtype=dtype)
        alone = products(encoder, forwards(encoder, sentences))
        calls = {"encode": lambda encoder=encoder: encoder.encode(sentences), "products": alone}
        seconds = in_turns(calls, 1 if quick else 5)
        what = f"MiniLM, {len(sentences)} sentences, {dtype}: encode / its matrix products alone, CPU time"
        rows.append(Row(what, ratio(seconds["encode"], seconds["products"]), aim, parts=medians(seconds)))
    return rows


if __name__ == "__main__":
    main("ceiling", measure)
