"""``afterword cluster``: sort texts into clusters by their vectors."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from . import options as o
from .console import REJECTED
from .gathered import Gathered, check_output, gather, say_notes, write_listing
from .inputs import read_form
from .model import ModelChoice
from .tables import Column, page_width, table

if TYPE_CHECKING:
    from ..search.groups import Clusters

SHOWN = 5  # texts of a cluster
LOOKED = 200  # rows whose texts are read at a time, since many may hold the same one
READ = 10_000  # texts whose words are counted at a time


def cluster(
    input: o.Input = None,
    k: Annotated[
        str, typer.Option("--k", metavar="N", help="Number of clusters, or auto: the one with the best silhouette.")
    ] = "auto",
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", help="Seed: the same one gives the same clusters on one machine.")
    ] = 0,
    model: o.ModelOfTexts = None,
    format: o.Format = None,
    field: o.Field = None,
    delimiter: o.Delimiter = None,
    encoding: o.Encoding = None,
    no_header: o.NoHeader = False,
    method: o.MethodOrColumn = None,
    prompt: o.Prompt = None,
    max_length: o.MaxLength = None,
    on_long: o.OnLong = "warn",
    batch_tokens: o.BatchTokens = None,
    device: o.Device = None,
    dtype: o.Dtype = None,
    revision: o.Revision = None,
    trust_remote_code: o.Trust = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE",
            help="Write line, text and cluster of each row to this .jsonl, .csv or .parquet file.",
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")] = False,
    as_json: o.AsJson = False,
) -> int:  # fmt: skip
    """Sort texts into clusters, and print the size, the most distinctive words and five typical texts of each.

    Each different text counts once. Cluster 0 is the one with the most texts.

    Examples:
        afterword cluster -i vectors.parquet --k 8 -o clusters.csv
        afterword cluster -m minilm -i texts.txt
    """
    from ..search.groups import cluster as clustered

    number = _number(k)
    form = read_form(delimiter, encoding, no_header)
    check_output(output, input, overwrite, "--output")
    choice = model and ModelChoice(model, device, dtype, max_length, revision, trust_remote_code)
    settings = {"prompt": prompt, "batch_tokens": batch_tokens, "on_long": on_long}
    found = gather(input, choice or None, method, settings, field, format, form)
    clusters = clustered(found.vectors, number, seed)
    if output is not None:
        texts = found.texts(range(len(found.lines)))
        rows = sorted(
            (line, text, label)
            for lines, text, label in zip(found.lines, texts, clusters.labels.tolist(), strict=True)
            for line in lines
        )
        numbers, shown, labels = zip(*rows, strict=True)
        write_listing(output, found.listed(numbers, text=shown, cluster=labels))
    typer.echo("\n".join(_json(found, clusters) if as_json else page(found, clusters)))
    say_notes(found)
    return REJECTED if found.rejected else 0


def _number(k: str) -> int | Literal["auto"]:
    """The number of clusters that --k asks for."""
    if k == "auto":
        return "auto"
    if not k.isdecimal() or int(k) < 2:
        raise typer.BadParameter(f"{k!r}: give a number of at least 2, or auto", param_hint="--k")
    return int(k)


def _typical(found: Gathered, clusters: Clusters, label: int) -> list[tuple[int | str, str]]:
    """The line or id and the text of the rows that are nearest to the centre of a cluster, without repetitions."""
    rows, first = clusters.nearest(label, len(clusters.labels)).tolist(), dict[str, tuple[int, str]]()
    for start in range(0, len(rows), LOOKED):
        part = rows[start : start + LOOKED]
        texts = dict(zip(sorted(part), found.texts(sorted(part)), strict=True))
        for i in part:
            first.setdefault(re.sub(r"\W+", " ", texts[i].casefold()).strip() or texts[i], (i, texts[i]))
        if len(first) >= SHOWN:
            break
    return [(found.named(found.lines[i][0]), text) for i, text in first.values()][:SHOWN]


def _words(found: Gathered, clusters: Clusters) -> list[list[str]]:
    """The distinctive words of each cluster."""
    from ..search.groups import distinctive_words

    labels = clusters.labels.tolist()
    starts = range(0, len(labels), READ)
    texts = (text for i in starts for text in found.texts(range(i, min(i + READ, len(labels)))))
    return distinctive_words(zip(labels, texts, strict=True), len(clusters.sizes))


def _sizes(found: Gathered, clusters: Clusters) -> list[int]:
    """The number of rows of each cluster."""
    sizes = [0] * len(clusters.sizes)
    for lines, label in zip(found.lines, clusters.labels.tolist(), strict=True):
        sizes[label] += len(lines)
    return sizes


def _json(found: Gathered, clusters: Clusters) -> list[str]:
    """One line of JSON: the clusters with their texts, and the silhouettes that were compared."""
    shown = [
        {
            "cluster": n,
            "rows": rows,
            "words": words,
            "nearest": [{found.key: i, "text": t} for i, t in _typical(found, clusters, n)],
        }
        for n, (rows, words) in enumerate(zip(_sizes(found, clusters), _words(found, clusters), strict=True))
    ]
    out = {"rows": found.rows, "without_vector": found.missing, "silhouettes": dict(clusters.scores), "clusters": shown}
    return [json.dumps(out, ensure_ascii=False)]


def _compared(found: Gathered, scores: Mapping[int, float]) -> list[str]:
    """The silhouettes by number of clusters, and what else to try where the first or the last number is the best."""
    lines = ["silhouette by number of clusters: " + ", ".join(f"{k}: {score:.3f}" for k, score in scores.items())]
    numbers, best = sorted(scores), max(scores, key=lambda k: (scores[k], -k))
    if best == numbers[0] and len(numbers) > 1:
        lines.append(
            f"the smallest number tried is the best: for finer clusters give a larger one, as --k {numbers[1]}"
        )
    elif best == numbers[-1]:
        most = len({row.tobytes() for row in found.vectors}) - 1  # each of as many clusters as vectors is one text
        if most > best:
            lines.append(f"the largest number tried is the best: more may be better, as --k {min(2 * best, most)}")
    return lines


def page(found: Gathered, clusters: Clusters) -> list[str]:
    """The lines of a page: the silhouettes that were compared, and a table of the clusters."""
    lines = [*_compared(found, clusters.scores), ""] if clusters.scores else []
    cells: list[tuple[str, str, str, str]] = []
    for n, (rows, words) in enumerate(zip(_sizes(found, clusters), _words(found, clusters), strict=True)):
        for i, (_, text) in enumerate(_typical(found, clusters, n)):
            cells.append(("", "", "", text) if i else (str(n), f"{rows:,}", ", ".join(words), text))
    numbers, sizes, names, texts = (list(part) for part in zip(*cells, strict=True))
    columns = [Column(numbers, "label", "cluster"), Column(sizes, "label", "rows")]
    columns += [Column(names, "text", "words"), Column(texts, "text", "nearest")]
    return [*lines, *table(columns, page_width())]
