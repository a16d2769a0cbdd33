"""``afterword train``: fine-tune a model on rows of texts, and save it as an encoder."""

from __future__ import annotations

import sys
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ..jobs import VECTOR
from . import options as o
from .console import interruptible
from .model import ModelChoice, check_device, read_methods


def train(
    model: o.Model,
    data: Annotated[
        Path,
        typer.Option(
            "--data",
            metavar="FILE",
            show_default=False,
            help="Training rows: a .jsonl, .csv (both may be gzipped) or .parquet file with the columns anchor, "
            "positive and optionally negative; sentence1, sentence2, score; sentence1, sentence2, condition, label; "
            "or text, label.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option("--out", metavar="DIR", show_default=False, help="Folder for the trained encoder."),
    ],
    method: o.Method = None,
    dev: Annotated[
        Path | None,
        typer.Option(
            "--dev",
            metavar="FILE",
            help="Scored pairs that every checkpoint is evaluated on; the best checkpoint is kept.",
        ),
    ] = None,
    loss: Annotated[
        Literal["ranking", "cached_ranking", "angle", "cosent", "released"],
        typer.Option(
            "--loss",
            metavar="NAME",
            help="Loss: ranking, cached_ranking (large batches in little memory), angle, cosent, or released (the sum "
            "of losses in BeLLM's code).",
        ),
    ] = "ranking",
    temperature: Annotated[
        float, typer.Option("--temperature", metavar="T", help="Temperature of the ranking losses.")
    ] = 0.05,
    scale: Annotated[
        float, typer.Option("--scale", metavar="S", help="Scale of the angle, cosent and released losses.")
    ] = 20.0,
    weights: Annotated[
        str,
        typer.Option(
            "--weights",
            metavar="W,W,W",
            help="Weights of the parts of released: cosine, in-batch negatives, angle (cosine_w, ibn_w, angle_w of "
            "angle_emb).",
        ),
    ] = "1,1,1",
    mini_batch: Annotated[
        int, typer.Option("--mini-batch", metavar="N", help="Texts per forward pass of cached_ranking.")
    ] = 32,
    matryoshka: Annotated[
        str | None,
        typer.Option(
            "--matryoshka", metavar="N,N", help="Also train the first N components of a vector to work alone."
        ),
    ] = None,
    rank: Annotated[int, typer.Option("--rank", min=1, metavar="R", help="LoRA rank R.")] = 32,
    alpha: Annotated[int, typer.Option("--alpha", metavar="A", help="LoRA scales its update by A / R.")] = 32,
    dropout: Annotated[float, typer.Option("--dropout", metavar="P", help="LoRA dropout probability.")] = 0.1,
    targets: Annotated[
        str | None,
        typer.Option(
            "--targets", metavar="NAME,NAME", help="Names of the linear layers that LoRA adapts. Default: all."
        ),
    ] = None,
    full_rank: Annotated[bool, typer.Option("--full-rank", help="Train all weights instead of LoRA matrices.")] = False,
    four_bit: Annotated[
        bool, typer.Option("--four-bit", help="Keep the frozen weights in 4 bits (QLoRA). Needs CUDA.")
    ] = False,
    added: Annotated[
        int,
        typer.Option(
            "--add",
            metavar="N",
            help="Append N new layers with bidirectional attention; goes with --method bellm:last=N.",
        ),
    ] = 0,
    fresh: Annotated[
        bool,
        typer.Option("--fresh", help="Start the new layers from random weights, not as copies of the last layers."),
    ] = False,
    learning_rate: Annotated[float, typer.Option("--learning-rate", metavar="LR", help="Peak learning rate.")] = 2e-4,
    warmup: Annotated[
        float, typer.Option("--warmup", metavar="N", help="Warm-up steps, or their share of all steps.")
    ] = 0.1,
    batch_size: Annotated[int, typer.Option("--batch-size", metavar="N", help="Training rows per batch.")] = 64,
    accumulate: Annotated[
        int, typer.Option("--accumulate", metavar="N", help="Batches per optimizer step (gradient accumulation).")
    ] = 1,
    epochs: Annotated[float, typer.Option("--epochs", metavar="N", help="Passes over the training file.")] = 1.0,
    steps: Annotated[
        int | None, typer.Option("--steps", metavar="N", help="Optimizer steps, instead of --epochs.")
    ] = None,
    distinct: Annotated[
        bool,
        typer.Option(
            "--distinct/--no-distinct",
            help="Put no text into a batch twice, because the other texts of a batch serve as negatives.",
        ),
    ] = True,
    max_length: o.MaxLength = None,
    prompt: o.Prompt = None,
    precision: Annotated[
        Literal["float32", "bfloat16"] | None,
        typer.Option(
            "--precision",
            metavar="WHAT",
            help="Precision: float32, or bfloat16 autocast over float32 weights. Default: bfloat16 on a GPU that "
            "supports it.",
        ),
    ] = None,
    checkpointing: Annotated[
        bool,
        typer.Option("--gradient-checkpointing", help="Recompute activations: less memory, about a third more time."),
    ] = False,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Random seed.")] = 42,
    every: Annotated[int, typer.Option("--every", metavar="N", help="Optimizer steps between checkpoints.")] = 100,
    patience: Annotated[
        int, typer.Option("--patience", metavar="N", help="Stop after N evaluations without a better score; 0 = never.")
    ] = 0,
    log_every: Annotated[
        int,
        typer.Option(
            "--log-every",
            metavar="N",
            help="Optimizer steps between two lines of loss.jsonl. The last step is always logged.",
        ),
    ] = 10,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the last checkpoint in DIR, or start if there is none.")
    ] = False,
    keep_adapter: Annotated[
        bool, typer.Option("--keep-adapter", help="Also save the LoRA adapter to DIR/adapter.")
    ] = False,
    device: o.Device = None,
    trust_remote_code: o.Trust = False,
    progress: o.Progress = None,
) -> None:
    """Train a model on triplets or scored pairs, with LoRA or with all its weights.

    The result is a folder that Afterword and sentence-transformers load, with loss.jsonl and training.json in it.
    On several GPUs: torchrun --nproc-per-node N -m afterword train ...

    Examples:
        afterword train -m afterword-mini --method bellm:last=2 --data triplets.jsonl --out my-encoder
    """
    given: dict[str, Any] = dict(locals())
    from ..train.rows import TrainingRows
    from ..train.settings import Settings, is_first

    given |= {
        "targets": _list(targets), "matryoshka": _numbers(matryoshka, "--matryoshka", int, "256,128"),
        "weights": _numbers(weights, "--weights", float, "0,20,1"),
    }  # fmt: skip
    named = read_methods([method] if method is not None else None).get(VECTOR)
    chosen = given | {"rank": 0 if full_rank else rank, "method": named}
    settings = Settings(**{f.name: chosen[f.name] for f in fields(Settings) if f.name in chosen})
    for holds, contrary, name in ((full_rank, "--full-rank", "rank"), (steps is not None, "--steps", "epochs")):
        if holds and given[name] != getattr(Settings, name):
            raise typer.BadParameter(f"has no effect with {contrary}: leave one of them out", param_hint=f"--{name}")
    rows, scored = TrainingRows.read(data), None if dev is None else TrainingRows.read(dev)
    ModelChoice(model).located()
    from ..train import train as run

    check_device(device)
    with interruptible(lambda: kept(out)):
        run(
            model, rows, out, dev=scored, settings=settings, resume=resume, keep_adapter=keep_adapter,
            device=device, trust_remote_code=trust_remote_code, log_every=log_every,
            progress=sys.stderr.isatty() if progress is None else progress,
        )  # fmt: skip
    if is_first():
        typer.echo(summary(out))


def kept(out: Path) -> str:
    """What is kept of a run that ends now, and how it goes on."""
    from ..train.settings import Place

    last = Place(out).last()
    if last is None:
        return "there is no checkpoint yet, and nothing is kept"
    return f"{last} is kept; the same command with --resume goes on from it"


def summary(out: Path) -> str:
    """The last line of a finished run: its number of steps and its best score."""
    from ..train.settings import Place

    done = (Place(out).record() or {})["finished"]
    best = "" if done["best_dev"] is None else f", best on dev {100 * done['best_dev']:.2f} at step {done['best_step']}"
    return f"{out}: {done['steps']} steps{best}"


def _list(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",")) if text else ()


def _numbers(text: str | None, option: str, kind: type[int] | type[float], example: str) -> tuple[Any, ...]:
    try:
        return tuple(kind(part) for part in _list(text))
    except ValueError:
        raise typer.BadParameter(f"{text!r}: write numbers, as in {example}", param_hint=option) from None
