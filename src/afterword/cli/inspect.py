"""``afterword inspect``: what a model is, how it is run, and what was measured on this machine just now."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from . import options as o
from .model import VECTOR, ModelChoice, read_methods

if TYPE_CHECKING:
    from ..encoder import Encoder
    from ..files.write import Array

TEXTS = (
    "dog",
    "a b",
    "I",
    "no",
    "dog",
    "a c",
    "?",
    "one two three",
    "cat",
    "it is so",
    "rain",
    "the sea",
    "the sea at night",
    "what is this?",
    "a cat sat",
    "he said nothing at all",
    "nobody knows",
    "word " * 130,
    "river " * 61,
    "and so on " * 11,
    "The bank raised its rates.",
    "We walked along the bank of the river until the evening, and nobody said a word.",
    "每个词都回头看后面的话。",
    "It was the best of times, it was the worst of times, it was the age of wisdom. " * 8,
)
"""Texts of very different lengths, many of them shorter than what kernels work on at a time."""
BATCHES = (2048, 160, 24)
"""Tokens of a batch, about."""

WAYS = {
    "flat": "flat: all texts end to end, through our attention",
    "stacked": "stacked: batches of texts of one length, through our attention",
    "eager": "eager: batches of texts of one length, with the model's own attention",
}


PRODUCTS = {"float32": "", "bfloat16": ", products in bfloat16"}


def inspect(
    model: o.Model,
    method: o.Method = None,
    max_length: o.MaxLength = None,
    device: o.Device = None,
    dtype: o.Dtype = None,
    products: o.Products = None,
    revision: o.Revision = None,
    trust_remote_code: o.Trust = False,
    as_json: o.AsJson = False,
) -> int:
    """Print a model's facts.

    How it is run, and whether a batch changes its vectors, measured now.
    """
    methods = read_methods([method] if method is not None else None)
    encoder = ModelChoice(model, device, dtype, max_length, revision, trust_remote_code, products).load(
        methods.get(VECTOR)
    )
    found = {"model": model, **facts(encoder), "batch_invariance": invariance(encoder)}
    found |= {"packed": packed(encoder), "kernels": kernels(encoder)}
    found["methods"] = suggestions(encoder)
    typer.echo(json.dumps(found, indent=2, ensure_ascii=False) if as_json else printed(found))
    return 0


def facts(encoder: Encoder) -> dict[str, Any]:
    """What loading found out."""
    f, backbone, tokenizer = encoder.backbone.facts, encoder.backbone, encoder.backbone.tokenizer
    return {
        "kind": f.kind,
        "experts": any("experts" in name for name, _ in backbone.model.named_parameters()),
        "parameters": sum(p.numel() for p in backbone.model.parameters()),
        "layers": f.layers,
        "heads": f.heads,
        "width": f.width,
        "dimension": encoder.dimension,
        "max_length": encoder.max_length,
        "causal": f.causal,
        "way": f.way,
        "attention": f.attention,
        "self_check": f.checks,
        "rotary_split": f.split_at,
        "device": str(backbone.device),
        "dtype": str(backbone.dtype).removeprefix("torch."),
        "products": backbone.products,
        "special_tokens": {"before": tokenizer.tokens(tokenizer.prefix), "behind": tokenizer.tokens(tokenizer.suffix)},
        "method": str(encoder.method),
        "after": [type(step).__name__.lower() for step in encoder.post],
        "prompts": encoder.prompts or {},
    }


def invariance(encoder: Encoder) -> dict[str, Any]:
    """How far a text's vector in a batch is from its vector alone, on a few texts.

    Returns:
        texts: how many; differing: how many are not the same to the bit; largest: the largest difference, and
        relative to the largest component; bits: how many of the last bits it takes up; batch_tokens: of each batch.
    """
    import numpy as np

    texts = list(TEXTS)
    alone = np.stack([encoder.encode(text, on_long="ignore") for text in texts])
    batches = [encoder.encode(texts, on_long="ignore", batch_tokens=tokens) for tokens in BATCHES]
    differing = np.any([(batch != alone).any(1) for batch in batches], 0)
    together = max(batches, key=lambda batch: float(np.abs(batch - alone).max()))
    largest = float(np.abs(together - alone).max())
    return {
        "texts": len(texts),
        "batch_tokens": list(BATCHES),
        "differing": int(differing.sum()),
        "largest": largest,
        "relative": largest / float(np.abs(alone).max()),
        "bits": bits(together, alone),
    }


def bits(a: Array, b: Array) -> int:
    """How many of a number's last bits differ between two arrays, at most, counted in steps between neighbours.

    >>> import numpy as np
    >>> bits(np.float32([1.0]), np.float32([1.0])), bits(np.float32([1.0]), np.nextafter(np.float32([1.0]), 2))
    (0, 1)
    """
    import numpy as np

    whole = np.int64 if a.dtype == np.float64 else np.int32
    steps = [x.view(whole).astype(object) for x in (a, b)]
    low = int(np.iinfo(whole).min)
    ordered = [np.where(s < 0, low - s, s) for s in steps]  # negative floats count downwards
    return max((abs(int(d)).bit_length() for d in (ordered[0] - ordered[1]).ravel()), default=0)


def packed(encoder: Encoder) -> str:
    """Whether packed linear layers are in use, and if not, why."""
    import torch

    from ..backbone.linear_products import forced

    linears = encoder.backbone.packed
    with torch.no_grad():
        usable = linears.usable()
    if usable:
        every = sum(linears.shapes().values())
        return "used" if len(linears.layers) == every else f"used for {len(linears.layers)} of {every} linear layers"
    if forced() == "plain":
        return "not used: AFTERWORD_KERNELS=plain"
    if encoder.backbone.device.type != "cpu":
        return "not used: they are for CPUs"
    if any(row["kernel"] == "packed" for row in kernels(encoder)):
        return "not used: too little memory"
    return "not used: plain kernels are as good here, or there are no others"


def kernels(encoder: Encoder) -> list[dict[str, Any]]:
    """Which kernel makes the products of linear layers on a CPU, and what the probe saw.

    Returns:
        Per shape of layer: layer, how many layers, the kernel; by kernel that was asked, whether it keeps a text's
        bits in every batch, the largest batch that was tried (rows), and its seconds for one product.
    """
    import torch

    from ..backbone.linear_probe import choose, chosen

    backbone = encoder.backbone
    if backbone.device.type != "cpu" or backbone.dtype not in (torch.float32, torch.bfloat16):
        return []
    found = []
    for shape, layers in backbone.packed.shapes().items():
        kernel = chosen(shape, backbone.dtype, backbone.products)
        seen = choose(shape, backbone.dtype, backbone.products, also=(kernel,))
        rows = {name: max(tried, default=0) for name, tried in seen.rows.items()}
        found.append({"layer": str(shape), "layers": layers, "kernel": kernel, "keeps_bits": seen.keeps,
                      "largest_batch": rows, "seconds": seen.seconds})  # fmt: skip
    return found


def suggestions(encoder: Encoder) -> list[dict[str, str]]:
    """Methods that suit the model, as ``--method`` takes them, and why."""
    f = encoder.backbone.facts
    masked = encoder.backbone.tokenizer.hf.mask_token_id is not None
    wanted = [("classical", True, "the mean of the last layer: where to start")]
    if f.causal:
        wanted += [
            ("reba:pool=mean", f.attention, "each token gathers what attends back to it from a second copy"),
            ("echo", True, "the text twice, the second copy pooled: every token has seen the whole text"),
            ("prompt:template=eol", True, "the state where the text's one word would follow"),
            ("bellm", f.way != "eager", "the last layer sees both ways"),
        ]
    else:
        wanted += [
            ("classical:states=first_last", True, "the mean of the first and the last layer"),
            (
                "ditto" if f.heads >= 10 else f"ditto:head=1-{f.heads}",
                f.attention,
                "each token weighted by how much it attends to itself in one head",
            ),
            ("prompt:template=promptbert", masked, "the state of [MASK] in a sentence about the text"),
        ]
    return [{"method": name, "why": why} for name, fits, why in wanted if fits]


def measured(found: dict[str, Any]) -> str:
    """What holds of a text's vector in a batch, as far as it was measured."""
    same = found["batch_invariance"]
    tried = f"{same['texts']} texts, in batches of about {', '.join(map(str, same['batch_tokens']))} tokens"
    if same["differing"]:
        return (
            f"{same['differing']} of {same['texts']} texts differ in a batch: by {same['largest']:.1e} at most "
            f"({same['relative']:.1e} of the largest component, the last {same['bits']} bits)"
        )
    if found["dtype"] != "float32" or found["device"] != "cpu" or found["products"] != "float32":
        where = f"{found['dtype']} on {found['device']}"
        return f"no difference was seen, alone and in a batch ({tried}); {where} promises no more than that"
    if found["experts"]:
        return f"no difference was seen, alone and in a batch ({tried}); experts promise no more than that"
    if not all(row["keeps_bits"].get(row["kernel"], True) for row in found["kernels"]):
        return f"no difference was seen, alone and in a batch ({tried}); the kernel promises no more than that"
    return f"the same to the last bit, alone and in a batch ({tried})"


