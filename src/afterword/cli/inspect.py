"""``afterword inspect``: print a model's properties, how it is run, and measurements on this machine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from ..jobs.names import VECTOR
from . import options as o
from .console import without_advice
from .model import ModelChoice, read_methods
from .page import page_width, wrapped

if TYPE_CHECKING:
    from ..encoder import Encoder
    from ..jobs.write_vectors import Array

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
"""Texts of very different lengths, many of them shorter than a block of the kernels."""
BATCHES = (2048, 160, 24)
"""Approximate numbers of tokens in a batch."""

WAYS = {
    "flat": "unpadded (flat): all texts concatenated, through our attention",
    "stacked": "unpadded (stacked): batches of texts of equal length, through our attention",
    "eager": "unpadded (eager): batches of texts of equal length, with the model's own attention",
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
    """Print a model's properties and how it is run.

    It also measures whether the batch that a text is in changes its vector.
    """
    methods = read_methods([method] if method is not None else None)
    choice = ModelChoice(model, device, dtype, max_length, revision, trust_remote_code, products)
    with without_advice():  # what to try is on the page
        encoder = choice.load(methods.get(VECTOR))
    report = {"model": model, **facts(encoder), "batch_invariance": invariance(encoder)}
    report |= {"packed": packed(encoder), "kernels": kernels(encoder)}
    report["methods"] = suggestions(encoder)
    typer.echo(json.dumps(report, indent=2, ensure_ascii=False) if as_json else printed(report))
    return 0


def facts(encoder: Encoder) -> dict[str, Any]:
    """The model's properties that are known once it is loaded."""
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
    """The difference between a text's vector in a batch and alone, on a few texts.

    Returns:
        texts: their number; differing: the number of texts whose vectors are not equal bit by bit; largest: the
        largest difference; relative: the same, divided by the largest component; bits: the number of last bits that
        it takes up; batch_tokens: the approximate numbers of tokens in a batch.
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
    """The largest number of last bits in which two arrays differ, counted in steps between neighbouring floats.

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
    """Whether packed linear layers are in use, and if not, the reason."""
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
    probed = kernels(encoder)
    if any(row["kernel"] == "packed" for row in probed):
        return "not used: too little memory"
    if any("packed" in row["seconds"] for row in probed):
        return "not used: plain ones are as good here"
    return "not used: this torch has none"


def kernels(encoder: Encoder) -> list[dict[str, Any]]:
    """The kernel that computes linear layers on a CPU, and the results of the probe.

    Returns:
        For each shape of layer: the shape, the number of layers, the kernel in use; and for each kernel that was
        probed: whether a row has the same bits in any batch, the number of rows of the largest batch that was tried,
        and the seconds of one product.
    """
    import torch

    from ..backbone.linear_probe import choose, choose_kernel

    backbone = encoder.backbone
    if backbone.device.type != "cpu" or backbone.dtype not in (torch.float32, torch.bfloat16):
        return []
    rows = []
    for shape, layers in backbone.packed.shapes().items():
        kernel = choose_kernel(shape, backbone.dtype, backbone.products)
        probe = choose(shape, backbone.dtype, backbone.products, also=(kernel,))
        largest = {name: max(tried, default=0) for name, tried in probe.rows.items()}
        rows.append({"layer": str(shape), "layers": layers, "kernel": kernel, "keeps_bits": probe.keeps,
                     "largest_batch": largest, "seconds": probe.seconds})  # fmt: skip
    return rows


def suggestions(encoder: Encoder) -> list[dict[str, str]]:
    """Methods that suit the model, as ``--method`` takes them, with the reason."""
    f = encoder.backbone.facts
    masked = encoder.backbone.tokenizer.hf.mask_token_id is not None
    wanted = [("classical", True, "the mean of the last layer: where to start")]
    if f.causal:
        wanted += [
            ("reba:pool=mean", f.attention, "the text twice; each token adds the later tokens that attend to it"),
            ("echo", True, "the text twice, the second copy pooled: its tokens attend to the whole text"),
            ("prompt:template=eol", True, "the hidden state that predicts one word for the text"),
            ("bellm", f.way != "eager", "bidirectional attention in the last layer"),
        ]
    else:
        wanted += [
            ("classical:states=first_last", True, "the mean of the first and the last layer"),
            (
                "ditto" if f.heads >= 10 else f"ditto:head=1-{f.heads}",
                f.attention,
                "each token weighted by how much it attends to itself in one head",
            ),
            ("prompt:template=promptbert", masked, "the hidden state of [MASK] in a sentence about the text"),
        ]
    return [{"method": name, "why": why} for name, fits, why in wanted if fits]


