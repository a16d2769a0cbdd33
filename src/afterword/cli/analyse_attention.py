"""``afterword analyse impact``, ``heads`` and ``attention``: what matters to a model's tokens."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import one_line
from . import options as o
from .model import ModelChoice, read_methods
from .option_groups import Figure, Models, Run, Texts, items, read_input
from .progress import CountedBar
from .tables import BOLD, aligned, styled

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..encode.limits import Limits
    from ..encoder import Encoder
    from ..papers.attention import AttentionMatrix, ForwardAttention
    from ..papers.heads import Follows, Measure
    from ..papers.impact import Impact
    from ..tasks.pairs import ScoredPairs

Rows = list[dict[str, Any]]
"""Each head with its correlations and its scores, the best first."""

Corpus = Annotated[
    Path | None,
    typer.Option(
        "--corpus", metavar="FILE",
        help="Count document frequencies for TF-IDF in the texts of this file, of any format of --input. Default: in "
        "the texts themselves.",
    ),
]  # fmt: skip


def impact(
    model: Models,
    texts: Texts,
    corpus: Corpus = None,
    first: Annotated[
        int,
        typer.Option(
            "--first", min=1, metavar="N", help="Use the first N texts. A text of k tokens is run k*k/2 times."
        ),
    ] = 200,
    heads: Annotated[int, typer.Option("--heads", min=0, metavar="N", help="Print the N best attention heads.")] = 5,
    *, figure: Figure, run: Run,
) -> int:  # fmt: skip
    """Measure how well the importance of tokens to an encoder correlates with TF-IDF.

    Importance is measured by perturbed masking (the impact matrix), and by each head's attention of a token to
    itself. A correlation is that of the tokens of one text, averaged over texts. The plot shows the impact matrix of
    the first text, a file for each model. --json has the matrices of all texts.

    Examples:
        afterword analyse impact -m minilm -i texts.txt --first 20
    """
    figure.check()
    every = texts.read()
    counted, used = every if corpus is None else read_input(corpus), every[:first]
    from ..methods import classical
    from ..papers.impact import plot

    results: Rows = []
    for name, encoder, limits in run.encoders(model, {"": classical()}):
        matrices_wanted = run.as_json or figure.plot is not None
        matrices, weights, found = measured_impact(encoder, used, counted, heads, limits, matrices_wanted)
        if not run.as_json:
            typer.echo("\n".join(_correlations(name, found, len(used))))
        side = 1.5 + 0.26 * min(len(matrices[0].columns), 40)
        figure.draw(
            partial(plot, result=matrices[0]), f"{name}: impact matrix",
            f"how far masking one token moves another in: {used[0]}", model=name if len(model) > 1 else "",
            size=(max(4.6, side + 1.2), max(4.2, side + 2)),
        )  # fmt: skip
        of_texts = [{**m.to_json(), "tfidf": w.tolist()} for m, w in zip(matrices, weights, strict=True)]
        results += [{"model": name, **f.to_json()} for f in found]
        results[-len(found)]["texts_measured"] = of_texts
    return run.show(results, []) if run.as_json else 0


def measured_impact(
    encoder: Encoder, texts: Sequence[str], counted: Sequence[str], heads: int, limits: Limits, matrices_wanted: bool
) -> tuple[list[Impact], list[Measure], list[Follows]]:
    """The impact matrix and the TF-IDF weights of each text, and how the matrices and the best heads follow TF-IDF.

    Raises:
        InputError: no text has a correlation with TF-IDF, and the matrices are not wanted.
    """
    from ..papers.heads import follow, heads_follow, tfidf_weights
    from ..papers.impact import impact as matrix_of

    weights = tfidf_weights(encoder, texts, counted)
    if not matrices_wanted:
        check_varies(weights)
    by_head = heads_follow(encoder, texts, weights, limits=limits)[:heads] if heads and varies(weights) else ()
    matrices = []
    with CountedBar("impact matrices", "texts", len(texts)) as bar:
        for text in texts:
            matrices.append(matrix_of(encoder, text, limits=limits))
            bar.update()
    return matrices, weights, [*follow(["impact matrix"], [m.columns[None] for m in matrices], weights), *by_head]


def varies(weights: Sequence[Measure]) -> bool:
    """Whether TF-IDF differs between the tokens of any text (N,), so that something can be correlated with it."""
    return any(len(w) > 1 and (w != w[0]).any() for w in weights)


def check_varies(weights: Sequence[Measure]) -> None:
    """Refuse texts in which TF-IDF does not vary.

    Raises:
        InputError: there is none with different weights.
    """
    from ..errors import InputError, plural

    if not varies(weights):
        raise InputError(
            f"all tokens of a text have one TF-IDF in {plural(len(weights), 'text')}, as where texts are equal or "
            "there is only one: no correlation; pass --corpus, a file of other texts to count in"
        )


def _correlations(name: str, found: Sequence[Follows], texts: int) -> Iterator[str]:
    matrix = found[0]
    why = (
        f"{matrix.undefined} of {texts} texts left out: all their tokens have one TF-IDF or one importance; one text, "
        "without --corpus, is always such a text"
    )
    if not matrix.texts:
        yield f"{name}: no correlation with TF-IDF: {why}"
        return
    mean = f"mean over {matrix.texts} text{'s' * (matrix.texts > 1)} of {matrix.tokens} tokens"
    yield f"{name}: correlation x 100 with TF-IDF within a text, {mean}"
    yield from aligned([
        {"": f.name if f is matrix else f"head {f.name}", "Pearson": _x100(f.pearson), "Spearman": _x100(f.spearman)}
        for f in found
    ])  # fmt: skip
    if matrix.undefined:
        yield why


def heads(
    model: Models,
    texts: Texts,
    corpus: Corpus = None,
    dev: Annotated[
        Path | None,
        typer.Option(
            "--dev", metavar="FILE",
            help="Scored pairs by which Ditto's heads are ranked, a file of sentence1, sentence2 and score. Without "
            "--input and --pairs, their texts are also those of the correlations.",
        ),
    ] = None,
    test: Annotated[
        list[Path] | None,
        typer.Option(
            "--test", metavar="FILE",
            help="Scored pairs on which to score Ditto with every head too. May be given several times; the mean is "
            "shown.",
        ),
    ] = None,
    states: Annotated[
        str, typer.Option("--states", metavar="STATES", help="The states that Ditto weighs: first_last, last, static.")
    ] = "first_last",
    top: Annotated[int, typer.Option("--top", min=1, metavar="N", help="Print the N best heads.")] = 4,
    head: Annotated[
        list[str] | None,
        typer.Option("--head", metavar="HEAD", help="Print this head too, as in 1-10. May be given several times."),
    ] = None,
    *, figure: Figure, run: Run,
) -> int:  # fmt: skip
    """Show which attention heads follow TF-IDF, and how well Ditto does with each (Ditto's Table 4).

    For each head: Pearson's and Spearman's correlation of its diagonal attention with TF-IDF, over the tokens of a
    text, averaged over texts; and with --dev and --test the score of Ditto with that head. Heads are ranked by the
    score on --dev, or else by Pearson's correlation, as by `afterword tune --texts`. The plot shows what ranks them.

    Examples:
        afterword analyse heads -m minilm --dev pairs.jsonl
    """
    figure.check()
    from ..methods import ditto
    from ..tasks.pairs import read_pairs

    wanted = [ditto(spelled, states) for spelled in head or ()]
    read = (replace(texts, pairs=dev) if texts.input is None and texts.pairs is None else texts).read()
    counted = read if corpus is None else read_input(corpus)
    sets = {"dev": [read_pairs(dev)] if dev else [], "test": [read_pairs(path) for path in test or ()]}
    results: Rows = []
    for name, encoder, limits in run.encoders(model, {"": ditto((0, 0), states)}):
        for method in wanted:
            method.weigh.check(encoder.backbone.facts.layers, encoder.backbone.facts.heads, 0)
        rows = measured_heads(encoder, read, counted, sets, states, limits)
        if not run.as_json:
            weighs: list[Any] = [method.weigh for method in wanted]
            shown = [f"{weigh.layer + 1}-{weigh.head + 1}" for weigh in weighs]
            typer.echo("\n".join(_heads(name, rows, len(read), top, shown, states)))
        _draw_heads(figure, rows, name, len(model) > 1)
        results += [{"model": name, "states": states, **row} for row in rows]
    return run.show(results, []) if run.as_json else 0


def measured_heads(
    encoder: Encoder, texts: Sequence[str], counted: Sequence[str], sets: dict[str, list[ScoredPairs]], states: str,
    limits: Limits,
) -> Rows:  # fmt: skip
    """All heads with their correlations, and their mean scores on each kind of sets, the best first."""
    from ..papers.heads import heads_follow, tfidf_weights
    from ..papers.measurement import plain
    from ..tune.head_scores import head_scores

    weights = tfidf_weights(encoder, texts, counted)
    if not sets["dev"]:
        check_varies(weights)  # it ranks the heads
    found = heads_follow(encoder, texts, weights, limits=limits)
    scores: dict[str, NDArray[np.floating[Any]]] = {}
    total = sum(2 * len(pairs.gold) for several in sets.values() for pairs in several)
    with CountedBar("heads", "texts", total) as bar:
        for kind, several in sets.items():
            if several:
                tables = [head_scores(encoder, pairs, states, limits, bar.update) for pairs in several]
                scores[kind] = sum(tables[1:], tables[0]) / len(tables)
    rows = [f.to_json() | {kind: plain(table[_place(f.name)]) for kind, table in scores.items()} for f in found]
    if "dev" in scores:
        rows.sort(key=lambda row: math.inf if row["dev"] is None else -row["dev"])
    return rows


def _place(name: str) -> tuple[int, int]:
    """Layer and head, from 0, of a name such as "1-10"."""
    layer, head = name.split("-")
    return int(layer) - 1, int(head) - 1


def _heads(name: str, rows: Rows, texts: int, top: int, shown: Sequence[str], states: str) -> Iterator[str]:
    kinds = [kind for kind in ("dev", "test") if kind in rows[0]]
    counted, left_out = rows[0]["texts"], texts - rows[0]["texts"]
    more = f" ({left_out} left out: all their tokens have one TF-IDF)" if left_out else ""
    mean = f"{counted} text{'s' * (counted != 1)}"
    yield f"{name}: diagonal attention and TF-IDF, correlation x 100 within a text, mean over {mean}{more}"
    if kinds:
        yield f"{' and '.join(kinds)}: Ditto with this head on the states {states}, Spearman x 100"
    yield from aligned([
        {"head": row["name"], "place": f"{place}/{len(rows)}", "Pearson": _x100(row["pearson"]),
         "Spearman": _x100(row["spearman"]), **{kind: _x100(row[kind]) for kind in kinds}}
        for place, row in enumerate(rows, 1)
        if place <= top or row["name"] in shown
    ])  # fmt: skip


def _x100(value: float | None) -> str:
    return "nan" if value is None else f"{100 * value:.2f}"


def _draw_heads(figure: Figure, rows: Rows, name: str, several: bool) -> None:
    import numpy as np

    from ..papers.heads import plot

    kind = "dev" if "dev" in rows[0] else "pearson"
    layers, heads = (n + 1 for n in map(max, zip(*(_place(row["name"]) for row in rows), strict=True)))
    table = np.full((layers, heads), np.nan)
    for row in rows:
        table[_place(row["name"])] = np.nan if row[kind] is None else row[kind]
    what = "Ditto's score on dev" if kind == "dev" else "the correlation of its diagonal with TF-IDF"
    label = f"{'Spearman' if kind == 'dev' else 'Pearson'} × 100"
    figure.draw(
        partial(plot, table=table, label=label, best=_place(rows[0]["name"])), f"{name}: attention heads",
        f"head {rows[0]['name']} is first by {what}, {_x100(rows[0][kind])}", model=name if several else "",
        size=(2.4 + 0.38 * heads, 1.6 + 0.3 * layers),
    )  # fmt: skip


def attention(
    model: o.Model,
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="The text. Default: --input or stdin.")] = None,
    input: o.Input = None,
    row: Annotated[
        int | None, typer.Option("--row", min=1, metavar="N", help="Use text N of the input, counted from 1.")
    ] = None,
    format: o.Format = None,
    field: o.Field = None,
    method: o.Methods = None,
    head: Annotated[
        list[str] | None,
        typer.Option(
            "--head", metavar="LAYER-HEAD",
            help="Show this head's attention, as in 1-10: layer and head, counted from 1. May be given several times.",
        ),
    ] = None,
    layer: Annotated[
        list[int] | None,
        typer.Option(
            "--layer", min=1, metavar="N",
            help="Show the mean over all heads of layer N, counted from 1. May be given several times.",
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option("--token", metavar="WORD", help="Show only the rows of this word: what its tokens attend to."),
    ] = None,
    *, figure: Figure, run: Run,
) -> int:  # fmt: skip
    """Show the attention of one text, token by token.

    By default it is the matrix that the method reads: ReBA's backward attention, with the layer and head that won
    each maximum, or Ditto's head. For a method with bidirectional layers, and for several texts, the share of each
    layer's attention that goes to later tokens is printed.

    Examples:
        afterword analyse attention -m afterword-mini --method reba --token bank "The bank was steep."
        afterword analyse attention -m minilm --head 2-1 --head 2-3 "The bank was steep."
    """
    from ..methods import classical, one_method, parse_head

    figure.check()
    heads, methods = [parse_head(h) for h in head or ()], read_methods(method)
    texts = _texts(text, input, row, format, field)
    if (heads or layer) and not methods and not (ModelChoice(model).located().folder()[0] / "modules.json").exists():
        methods = {"": classical()}  # the default of a plain model: to see a head it need not be named
    if len(texts) != 1 and (heads or layer or token is not None or figure.plot is not None):
        raise typer.BadParameter(f"there are {len(texts)} texts, and a matrix is that of one", param_hint="--row")
    from ..papers.attention import forward_attention, plot, rows_of_word

    results, views, forwards = [], [], []
    lines: list[str] = []
    for name, encoder, limits in run.encoders([model], methods):
        found = _views(encoder, texts[0], heads, layer or ()) if len(texts) == 1 else []
        forward = None
        if one_method(encoder.method, "attention").sight.both_ways or len(texts) > 1:
            forward = forward_attention(encoder, texts, name=name, limits=limits)
            forwards.append(forward)
        elif not found:
            raise typer.BadParameter(
                f"{encoder.method.name} reads no attention: pass --head or --layer, or a method that does, as reba",
                param_hint="--method",
            )
        rows = None if token is None else rows_of_word(encoder, texts[0], token)
        results.append({
            "name": name, "matrices": [v.to_json() for v in found], "rows": rows,
            "forward": None if forward is None else forward.to_json(),
        })  # fmt: skip
        views += [replace(view, name=f"{name}: {view.name}") for view in found]
        for view in found:
            lines += [*[""] * bool(lines), styled(one_line(f"{name}: {view.name}"), BOLD, sys.stdout)]
            lines += _matrix(view) if rows is None else _columns(view, rows)
    if figure.plot is not None:
        if not views:
            raise typer.BadParameter("there is no matrix to draw: pass --head or --layer", param_hint="--plot")
        across, side = min(3, len(views)), max(2.6, 0.8 + 0.24 * len(views[0].tokens))
        down = -(-len(views) // across)
        figure.draw(
            partial(plot, views=views), "Attention", f"“{texts[0]}”; shades go by the square root of the weight",
            size=(across * (side + 1.2), down * (side + 1.4) + 1.0), panels=(down, across),
        )  # fmt: skip
    return run.show(results, [*lines, *_forward(forwards, len(texts))])


def _texts(text: str | None, input: Path | None, row: int | None, format: str | None, field: str | None) -> list[str]:
    from ..errors import DataError

    texts = list(items(text, input, format, field))
    if not texts:
        raise DataError(f"{input or 'stdin'} holds no text: pass TEXT, or a file with --input")
    if row is not None and row > len(texts):
        raise typer.BadParameter(f"{row}: the input has {len(texts)} texts, counted from 1", param_hint="--row")
    return texts if row is None else [texts[row - 1]]


def _views(
    encoder: Encoder, text: str, heads: Sequence[tuple[int, int]], layers: Sequence[int]
) -> list[AttentionMatrix]:
    from ..methods import one_method
    from ..methods.weights import Backward
    from ..papers.attention import attention_heads, own_attention

    views = attention_heads(encoder, text, heads, [n - 1 for n in layers]) if heads or layers else []
    if views and not isinstance(one_method(encoder.method, "attention").weigh, Backward):
        return views
    own = own_attention(encoder, text)
    return views if own is None else [*views, own]


def _matrix(view: AttentionMatrix) -> list[str]:
    """All numbers of a matrix, times 100; a dot is 0. Columns are numbered as the tokens."""
    weights = view.weights
    rows = [
        {"": str(i + 1), " ": token} | ({} if weights is None else {"weight": f"{100 * weights[i]:.0f}"})
        | {str(k + 1): f"{100 * value:.0f}" if value else "." for k, value in enumerate(view.matrix[i])}
        for i, token in enumerate(view.tokens)
    ]  # fmt: skip
    return ["x 100", *aligned(rows, names=2)]


def _columns(view: AttentionMatrix, rows: Sequence[int]) -> list[str]:
    """What some tokens attend to, one token per line, with the head that won the maximum."""
    lines = [{"": token} for token in view.tokens]
    for r in rows:
        for k, line in enumerate(lines):
            line[one_line(view.tokens[r]) + " " * r] = f"{view.matrix[r, k]:.3f}"  # a key for each row
            if view.layer is not None and view.head is not None:
                line["won by" + " " * r] = f"{view.layer[r, k]}-{view.head[r, k]}" if view.layer[r, k] else "-"
    return aligned(lines)


def _forward(found: Sequence[ForwardAttention], texts: int) -> Iterator[str]:
    """The share of forward attention by layer; layers with bidirectional attention by the method are marked."""
    if not found:
        return
    plural = "" if texts == 1 else "s"
    yield f"share of attention that goes to later tokens, {texts} text{plural}; * is bidirectional by the method"
    yield from aligned([
        {"layer": f.name}
        | {str(i): f"{100 * share:.1f} %" + (" *" if i in f.both_ways else "  ") for i, share in enumerate(f.layers, 1)}
        | {"if even": f"{100 * f.even:.1f} %"}
        for f in found
    ])  # fmt: skip
