"""``afterword train``: a model and rows of texts to an encoder."""

from __future__ import annotations

import sys
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from . import options as o
from .load import check_device


def train(
    model: o.Model,
    data: Annotated[
        Path,
        typer.Option(
            "--data",
            metavar="FILE",
            show_default=False,
            help="A .jsonl, .csv (either may be .gz) or .parquet file with the columns anchor, positive and perhaps "
            "negative; sentence1, sentence2, score; or sentence1, sentence2, condition, label.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", show_default=False, help="Where the encoder goes.")],
    method: o.Method = None,
    dev: Annotated[
        Path | None,
        typer.Option("--dev", metavar="FILE", help="Scored pairs, evaluated at every checkpoint; the best is kept."),
    ] = None,
    loss: Annotated[
        Literal["ranking", "cached_ranking", "angle", "cosent", "released"],
        typer.Option(
            "--loss",
            metavar="NAME",
            help="ranking, cached_ranking (large batches in little memory), angle, cosent, or released (the sum in "
            "BeLLM's code).",
        ),
    ] = "ranking",
    temperature: Annotated[float, typer.Option("--temperature", metavar="T", help="Of the ranking losses.")] = 0.05,
    scale: Annotated[float, typer.Option("--scale", metavar="S", help="Of angle, cosent and released.")] = 20.0,
    mini_batch: Annotated[
        int, typer.Option("--mini-batch", metavar="N", help="Texts of a forward of cached_ranking.")
    ] = 32,
    matryoshka: Annotated[
        str | None,
        typer.Option("--matryoshka", metavar="N,N", help="Train the first so many components of a vector too."),
    ] = None,
    rank: Annotated[int, typer.Option("--rank", min=1, metavar="R", help="Of LoRA's matrices.")] = 32,
    alpha: Annotated[int, typer.Option("--alpha", metavar="A", help="LoRA adds A/R times their product.")] = 32,
    dropout: Annotated[float, typer.Option("--dropout", metavar="P", help="In front of LoRA's matrices.")] = 0.1,
    targets: Annotated[
        str | None,
        typer.Option("--targets", metavar="NAME,NAME", help="Layers that get them. Otherwise all linear ones."),
    ] = None,
    full_rank: Annotated[bool, typer.Option("--full-rank", help="Train every weight, without LoRA.")] = False,
    four_bit: Annotated[
        bool, typer.Option("--four-bit", help="Hold the frozen weights in 4 bits (QLoRA); needs CUDA.")
    ] = False,
    added: Annotated[
        int, typer.Option("--add", metavar="N", help="Append N new layers, which see both ways; --method bellm:last=N.")
    ] = 0,
    fresh: Annotated[bool, typer.Option("--fresh", help="They start fresh, not as copies of the last layers.")] = False,
    learning_rate: Annotated[float, typer.Option("--learning-rate", metavar="LR", help="At its highest.")] = 2e-4,
    warmup: Annotated[
        float, typer.Option("--warmup", metavar="N", help="Steps, or a share of all, in which it rises.")
    ] = 0.1,
    batch_size: Annotated[int, typer.Option("--batch-size", metavar="N", help="Rows of a step.")] = 64,
    accumulate: Annotated[int, typer.Option("--accumulate", metavar="N", help="Batches of a step.")] = 1,
    epochs: Annotated[float, typer.Option("--epochs", metavar="N", help="Passes over the rows.")] = 1.0,
    steps: Annotated[int | None, typer.Option("--steps", metavar="N", help="Or so many steps.")] = None,
    distinct: Annotated[
        bool, typer.Option("--distinct/--no-distinct", help="No text twice in a batch, where others are negatives.")
    ] = True,
    max_length: o.MaxLength = None,
    prompt: o.Prompt = None,
    precision: Annotated[
        Literal["float32", "bfloat16"] | None,
        typer.Option(
            "--precision",
            metavar="WHAT",
            help="float32, or bfloat16: autocast over float32 weights. Otherwise bfloat16 on a GPU that has it.",
        ),
    ] = None,
    checkpointing: Annotated[
        bool, typer.Option("--gradient-checkpointing", help="Less memory, a third more time.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Of everything that is drawn.")] = 42,
    every: Annotated[int, typer.Option("--every", metavar="N", help="Steps from checkpoint to checkpoint.")] = 100,
    patience: Annotated[
        int, typer.Option("--patience", metavar="N", help="Stop after so many evaluations without a better score.")
    ] = 0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the last checkpoint in DIR; start where there is none.")
    ] = False,
    keep_adapter: Annotated[
        bool, typer.Option("--keep-adapter", help="Save LoRA's matrices to DIR/adapter as well.")
    ] = False,
    device: o.Device = None,
    trust_remote_code: o.Trust = False,
    progress: o.Progress = None,
) -> None:
    """Train a model on triplets or scored pairs, with LoRA or all its weights.

    The result is a folder that `afterword` and sentence-transformers open; loss.jsonl and training.json lie in it.
    On several GPUs: torchrun --nproc-per-node N -m afterword train ...
    """
    given: dict[str, Any] = dict(locals())
    from ..train import Settings
    from ..train import train as run
    from ..train.checkpoints import Place, is_first

    check_device(device)
    given |= {"rank": 0 if full_rank else rank, "targets": _list(targets), "matryoshka": _numbers(matryoshka)}
    settings = Settings(**{f.name: given[f.name] for f in fields(Settings) if f.name in given and f.name != "method"})
    try:
        run(
            model, data, out, method=method, dev=dev, settings=settings, resume=resume, keep_adapter=keep_adapter,
            device=device, trust_remote_code=trust_remote_code,
            progress=sys.stderr.isatty() if progress is None else progress,
        )  # fmt: skip
    except KeyboardInterrupt:
        if is_first() and (last := Place(out).last()):
            typer.echo(f"{last} is kept: the same command with --resume goes on from it", err=True)
        raise
    if is_first():
        typer.echo(summary(out))


def summary(out: Path) -> str:
    """What a finished run says of itself."""
    from ..train.checkpoints import Place

    done = (Place(out).record() or {})["finished"]
    best = "" if done["best_dev"] is None else f", best on dev {100 * done['best_dev']:.2f} at step {done['best_step']}"
    return f"{out}: {done['steps']} steps{best}"


def _list(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",")) if text else ()


def _numbers(text: str | None) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in _list(text))
    except ValueError:
        raise typer.BadParameter(f"{text!r}: write numbers, as in 256,128", param_hint="--matryoshka") from None
