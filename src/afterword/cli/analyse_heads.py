"""``afterword analyse heads``: which attention heads follow TF-IDF, and how well Ditto scores with each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options as o
from .analyse_inputs import Corpus, Models, PairFile, as_text, check_scores, check_varies, encoders, texts_of
from .drawing import check_plot, named_plot
from .progress import CountedBar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..encode.limits import Limits
    from ..encoder import Encoder
    from ..tasks.pairs import ScoredPairs

Rows = list[dict[str, Any]]
"""Each head with its correlations and its scores, the best first."""

PairFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--test",
        metavar="FILE",
        help="Scored pairs on which to score Ditto with every head too. May be given several times; the mean is shown.",
    ),
]


def heads(
    model: Models,
    input: o.Input = None,
    pairs: PairFile = None,
    format: o.Format = None,
    field: o.Field = None,
    corpus: Corpus = None,
    dev: Annotated[
        Path | None,
        typer.Option(
            "--dev",
            metavar="FILE",
            help="Scored pairs by which Ditto's heads are ranked, a file of sentence1, sentence2 and score. Without "
            "--input and --pairs, their texts are also those of the correlations.",
        ),
    ] = None,
    test: PairFiles = None,
    states: Annotated[
        str, typer.Option("--states", metavar="STATES", help="The states that Ditto weighs: first_last, last, static.")
    ] = "first_last",
    top: Annotated[int, typer.Option("--top", min=1, metavar="N", help="Print the N best heads.")] = 4,
    head: Annotated[
        list[str] | None,
        typer.Option("--head", metavar="HEAD", help="Print this head too, as in 1-10. May be given several times."),
    ] = None,
    plot: o.Plot = None,
    dark: o.Dark = False,
    max_length: o.MaxLength = None,
    batch_tokens: o.BatchTokens = None,
    device: o.Device = None,
    dtype: o.Dtype = None,
    revision: o.Revision = None,
    trust_remote_code: o.Trust = False,
    as_json: o.AsJson = False,
) -> int:
    """Show which attention heads follow TF-IDF, and how well Ditto does with each (Ditto's Table 4).

    For each head: Pearson's and Spearman's correlation of its diagonal attention with TF-IDF, over the tokens of a
    text, averaged over texts; and with --dev and --test the score of Ditto with that head. Heads are ranked by the
    score on --dev, or else by Pearson's correlation, as by `afterword tune --texts`. The plot shows what ranks them.
    """  # fmt: skip
    check_plot(plot, dark)
    from ..methods import ditto
    from ..tasks.pairs import read_pairs

    asked = [ditto(spelled, states) for spelled in head or ()]
    first = ditto((0, 0), states)
    alone = dev is not None and input is None and pairs is None
    texts = texts_of(input, dev if alone else pairs, format, field)
    counted = texts if corpus is None else texts_of(corpus, None, None, None)
    check_scores({path.name: read_pairs(path) for path in (*([dev] if dev else []), *(test or ()))})
    sets = {"dev": [read_pairs(dev)] if dev else [], "test": [read_pairs(path) for path in test or ()]}
    results: Rows = []
    for name, encoder, limits in encoders(
        model, {"": first}, device, dtype, max_length, trust_remote_code, batch_tokens, revision
    ):
        for method in asked:
            method.weigh.check(encoder.backbone.facts.layers, encoder.backbone.facts.heads, 0)
        rows = measured(encoder, texts, counted, sets, states, limits)
        shown = [spelled_of(method.weigh) for method in asked]
        if not as_json:
            typer.echo("\n".join(_table(name, rows, len(texts), top, shown, states)))
        if plot is not None:
            _draw(rows, encoder, plot if len(model) == 1 else named_plot(plot, name), dark, name)
        results += [{"model": name, "states": states, **row} for row in rows]
    if as_json:
        typer.echo(as_text(results))
    return 0


def spelled_of(weigh: Any) -> str:
    """The head of a method's weights, as in 1-10."""
    return f"{weigh.layer + 1}-{weigh.head + 1}"


def measured(
    encoder: Encoder,
    texts: Sequence[str],
    counted: Sequence[str],
    sets: dict[str, list[ScoredPairs]],
    states: str,
    limits: Limits,
) -> Rows:
    """All heads with their correlations, and their scores on each kind of sets, the best first."""
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
    rows = []
    for f in found:
        layer, number = (int(part) - 1 for part in f.name.split("-"))
        rows.append({**f.to_json(), **{kind: plain(table[layer, number]) for kind, table in scores.items()}})
    if "dev" in scores:
        rows.sort(key=lambda row: math.inf if row["dev"] is None else -row["dev"])
    return rows


def _table(name: str, rows: Rows, texts: int, top: int, shown: Sequence[str], states: str) -> Iterator[str]:
    kinds = [kind for kind in ("dev", "test") if kind in rows[0]]
    counted, left_out = rows[0]["texts"], texts - rows[0]["texts"]
    more = f" ({left_out} left out: all their tokens have one TF-IDF)" if left_out else ""
    mean = f"{counted} text{'s' * (counted != 1)}"
    yield f"{name}: diagonal attention and TF-IDF, correlation x 100 within a text, mean over {mean}{more}"
    if kinds:
        yield f"{' and '.join(kinds)}: Ditto with this head on the states {states}, Spearman x 100"
    yield "head  place  Pearson Spearman" + "".join(f"{kind:>8}" for kind in kinds)
    for place, row in enumerate(rows, 1):
        if place <= top or row["name"] in shown:
            cells = [f"{_x100(row[kind]):>8}" for kind in kinds]
            correlations = f"{_x100(row['pearson']):>7} {_x100(row['spearman']):>8}"
            yield f"{row['name']:<5} {place:>2}/{len(rows):<3} {correlations}{''.join(cells)}"


def _x100(value: float | None) -> str:
    return "nan" if value is None else f"{100 * value:.2f}"


def _draw(rows: Rows, encoder: Encoder, file: Path, dark: bool, name: str) -> None:
    import numpy as np

    from ..papers import figure
    from ..papers.heads import plot

    facts, kind = encoder.backbone.facts, "dev" if "dev" in rows[0] else "pearson"
    table = np.full((facts.layers, facts.heads), np.nan)
    for row in rows:
        layer, number = (int(part) - 1 for part in row["name"].split("-"))
        table[layer, number] = np.nan if row[kind] is None else row[kind]
    what = "Ditto's score on dev" if kind == "dev" else "the correlation of its diagonal with TF-IDF"
    note = f"head {rows[0]['name']} is first by {what}, {_x100(rows[0][kind])}"
    label = f"{'Spearman' if kind == 'dev' else 'Pearson'} × 100"
    layer, number = (int(part) - 1 for part in rows[0]["name"].split("-"))
    draw = partial(plot, table=table, label=label, best=(layer, number))
    size = (2.4 + 0.38 * facts.heads, 1.6 + 0.3 * facts.layers)
    figure.draw(file, draw, size=size, title=f"{name}: attention heads", note=note, dark=dark)
