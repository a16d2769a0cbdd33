"""``afterword tune``: the best recipe for a model on one's own pairs, saved as an encoder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from . import options as o
from .inputs import items_of, open_reader
from .model import VECTOR, ModelChoice, read_methods, title_of
from .progress import RowsBar

if TYPE_CHECKING:
    from ..encode.limits import Limits
    from ..encoder import Encoder
    from ..tasks.pairs import ScoredPairs
    from ..tune import Grid, HeadMap

NOBODY_KNOWS = 1 << 60  # how many texts there will be: layouts are found out on the way

Dev = Annotated[
    Path | None,
    typer.Option(
        "--dev", metavar="FILE",
        help="Pairs with people's scores, .jsonl, .csv (perhaps .gz) or .parquet: sentence1, sentence2, score.",
    ),
]  # fmt: skip
Tests = Annotated[
    list[Path] | None,
    typer.Option(
        "--test", metavar="FILE", help="Other pairs, on which only the chosen recipe and the default are scored. "
        "May be given several times.",
    ),
]  # fmt: skip
Texts = Annotated[
    Path | None,
    typer.Option(
        "--texts", metavar="FILE",
        help="Instead of --dev: texts without scores. Ditto's head is chosen by its correlation with TF-IDF.",
    ),
]  # fmt: skip
Templates = Annotated[
    list[str] | None,
    typer.Option(
        "--template", metavar="TEMPLATE",
        help="Try this template too: a name, see `afterword methods`, or a string with {text}. A forward each.",
    ),
]  # fmt: skip
Posts = Annotated[
    list[str] | None,
    typer.Option(
        "--post", metavar="STEP",
        help="Fit this step to the leaders' vectors: whiten, whiten:dimensions=256, remove_top:k=1 ..., or none. "
        "May be given several times; otherwise whiten and remove_top. Centring is tried everywhere.",
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
    method: o.Method = None,
    template: Templates = None,
    copies: Annotated[
        str | None,
        typer.Option(
            "--copies", metavar="K,K", help="Copies for Echo and ReBA. Otherwise 1,2 on a causal model, 1 on others."
        ),
    ] = None,
    both_ways: Annotated[
        str | None,
        typer.Option("--both-ways", metavar="B,B", help="Let the last B layers see both ways (BeLLM). A forward each."),
    ] = None,
    heads: Annotated[
        Literal["paper", "all", "none"],
        typer.Option(
            "--heads",
            metavar="WHICH",
            help="Every head's diagonal (Ditto) on the three states of its paper, on all states, or none.",
        ),
    ] = "paper",
    post: Posts = None,
    seed: Annotated[int, typer.Option("--seed", min=0, metavar="N", help="Of the halves and of the bootstrap.")] = 0,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Draw the map of heads to this .png, .svg or .pdf file."),
    ] = None,
    max_length: o.MaxLength = None,
    batch_tokens: o.BatchTokens = None,
    device: o.Device = None,
    dtype: o.Dtype = None,
    products: o.Products = None,
    revision: o.Revision = None,
    trust_remote_code: o.Trust = False,
    progress: o.Progress = None,
    as_json: o.AsJson = False,
) -> int:
    """Find the recipe that serves a model best on your pairs, and save it as an encoder.

    Half of the pairs rank every recipe, the other half confirms the one that is taken. Everything that was tried is
    in DIR/tune.json and DIR/recipes.csv, the map of heads in DIR/heads.csv.
    """
    from ..encode.limits import Limits

    if (dev is None) == (texts is None) or (texts is not None and test):
        raise typer.BadParameter("give --dev, or --texts alone where there are no scores", param_hint="--dev")
    check_new(out)
    if plot is not None:
        from ..analysis.plots import check

        check(plot)
    sets = [(path.name, read_pairs(path)) for path in ([dev] if dev else []) + (test or [])]
    lines = read_texts(texts) if texts is not None else []
    grid = read_grid(template, copies, both_ways, heads, post)
    encoder = ModelChoice(model, device, dtype, max_length, revision, trust_remote_code, products).load(
        read_methods([method] if method is not None else None).get(VECTOR)
    )
    limits = Limits(encoder.max_length, batch_tokens=batch_tokens)
    found: dict[str, Any]
    found_heads: HeadMap | None
    with RowsBar(None, progress) as bar:
        if dev is None:
            found, found_heads = without_labels(encoder, lines, limits, out, bar)
        else:
            found, found_heads = with_labels(encoder, sets, grid, limits, seed, out, bar)
    if plot is not None and found_heads is not None:
        from ..analysis.plots import draw_heads

        draw_heads(found_heads.correlation if found_heads.scores is None else found_heads.scores, plot, title_of(model))
    from ..tune.report import page

    typer.echo(json.dumps(found, ensure_ascii=False) if as_json else page(found, found_heads, out))
    return 0


def check_new(out: Path) -> None:
    """Whether a folder can be made here.

    Raises:
        DataError: something is there already.
    """
    from ..errors import DataError

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DataError(f"{out} is there already: give --out a new folder")


def read_pairs(path: Path) -> ScoredPairs:
    """Scored pairs of a file."""
    from ..tasks.pairs import Pairs
    from ..tasks.rows import Folder

    return Pairs(path.name, path.name).load(Folder(path.parent))


def read_texts(path: Path) -> list[str]:
    """The texts of a file; one that cannot be used is an error.

    Raises:
        BadRow: a line that cannot be read, or is blank.
    """
    from ..errors import BadRow

    found = []
    for item in items_of(open_reader(None, path, None, None)):
        if item.problem is not None or item.text is None:
            raise BadRow(path, item.line, item.problem or "holds no text")
        found.append(item.text)
    return found


def read_grid(
    templates: Sequence[str] | None,
    copies: str | None,
    both_ways: str | None,
    heads: Literal["paper", "all", "none"],
    posts: Sequence[str] | None,
) -> Grid:
    """What is to be tried.

    Raises:
        MethodError: a step that is not known.
        typer.BadParameter: one that is not fitted to a mean and a covariance.
    """
    from ..post import Affine, Centre, parse_post
    from ..tune import Grid

    grid = Grid(tuple(templates or ()), _numbers(copies, "--copies"), _numbers(both_ways, "--both-ways") or (), heads)
    if posts is None:
        return grid
    steps = [step for spec in posts for step in parse_post(spec)]
    if any(not isinstance(step, Affine) or isinstance(step, Centre) for step in steps):
        raise typer.BadParameter("give whiten or remove_top, one at a time, or none", param_hint="--post")
    return Grid(grid.templates, grid.copies, grid.both_ways, heads, tuple(s for s in steps if isinstance(s, Affine)))


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
    bar: RowsBar,
) -> tuple[dict[str, Any], HeadMap | None]:
    """Tune on the first set, score the chosen on the others, save."""
    from ..tune import head_map, score, tune
    from ..tune.report import as_json, save

    bar.begin(0, NOBODY_KNOWS)
    tuned = tune(encoder, sets[0][1], grid, seed=seed, limits=limits, on_progress=bar.more)
    chosen = tuned.chosen
    tests = [
        {"name": name, "pairs": len(p.gold), "chosen": score(chosen, p), "default": score(encoder, p)}
        for name, p in sets[1:]
    ]
    save(tuned, out, tests)
    return as_json(tuned, tests), head_map(tuned)


def without_labels(
    encoder: Encoder, texts: Sequence[str], limits: Limits, out: Path, bar: RowsBar
) -> tuple[dict[str, Any], HeadMap]:
    """Choose a head by TF-IDF, save."""
    from ..tune import label_free
    from ..tune.report import save_head

    bar.begin(0, len(texts))
    heads = label_free(encoder, texts, limits, bar.more)
    return save_head(encoder, heads, len(texts), out), heads
