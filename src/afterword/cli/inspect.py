"""``afterword inspect``: print a model's properties and how it is run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import typer

from ..jobs import VECTOR
from . import options as o
from .console import without_advice
from .model import ModelChoice, read_methods
from .tables import page_width, wrapped

if TYPE_CHECKING:
    from ..encoder import Encoder

WAYS = {
    "flat": "all texts of a batch concatenated without padding",
    "stacked": "batches of texts of equal length, without padding",
    "eager": "batches of texts of equal length, with the model's own attention",
}


def inspect(
    model: o.Model,
    method: o.Method = None,
    max_length: o.MaxLength = None,
    device: o.Device = None,
    dtype: o.Dtype = None,
    revision: o.Revision = None,
    trust_remote_code: o.Trust = False,
    as_json: o.AsJson = False,
) -> int:
    """Print a model's properties, how it is run, and which methods to try.

    Examples:
        afterword inspect -m minilm
    """
    methods = read_methods([method] if method is not None else None)
    choice = ModelChoice(model, device, dtype, max_length, revision, trust_remote_code)
    with without_advice():  # the methods to try are printed below
        encoder = choice.load(methods.get(VECTOR))
    report = {"model": model, **facts(encoder), "methods": suggestions(encoder)}
    typer.echo(json.dumps(report, indent=2, ensure_ascii=False) if as_json else printed(report))
    return 0


def facts(encoder: Encoder) -> dict[str, Any]:
    """The properties of a loaded model."""
    from ..backbone.packed_linear import packed_layers

    f, backbone, tokenizer = encoder.backbone.facts, encoder.backbone, encoder.backbone.tokenizer
    return {
        "kind": f.kind,
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
        "packed": bool(packed_layers(backbone.model)),
        "device": str(backbone.device),
        "dtype": str(backbone.dtype).removeprefix("torch."),
        "special_tokens": {"before": tokenizer.tokens(tokenizer.prefix), "after": tokenizer.tokens(tokenizer.suffix)},
        "method": str(encoder.method),
        "post": [type(step).__name__.lower() for step in encoder.post],
        "prompts": encoder.prompts or {},
    }


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


def printed(report: dict[str, Any]) -> str:
    """The report as text, in at most fifteen lines on a page of usual width."""
    limit = f"{report['max_length']} tokens" if report["max_length"] else "no limit"
    weights = "packed" if report["packed"] else "plain"
    steps = "".join(f", {step}" for step in report["post"])
    rows: list[tuple[str, Any]] = [
        ("model", f"{report['model']} ({report['kind']}, {report['parameters'] / 1e6:.1f} M parameters)"),
        ("layers", f"{report['layers']} of {report['heads']} heads, width {report['width']}"),
        ("direction", "causal: a token attends to earlier tokens" if report["causal"] else "bidirectional"),
        ("limit", limit),
        ("device", f"{report['device']}, {report['dtype']}, {weights} linear layers"),
        ("runs", WAYS[report["way"]]),
        ("self-check", f"{report['way']}: {report['self_check'][report['way']]}"),
        ("attention", "" if report["attention"] else "its weights cannot be read: reba and ditto are not available"),
        ("method", f"{report['method']} -> {report['dimension']} components{steps}"),
        ("prompts", ", ".join(report["prompts"])),
    ]
    width = page_width()
    lines = [line for name, value in rows if value for line in wrapped(value, width, " " * 12, f"{name:<11} ")]
    lines += [f"{'try' if i == 0 else '':<11} --method {m['method']}" for i, m in enumerate(report["methods"])]
    return "\n".join(lines)