def measured(report: dict[str, Any]) -> str:
    """A sentence on whether the batch changes a text's vector, as far as it was measured."""
    same = report["batch_invariance"]
    tried = f"{same['texts']} texts, in batches of about {', '.join(map(str, same['batch_tokens']))} tokens"
    if same["differing"]:
        return (
            f"rounding depends on the batch: by at most {same['relative']:.1e} of the largest component "
            f"({same['differing']} of {same['texts']} texts differ in a batch, in the last {same['bits']} bits)"
        )
    if report["dtype"] != "float32" or report["device"] != "cpu" or report["products"] != "float32":
        where = f"{report['dtype']} on {report['device']}"
        return f"no difference was seen, alone and in a batch ({tried}); {where} promises no more than that"
    if report["experts"]:
        return f"no difference was seen, alone and in a batch ({tried}); experts promise no more than that"
    if not all(row["keeps_bits"].get(row["kernel"], True) for row in report["kernels"]):
        return f"no difference was seen, alone and in a batch ({tried}); the kernel promises no more than that"
    return f"the same to the last bit, alone and in a batch ({tried})"


def kernel_line(row: dict[str, Any]) -> str:
    """A line on one shape of layer: its kernel, and the results of the probe."""
    kernel, seconds = row["kernel"], row["seconds"]
    largest = row["largest_batch"].get(kernel, 0)
    line = f"{row['layer']} ({row['layers']}x): {kernel}, "
    if row["keeps_bits"].get(kernel):
        line += f"the same bits alone and among up to {largest:,} rows"
    else:
        others = [name for name, keeps in row["keeps_bits"].items() if keeps]
        why = f"; {others[0]} keeps them and is slower" if others else "; none keeps them"
        line += "a row's bits depend on its batch" + why
    if {"plain", "packed"} <= set(seconds):
        line += f"; packed has {seconds['plain'] / seconds['packed']:.2f} x the speed of plain"
    return line


def printed(report: dict[str, Any]) -> str:
    """The report as text."""
    checks = "; ".join(f"{way}: {what}" for way, what in report["self_check"].items())
    special = " ... ".join(" ".join(report["special_tokens"][side]) for side in ("before", "behind"))
    split = report["rotary_split"]
    rows: Sequence[tuple[str, Any]] = [
        ("model", f"{report['model']} ({report['kind']}, {report['parameters'] / 1e6:.1f} M parameters)"),
        ("layers x heads", f"{report['layers']} x {report['heads']}, width {report['width']}"),
        ("direction", "causal: a token attends to earlier tokens" if report["causal"] else "bidirectional"),
        ("max length", f"{report['max_length'] or 'no limit'}" + (" tokens" if report["max_length"] else "")),
        ("special tokens", special if special.strip(" .") else "none"),
        ("device", f"{report['device']} in {report['dtype']}" + PRODUCTS[report["products"]]),
        ("execution", WAYS[report["way"]]),
        ("self-check", checks),
        ("attention", "weights can be read" if report["attention"] else "weights cannot be read: no reba, no ditto"),
        ("long positions", f"texts on both sides of {split} tokens are run apart" if split else ""),
        ("vectors", measured(report)),
        ("packed linears", report["packed"]),
        *(("kernel" if i == 0 else "", kernel_line(row)) for i, row in enumerate(report["kernels"])),
        (
            "method",
            f"{report['method']} -> {report['dimension']} components" + "".join(f", {s}" for s in report["after"]),
        ),
        ("prompts", ", ".join(f"{k}={v!r}" for k, v in report["prompts"].items())),
    ]
    width = page_width()
    lines = [line for name, value in rows if value for line in wrapped(value, width, " " * 16, f"{name:<15} ")]
    lines.append("try")
    for m in report["methods"]:
        lines += wrapped(m["why"], width, " " * 42, f"    --method {m['method']:<28} ")
    return "\n".join(lines)
