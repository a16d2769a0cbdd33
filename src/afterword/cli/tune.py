"""``afterword tune``: find the best recipe for a model on the user's pairs, and save it as an encoder."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..jobs import VECTOR
from . import options as o
from .console import interruptible, without_advice
from .drawing import check_plot
from .inputs import open_reader
from .model import ModelChoice, read_methods, short_name
from .progress import Bar

if TYPE_CHECKING:
    from ..encode.limits import Limits
    from ..encoder import Encoder
    from ..tasks.pairs import ScoredPairs
    from ..tune import Grid, HeadMap

Dev = Annotated[
    Path | None,
    typer.Option(
        "--dev", metavar="FILE",
        help="Development pairs with human scores: a .jsonl, .csv (both may be gzipped) or .parquet file with "
        "sentence1, sentence2 and score.",
    ),
]  # fmt: skip
Tests = Annotated[
    list[Path] | None,
    typer.Option(
        "--test", metavar="FILE", help="Test pairs: only the chosen recipe and the default are scored on them. "
        "May be given several times.",
    ),
]  # fmt: skip
Texts = Annotated[
    Path | None,
    typer.Option(
        "--texts", metavar="FILE",
        help="Instead of --dev: texts without scores. The attention head for Ditto is chosen by its correlation with "
        "TF-IDF.",
    ),
]  # fmt: skip
Labels = Annotated[
    Literal["none"] | None,
    typer.Option(
        "--labels", metavar="none",
        help="Instead of --dev: there are no scores. A layer is chosen by a measure of its vectors of --input's texts.",
    ),
]  # fmt: skip
Criterion = Annotated[
    Literal["dataset_entropy", "dimension", "prompt_entropy", "curvature"] | None,
    typer.Option(
        "--criterion", metavar="NAME",
        help="With --labels none, the measure that chooses: dataset_entropy, dimension, prompt_entropy or curvature. "
        "Default: dataset_entropy.",
    ),
]  # fmt: skip
Templates = Annotated[
    list[str] | None,
    typer.Option(
        "--template", metavar="TEMPLATE",
        help="Also try this template: a name (see `afterword methods`) or a string with {text}. Each costs one more "
        "forward pass. May be given several times.",
    ),
]  # fmt: skip
Posts = Annotated[
    list[str] | None,
    typer.Option(
        "--post", metavar="STEP",
        help="Try this post-processing step on the best recipes: whiten, whiten:dimensions=256, remove_top:k=1, ..., "
        "or none. May be given several times. Default: whiten, the same with epsilon=0.01,rotate=true, remove_top, "
        "remove_mean, standardise and, for a decoder with its head, embed_filter. Centring is always tried.",
    ),
]  # fmt: skip
Quick = Annotated[
    bool,
    typer.Option(
        "--quick",
        help="Leave out the published methods that need forward passes of their own: prompts, Token Prepending, SCSP, "
        "a temperature, ensembles of prompts.",
    ),
]  # fmt: skip


def tune(
    model: o.Model,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", show_default=False, help="A new folder for the chosen encoder.")
    ],
    dev: Dev = None,
    test: Tests = None,
    texts: Texts = None,
    labels: Labels = None,
    input: o.Input = None,
    criterion: Criterion = None,
    method: o.Method = None,
    template: Templates = None,
    copies: Annotated[
        str | None,
        typer.Option(
            "--copies",
            metavar="K,K",
            help="Numbers of copies to try for Echo and ReBA. Default: 1,2 for a causal model, else 1.",
        ),
    ] = None,
    both_ways: Annotated[
        str | None,
        typer.Option(
            "--both-ways",
            metavar="B,B",
            help="Also try bidirectional attention in the last B layers (BeLLM). Each B costs one more forward pass.",
        ),
    ] = None,
    heads: Annotated[
        Literal["paper", "all", "none"],
        typer.Option(
            "--heads",
            metavar="WHICH",
            help="Try Ditto with every attention head: on the three states of its paper (paper), on all states (all), "
            "or not at all (none).",
        ),
    ] = "paper",
    post: Posts = None,
    quick: Quick = False,
    seed: Annotated[int, typer.Option("--seed", min=0, metavar="N", help="Random seed.")] = 0,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Draw the scores of all heads to this .png, .svg or .pdf file."),
    ] = None,
    dark: o.Dark = False,
    max_length: o.MaxLength = None,
    batch_tokens: o.BatchTokens = None,
    device: o.Device = None,
    dtype: o.Dtype = None,
    revision: o.Revision = None,
    trust_remote_code: o.Trust = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the encoder that is saved in DIR.")] = False,
    progress: o.Progress = None,
    as_json: o.AsJson = False,
) -> int:
    """Find the best recipe (method and post-processing) for a model on your pairs, and save it as an encoder.

    One half of the pairs ranks the recipes; the other half tests whether the gain of the best one is real.
    DIR/tune.json and DIR/recipes.csv list every recipe that was tried, DIR/heads.csv the score of every head.

    Examples:
        afterword tune -m minilm --dev pairs.jsonl --out best
    """
    from ..files.atomic import check_folder

    others = (
        dev or texts or test or template or copies or both_ways or heads != "paper" or post or quick or seed or plot
    )
    check_labels(labels, input, criterion, bool(others))
    if labels is None and ((dev is None) == (texts is None) or (texts is not None and test)):
        raise typer.BadParameter("give --dev, or --texts alone if there are no scores", param_hint="--dev")
    if texts is not None and (template or copies or both_ways or heads != "paper" or post or quick or seed):
        raise typer.BadParameter(
            "chooses a head alone: leave --template, --copies, --both-ways, --heads, --post, --quick and --seed out",
            param_hint="--texts",
        )
    if plot is not None and heads == "none":
        raise typer.BadParameter("draws the scores of heads: leave --heads none out", param_hint="--plot")
    check_folder(out, overwrite)
    check_plot(plot, dark)
    from ..methods.serialize import make
    from ..tasks.pairs import read_pairs

    start = read_methods([method] if method is not None else None).get(VECTOR)
    sets = [(path.name, read_pairs(path)) for path in ([dev] if dev else []) + (test or [])]
    lines = read_texts(texts or input) if texts or input else []  # type: ignore[arg-type]
    for spelled in template or ():
        make("prompt", {"template": spelled})  # refuses a template that is none
    several, both = _numbers(copies, "--copies"), _numbers(both_ways, "--both-ways")
    choice = ModelChoice(model, device, dtype, max_length, revision, trust_remote_code)
    from ..encode.limits import Limits

    grid = read_grid(template, several, both, heads, post, quick)
    with without_advice():  # it is about to find the method to use
        encoder = choice.load(start)
    limits = Limits(encoder.max_length, batch_tokens=batch_tokens)
    report: dict[str, Any]
    head_scores: HeadMap | None
    total = None if dev is not None else len(lines) if labels is None else len(set(lines))
    again = "nothing is kept; the same command begins anew"
    with Bar("tune", "texts", total, show=progress) as bar, interruptible(lambda: again):
        if labels is not None:
            report = by_layer(encoder, lines, criterion or "dataset_entropy", limits, out, overwrite, bar.update)
            head_scores = None
        elif dev is None:
            report, head_scores = without_labels(encoder, lines, limits, out, overwrite, bar.update)
        else:
            report, head_scores = with_labels(encoder, sets, grid, limits, seed, out, overwrite, bar.update)
    if plot is not None and head_scores is not None:
        draw_head_map(head_scores, short_name(model), plot, dark)
    from ..tune.report import page

    typer.echo(json.dumps(report, ensure_ascii=False) if as_json else page(report, head_scores, out))
    return 0


def check_labels(labels: str | None, input: Path | None, criterion: str | None, others: bool) -> None:
    """Refuse options that do not go with ``--labels none``, or only with it.

    Raises:
        typer.BadParameter: one is given, or the texts are missing.
    """
    if labels is None and (input is not None or criterion is not None):
        raise typer.BadParameter("goes with --labels none", param_hint="--input" if input else "--criterion")
    if labels is not None and input is None:
        raise typer.BadParameter("give a file of texts with --input, instead of --dev", param_hint="--labels")
    if labels is not None and others:
        raise typer.BadParameter(
            "chooses a layer alone: leave --dev, --texts, --test, --template, --copies, --both-ways, --heads, --post, "
            "--quick, --seed and --plot out",
            param_hint="--labels",
        )


def draw_head_map(heads: HeadMap, model: str, plot: Path, dark: bool) -> None:
    """Draw the scores of all heads, or without labels their correlations with TF-IDF."""
    from ..papers import figure
    from ..papers.importance import plot_heads
    from ..tune.heads import spelled_head

    chosen = heads.label_free
    if heads.scores is None:
        table, best, label = heads.correlation, None, "correlation with TF-IDF × 100"
        note = f"each head's attention of a token to itself; dashed: head {spelled_head(chosen)}, the highest"
    else:
        table, best, label = heads.scores, heads.best, "Spearman × 100"
        note = (
            f"Ditto on the mean of the first and last states, all dev pairs; framed: head {spelled_head(best)}, the "
            f"best; dashed: head {spelled_head(chosen)}, chosen without labels, place {heads.place} of {table.size}"
        )
    figure.draw(
        plot,
        partial(plot_heads, scores=table, label=label, best=best, chosen=chosen),
        size=(2.4 + 0.38 * table.shape[1], 1.6 + 0.3 * table.shape[0]),
        title=f"{model}: attention heads",
        note=note,
        dark=dark,
    )


def read_texts(path: Path) -> list[str]:
    """Read the texts of a file.

    Raises:
        BadRow: a line cannot be read, or is blank.
    """
    from ..errors import BadRow
    from ..jobs.rows import items_of

    texts = []
    with closing(open_reader(None, path, None, None)) as reader:
        for item in items_of(reader):
            if item.problem is not None or item.text is None:
                raise BadRow(path, item.line, item.problem or "holds no text")
            texts.append(item.text)
    return texts


def read_grid(
    templates: Sequence[str] | None,
    copies: tuple[int, ...] | None,
    both_ways: tuple[int, ...] | None,
    heads: Literal["paper", "all", "none"],
    posts: Sequence[str] | None,
    quick: bool = False,
) -> Grid:
    """The recipes to try.

    Raises:
        MethodError: a step is unknown.
        typer.BadParameter: a step is not one that is fitted to vectors' moments or to the model.
    """
    from ..post import Affine, Centre, EmbedFilter, parse_post
    from ..tune import Grid

    grid = Grid(tuple(templates or ()), copies, both_ways or (), heads, published=not quick)
    if posts is None:
        return grid
    steps = [step for spec in posts for step in parse_post(spec)]
    tried = tuple(s for s in steps if isinstance(s, Affine | EmbedFilter) and not isinstance(s, Centre))
    if len(tried) < len(steps):
        raise typer.BadParameter(
            "give whiten, remove_top, remove_mean, standardise or embed_filter, one at a time, or none",
            param_hint="--post",
        )
    return replace(grid, posts=tried)


def _numbers(spelled: str | None, option: str) -> tuple[int, ...] | None:
    if spelled is None:
        return None
    parts = [part.strip() for part in spelled.split(",")]
    if not all(part.isascii() and part.isdecimal() and int(part) > 0 for part in parts):
        raise typer.BadParameter(f"{spelled!r}: write whole numbers from 1, as in 1,2", param_hint=option)
    return tuple(dict.fromkeys(int(part) for part in parts))


def with_labels(
    encoder: Encoder,
    sets: Sequence[tuple[str, ScoredPairs]],
    grid: Grid,
    limits: Limits,
    seed: int,
    out: Path,
    overwrite: bool,
    done: Callable[[int], object],
) -> tuple[dict[str, Any], HeadMap | None]:
    """Tune on the first set, score the chosen recipe on the others, and save."""
    from ..tune import head_map, score, tune
    from ..tune.report import as_json, save

    tuned = tune(encoder, sets[0][1], grid, seed=seed, limits=limits, on_progress=done)
    chosen = tuned.chosen
    tests = [
        {"name": name, "pairs": len(p.gold), "chosen": score(chosen, p), "default": score(encoder, p)}
        for name, p in sets[1:]
    ]
    save(tuned, out, tests, overwrite)
    return as_json(tuned, tests), head_map(tuned)


def without_labels(
    encoder: Encoder, texts: Sequence[str], limits: Limits, out: Path, overwrite: bool, done: Callable[[int], object]
) -> tuple[dict[str, Any], HeadMap]:
    """Choose an attention head by its correlation with TF-IDF, and save."""
    from ..tune import label_free
    from ..tune.report import save_head

    heads = label_free(encoder, texts, limits, done)
    return save_head(encoder, heads, len(texts), out, overwrite), heads


def by_layer(
    encoder: Encoder,
    texts: Sequence[str],
    criterion: str,
    limits: Limits,
    out: Path,
    overwrite: bool,
    done: Callable[[int], object],
) -> dict[str, Any]:
    """Choose a layer by a measure of its vectors, and save."""
    from ..tune import layers_without_labels
    from ..tune.report import save_layer

    return save_layer(encoder, layers_without_labels(encoder, texts, limits, done), criterion, out, overwrite)
