"""``afterword similar``: print how similar texts are."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..errors import one_line
from . import options as o
from .console import REJECTED, say
from .inputs import check_one, open_reader, read_form
from .model import ModelChoice, check_condition, read_methods
from .similar_stored import Stored, open_stored
from .similar_texts import Side, embed_side, mean_of, read_items, summary
from .tables import Column, page_width, table, wrapped

if TYPE_CHECKING:
    from ..jobs.recipe import MethodsEmbedder
    from ..jobs.rows import Array, Item
    from .nearest import Nearest

MATRIX = 12  # maximum number of columns of a printed matrix
TOP = 10  # number of pairs that are printed, if neither --top nor --threshold is given
HEAD = 12  # maximum length of a method's name above its scores; longer ones are numbered
By = Literal["cosine", "dot", "euclidean", "manhattan"]


def similar(
    model: o.Model,
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="Texts to compare. Default: those of --input or stdin.")
    ] = None,
    input: o.Input = None,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against",
            metavar="FILE",
            help="Compare with the texts of this file instead of with each other. Vectors in a .parquet file or a "
            "folder that `afterword embed` wrote are used as they are. They are refused if the model, the method, the "
            "maximum length or the steps behind the method are others. --prompt and --condition are then those of the "
            "texts that are compared with the file's.",
        ),
    ] = None,
    format: o.Format = None,
    field: o.Field = None,
    delimiter: o.Delimiter = None,
    encoding: o.Encoding = None,
    no_header: o.NoHeader = False,
    method: o.Methods = None,
    by: Annotated[
        By | None,
        typer.Option(
            "--by",
            metavar="BY",
            help="Similarity function: cosine, dot, euclidean or manhattan (distances are negated). Default: the "
            "model's own, or cosine.",
        ),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(
            "--top",
            min=0,
            metavar="N",
            help="Print the N most similar pairs of all texts. Default: 10, or all with --threshold.",
        ),
    ] = None,
    threshold: Annotated[
        float | None, typer.Option("--threshold", metavar="X", help="Only pairs with a similarity of at least X.")
    ] = None,
    centre: Annotated[
        bool,
        typer.Option(
            "--centre",
            help="Subtract the mean of all vectors at hand, of both sides together, before they are compared: vectors "
            "of a raw language model all point one way, and then do no longer. A similarity then depends on the other "
            "texts: with few of them it says little (of three texts, the mean cosine is about -0.5), and scores of two "
            "runs cannot be compared.",
        ),
    ] = False,
    prompt: o.Prompt = None,
    prompt_name: o.PromptName = None,
    condition: Annotated[
        str | None,
        typer.Option("--condition", metavar="TEXT", help="The value of {condition} in the template, for every text."),
    ] = None,
    truncate_dim: o.TruncateDim = None,
    max_length: o.MaxLength = None,
    on_long: o.OnLong = "warn",
    batch_tokens: o.BatchTokens = None,
    device: o.Device = None,
    dtype: o.Dtype = None,
    revision: o.Revision = None,
    trust_remote_code: o.Trust = False,
    as_json: o.AsJson = False,
) -> int:
    """Print how similar texts are: a matrix, and the most similar pairs.

    Equal texts are compared once. Several methods give several columns; pairs are sorted by the first.

    Examples:
        afterword similar -m minilm "a cat sat down" "the feline took a seat" "interest rates rose"
        afterword similar -m minilm "my parcel is late" --against vectors.parquet --top 5
    """
    from ..jobs.stored import holds_vectors

    if threshold is not None and math.isnan(threshold):
        raise typer.BadParameter("nan is not a number", param_hint="--threshold")
    methods = read_methods(method)
    check_one(prompt=prompt, prompt_name=prompt_name)
    form = read_form(delimiter, encoding, no_header)
    settings = {
        "prompt": prompt, "prompt_name": prompt_name, "truncate_dim": truncate_dim,
        "batch_tokens": batch_tokens, "on_long": on_long,
    }  # fmt: skip
    choice = ModelChoice(model, device, dtype, max_length, revision, trust_remote_code)
    wanted = Wanted(by, TOP if top is None and threshold is None else top, threshold, centre)
    if input is not None and against is None and not texts and field is None and holds_vectors(input):
        if condition is not None:
            raise typer.BadParameter(f"the vectors of {input} are compared as they are", param_hint="--condition")
        stored = open_stored(input, choice, methods, settings)
        wanted = wanted.resolved(stored.embedder.encoder.similarity_fn_name)
        return _finish(within_stored(stored, wanted), [], as_json)
    if len(methods) > 1 and condition is not None:
        raise typer.BadParameter("a condition goes with one method", param_hint="--condition")
    check_condition(methods.values(), "--condition", condition is not None)
    vectors = against is not None and holds_vectors(against)
    if texts and against is not None and not vectors:  # then the options say how that file is read
        items = read_items(open_reader(texts, input, format, None), alone=False)
    else:
        items = read_items(open_reader(texts, input, format, field, form=form), alone=against is None)
    if against is not None and vectors:
        stored = open_stored(against, choice, methods, settings, True, condition)
        wanted = wanted.resolved(stored.embedder.encoder.similarity_fn_name)
        result = with_stored(embed_side(items, stored.embedder, not texts), stored, wanted)
    else:
        others = None if against is None else read_items(open_reader(None, against, None, field, form=form))
        from ..jobs.recipe import MethodsEmbedder

        embedder = MethodsEmbedder.open(choice, methods, settings, condition)
        result = _embedded(items, others, embedder, not texts, wanted)
    return _finish(result, [input] if vectors else [input, against], as_json)


@dataclass(frozen=True)
class Wanted:
    """Which pairs are wanted.

    Attributes:
        by: the similarity function; None = the model's own.
        top: how many pairs; None = all.
        threshold: the least similarity.
        centre: subtract the mean of all vectors first.
    """

    by: str | None
    top: int | None
    threshold: float | None
    centre: bool = False

    def resolved(self, own: str) -> Wanted:
        """These with a similarity function, by default the model's own.

        Raises:
            typer.BadParameter: centring changes no distance.
        """
        by = self.by or own
        if self.centre and by in ("euclidean", "manhattan"):
            raise typer.BadParameter(f"changes no distance: give --by cosine, not {by}", param_hint="--centre")
        return replace(self, by=by)


@dataclass(frozen=True)
class Compared:
    """The k most similar pairs of one side, or of two.

    Attributes:
        sides: the texts that are compared.
        pairs: the pairs, by the first method.
        by_method: their similarities (k,) by method.
        tables: all similarities (n, m) by method; None if there are too many.
        notes: lines to print at the end.
        threshold: the least similarity that was wanted.
        centred: whether the mean of all vectors was subtracted.
    """

    sides: Sequence[Side]
    pairs: Nearest
    by_method: dict[str, Array]
    tables: Callable[[], dict[str, Array]] | None = None
    notes: Sequence[str] = ()
    threshold: float | None = None
    centred: bool = False


def _finish(result: Compared, paths: Sequence[Path | None], as_json: bool) -> int:
    """Print the result, and then what was rejected on the sides that were embedded, which were read from `paths`."""
    typer.echo("\n".join(_json(result) if as_json else page(result)))
    for side, path in zip(result.sides, paths, strict=False):
        for line in summary(side, path):
            say(line)
    for line in result.notes:
        say(line)
    return REJECTED if any(side.rejected for side in result.sides) else 0


def _embedded(
    items: list[Item], others: list[Item] | None, embedder: MethodsEmbedder, numbered: bool, wanted: Wanted
) -> Compared:
    """Embed one side or two, and compare."""
    wanted = wanted.resolved(embedder.encoder.similarity_fn_name)
    sides = [embed_side(items, embedder, numbered, alone=others is None)]
    if others is not None:
        sides.append(embed_side(others, embedder, True))
    return compared(sides, wanted)


def compared(sides: Sequence[Side], wanted: Wanted) -> Compared:
    """Compare the texts of one side with each other, or with those of the other side."""
    from ..encode.similarity import similarity
    from .nearest import nearest, numbered

    if wanted.centre:
        means = {name: mean_of([side.vectors[name] for side in sides]) for name in sides[0].vectors}
        sides = [side.less(means) for side in sides]
    left, right, by = sides[0].vectors, sides[-1].vectors, wanted.by or "cosine"
    first = next(iter(left))
    options: dict[str, Any] = {"top": wanted.top, "threshold": wanted.threshold, "itself": len(sides) == 1}
    pairs = nearest(left[first], numbered(right[first]), by, **options)
    scores = _by_method(sides, pairs, by)

    def tables() -> dict[str, Array]:
        return {name: similarity(left[name], right[name], by) for name in left}

    return Compared(sides, pairs, scores, tables, threshold=wanted.threshold, centred=wanted.centre)


def with_stored(side: Side, stored: Stored, wanted: Wanted) -> Compared:
    """Compare texts with the stored vectors of a file."""
    by = wanted.by or "cosine"
    if wanted.centre:
        stored = stored.centred(side)
        side = side.less(stored.means)
    pairs, found = stored.nearest(side, by, wanted.top, wanted.threshold)
    scores = _by_method([side, found], pairs, by)
    return Compared([side, found], pairs, scores, None, stored.summary(), wanted.threshold, wanted.centre)


def within_stored(stored: Stored, wanted: Wanted) -> Compared:
    """Compare the stored vectors of a file with each other."""
    by, stored = wanted.by or "cosine", stored.centred() if wanted.centre else stored
    pairs, found = stored.within(by, wanted.top, wanted.threshold)
    scores = _by_method([found], pairs, by)
    return Compared([found], pairs, scores, None, stored.summary(), wanted.threshold, wanted.centre)


def _by_method(sides: Sequence[Side], pairs: Nearest, by: str) -> dict[str, Array]:
    """The similarities of pairs by each method; those by the first are known."""
    from ..encode.similarity import pairwise

    left, right = sides[0].vectors, sides[-1].vectors
    first, *others = left
    more = {name: pairwise(left[name][pairs.rows], right[name][pairs.columns], by) for name in others}
    return {first: pairs.scores, **more}


def _json(scores: Compared) -> list[str]:
    """One line of JSON: rows as they were given, all similarities, and the most similar pairs."""
    sides, left, right = scores.sides, scores.sides[0], scores.sides[-1]
    rows = [sorted((line, i) for i, lines in enumerate(side.lines) for line in lines) for side in sides]
    index = [[i for _, i in each] for each in rows]
    out: dict[str, Any] = {
        "texts": [left.texts[i] for i in index[0]],
        left.key: [line for line, _ in rows[0]],
        "against": None,
        "similarity": scores.tables
        and {
            name: [[_number(table[i, j]) for j in index[-1]] for i in index[0]]
            for name, table in scores.tables().items()
        },
        "pairs": [
            {
                "text": left.texts[i],
                left.key: left.lines[i],
                "against": right.texts[j],
                f"against_{right.key}": right.lines[j],
                "similarity": {name: _number(values[k]) for name, values in scores.by_method.items()},
            }
            for k, (i, j) in enumerate(zip(scores.pairs.rows, scores.pairs.columns, strict=True))
        ],
        "rejected": [{"line": line, "reason": reason} for line, reason in left.rejected],
    }
    out |= {"centred": True} if scores.centred else {}
    if len(sides) == 2 and scores.tables:
        out |= {"against": [right.texts[j] for j in index[1]], f"against_{right.key}": [line for line, _ in rows[1]]}
        out |= {"against_rejected": [{"line": line, "reason": reason} for line, reason in right.rejected]}
    return [json.dumps(out, ensure_ascii=False)]


def _number(score: Any) -> float:
    return float(f"{score:.9g}")


def page(scores: Compared) -> list[str]:
    """The lines of a page: with one method a matrix, if it is small; and the most similar pairs."""
    width = page_width()
    lines: list[str] = []
    if len(scores.by_method) == 1 and (matrix := _matrix(scores, width)):
        lines = [*matrix, ""]
    if len(scores.pairs.rows):
        return lines + _pairs(scores, width)
    if scores.threshold is not None:
        return [*lines, f"no pair has a similarity of at least {scores.threshold:g}"]
    return lines[:-1]


def _matrix(scores: Compared, width: int) -> list[str]:
    """A table with a row per text. Its columns are the lines of the texts, or letters that are explained below it."""
    sides, left, right = scores.sides, scores.sides[0], scores.sides[-1]
    if scores.tables is None:
        return []
    if len(right.texts) > MATRIX or len(left.texts) > 4 * MATRIX:
        return [f"{len(left.texts):,} x {len(right.texts):,} similarities; --json prints them all"]
    names = [str(lines[0]) for lines in left.lines]
    heads = names if len(sides) == 1 else [chr(ord("a") + n) for n in range(len(right.texts))]
    more = heads if len(sides) == 2 else []
    (similarities,) = scores.tables().values()
    columns = [Column([*names, *more], "label")]
    for head, values in zip(heads, similarities.T, strict=True):
        columns.append(Column([*map(_shown, values), *[""] * len(more)], "score", head))
    texts = [_counted(side, i) for side in sides for i in range(len(side.texts))]
    return table([*columns, Column(texts, "text")], width)


def _pairs(scores: Compared, width: int) -> list[str]:
    """A table with a row per pair: the similarity by each method, and the two texts."""
    names = [one_line(name) for name in scores.by_method]
    heads = names if max(map(len, names)) <= HEAD else [f"m{n}" for n in range(1, len(names) + 1)]
    lines = [
        line for head, name in zip(heads, names, strict=True) for line in wrapped(name, width, "    ", f"{head}  ")
    ]
    columns = [
        Column([_shown(x) for x in values], "score", head if len(names) > 1 else "")
        for head, values in zip(heads, scores.by_method.values(), strict=True)
    ]
    for side, rows in zip((scores.sides[0], scores.sides[-1]), (scores.pairs.rows, scores.pairs.columns), strict=True):
        if side.numbered:
            columns.append(Column([str(side.lines[i][0]) for i in rows], "label"))
        columns.append(Column([_counted(side, i) for i in rows], "text"))
    return (lines if heads != names else []) + table(columns, width)


def _shown(score: Any) -> str:
    return f"{score:.3f}" if abs(score) < 1e5 else f"{score:.6g}"


def _counted(side: Side, i: int) -> str:
    """A text; in front of it the number of rows that hold it, if there are several."""
    count = len(side.lines[i])
    return (f"({count}x) " if count > 1 else "") + side.texts[i]