def seen(row: dict[str, Any]) -> str:
    """What the probe saw of one shape of layer."""
    kernel, seconds = row["kernel"], row["seconds"]
    largest = row["largest_batch"].get(kernel, 0)
    said = f"{row['layer']} ({row['layers']}x): {kernel}, "
    if row["keeps_bits"].get(kernel):
        said += f"the same bits alone and among up to {largest:,} rows"
    else:
        others = [name for name, keeps in row["keeps_bits"].items() if keeps]
        why = f"; {others[0]} keeps them and is slower" if others else "; none keeps them"
        said += "a row's bits depend on its batch" + why
    if {"plain", "packed"} <= set(seconds):
        said += f"; packed has {seconds['plain'] / seconds['packed']:.2f} x the speed of plain"
    return said


def printed(found: dict[str, Any]) -> str:
    """The facts for a person to read."""
    checks = "; ".join(f"{way}: {what}" for way, what in found["self_check"].items())
    special = " ... ".join(" ".join(found["special_tokens"][side]) for side in ("before", "behind"))
    split = found["rotary_split"]
    rows: Sequence[tuple[str, Any]] = [
        ("model", f"{found['model']} ({found['kind']}, {found['parameters'] / 1e6:.1f} M parameters)"),
        ("layers x heads", f"{found['layers']} x {found['heads']}, width {found['width']}"),
        ("sees", "what came before (causal)" if found["causal"] else "both ways"),
        ("max length", f"{found['max_length'] or 'no limit'}" + (" tokens" if found["max_length"] else "")),
        ("special tokens", special if special.strip(" .") else "none"),
        ("runs on", f"{found['device']} in {found['dtype']}" + PRODUCTS[found["products"]]),
        ("way", WAYS[found["way"]]),
        ("self-check", checks),
        ("attention", "can be read" if found["attention"] else "cannot be read: no reba, no ditto"),
        ("long positions", f"texts on both sides of {split} tokens are run apart" if split else ""),
        ("vectors", measured(found)),
        ("packed linears", found["packed"]),
        *(("kernel" if i == 0 else "", seen(row)) for i, row in enumerate(found["kernels"])),
        ("method", f"{found['method']} -> {found['dimension']} components" + "".join(f", {s}" for s in found["after"])),
        ("prompts", ", ".join(f"{k}={v!r}" for k, v in found["prompts"].items())),
    ]
    lines = [f"{name:<15} {value}" for name, value in rows if value]
    return "\n".join([*lines, "try", *(f"    --method {m['method']:<28} {m['why']}" for m in found["methods"])])
