"""``afterword duplicates`` and ``afterword cluster``: texts that repeat others, and texts sorted by their vectors."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

from . import options as o
from .console import REJECTED, Bar, say
from .option_groups import Form, Input, Method, Model
from .sides import Side, embed_side, encode_options, indexed_side, read_items, stored_side
from .tables import Column, page_width, table

if TYPE_CHECKING:
    from ..search.groups import Clusters, Duplicates

GROUPS = 10  # groups that are printed
MEMBERS = 3  # repeats of a group that are printed
TYPICAL = 5  # texts of a cluster that are printed
ENDINGS = (".jsonl", ".csv", ".parquet")

# fmt: off
File = Annotated[Path | None, Argument(metavar="FILE", show_default=False, help="Texts or vectors, as --input.")]
Over = Annotated[float, Option("--over", metavar="X",
    help="Texts whose vectors have a cosine of at least X repeat each other.")]
KeptFile = Annotated[Path | None, Option("-o", "--output", metavar="FILE",
    help="Write the rows that are kept to this .jsonl, .csv or .parquet file.")]
RepeatsFile = Annotated[Path | None, Option("--repeats", metavar="FILE",
    help="Write the other rows to this file: row, line or id, text, the row that each repeats, their cosine.")]
Number = Annotated[str, Option("--k", metavar="N",
    help="Number of clusters, or auto: the one with the best silhouette.")]
Seed = Annotated[int, Option("--seed", min=0, metavar="N",
    help="Seed: the same one gives the same clusters on one machine.")]
ClustersFile = Annotated[Path | None, Option("-o", "--output", metavar="FILE",
    help="Write line, text and cluster of each row to this .jsonl, .csv or .parquet file.")]
Overwrite = Annotated[bool, Option("--overwrite", help="Replace files that exist.")]
# fmt: on


@dataclass(frozen=True)
class TextModel(Model):
    """The model of texts; stored vectors need none."""

    model: o.ModelOfTexts = ""


def duplicates(
    model: TextModel,
    source: Input,
    method: Method,
    file: File = None,
    over: Over = 0.9,
    output: KeptFile = None,
    repeats: RepeatsFile = None,
    overwrite: Overwrite = False,
    batch_tokens: o.BatchTokens = None,
    as_json: o.AsJson = False,
    progress: o.Progress = None,
) -> int:
    """Find texts that repeat others, or nearly so, and keep one of each.

    All pairs are compared. A text is in a group if it is near any text of it; the first row is kept.

    Examples:
        afterword duplicates vectors.parquet --over 0.9 -o kept.jsonl
        afterword duplicates -m minilm texts.txt --repeats repeats.csv
    """
    from ..search.groups import check_threshold, near_duplicates

    check_threshold(over)
    path = _path(file, source.input)
    for target, option in ((output, "--output"), (repeats, "--repeats")):
        _check_output(target, path, overwrite, option)
    if output is not None and repeats is not None and output.resolve() == repeats.resolve():
        raise typer.BadParameter(f"{repeats} is the file of --output", param_hint="--repeats")
    side = _read_side(path, model, source, method, batch_tokens)
    (vectors,) = side.vectors.values()
    with Bar("", "rows", len(vectors), progress) as bar:
        kept, others = _kept_and_repeats(side, near_duplicates(vectors, over, bar.update))
    texts = {row: text for text, rows in zip(side.texts, side.rows, strict=True) for row in rows}
    columns: dict[str, Sequence[Any]] = {
        "text": [texts[row] for row, _, _ in others],
        "repeats": [side.named(first) for _, first, _ in others],
        "cosine": [cosine for _, _, cosine in others],
    }
    if output is not None:
        _write_list(output, side, kept, {"text": [texts[row] for row in kept]})
    if repeats is not None:
        _write_list(repeats, side, [row for row, _, _ in others], columns)
    if as_json:
        named = {side.key: [side.named(row) for row, _, _ in others], **columns}
        listed = [dict(zip(named, values, strict=True)) for values in zip(*named.values(), strict=True)]
        counts = {"over": over, "rows": len(texts), "kept": len(kept), "without_vector": side.missing}
        typer.echo(json.dumps({**counts, "repeats": listed}, ensure_ascii=False))
    else:
        typer.echo("\n".join(_duplicates_page(side, texts, kept, others, over)))
    for line in side.notes:
        say(line)
    return REJECTED if side.rejected else 0


def cluster(
    model: TextModel,
    source: Input,
    method: Method,
    file: File = None,
    k: Number = "auto",
    seed: Seed = 0,
    output: ClustersFile = None,
    overwrite: Overwrite = False,
    batch_tokens: o.BatchTokens = None,
    as_json: o.AsJson = False,
) -> int:
    """Sort texts into clusters, and print the size, the most distinctive words and five typical texts of each.

    Each different text counts once. Cluster 0 is the one with the most texts.

    Examples:
        afterword cluster vectors.parquet --k 8 -o clusters.csv
        afterword cluster -m minilm texts.txt
    """
    from ..search.groups import cluster as clustered
    from ..search.groups import distinctive_words

    if k != "auto" and not k.isdecimal():
        raise typer.BadParameter(f"{k!r}: pass a number of at least 2, or auto", param_hint="--k")
    number: int | Literal["auto"] = "auto" if k == "auto" else int(k)
    path = _path(file, source.input)
    _check_output(output, path, overwrite, "--output")
    side = _read_side(path, model, source, method, batch_tokens)
    (vectors,) = side.vectors.values()
    clusters = clustered(vectors, number, seed)
    labels = clusters.labels.tolist()
    if output is not None:
        rows = sorted((row, text, label) for each, text, label in zip(side.rows, side.texts, labels, strict=True)
                      for row in each)  # fmt: skip
        numbers, texts, shown = zip(*rows, strict=True)
        _write_list(output, side, numbers, {"text": texts, "cluster": shown})
    words = distinctive_words(side.texts, clusters.labels)
    typer.echo("\n".join(_clusters_json(side, clusters, words) if as_json else _clusters_page(side, clusters, words)))
    for line in side.notes:
        say(line)
    return REJECTED if side.rejected else 0


def _path(file: Path | None, input: Path | None) -> Path | None:
    if file is not None and input is not None:
        raise typer.BadParameter(f"pass {file} or {input}, not both", param_hint="--input")
    return file or input


def _read_side(path: Path | None, model: TextModel, form: Form, method: Method, batch_tokens: int | None) -> Side:
    """Read stored vectors, or read texts and embed them.

    Args:
        path: a .parquet file that `embed` wrote, the folder of a job, an index, or a file of texts; None = stdin.
        model: the model for texts.
        form: how a file of texts is read; with its column, a file of vectors is read as one of texts.
        method: the method for texts, or the column of a file with the vectors of several methods.
        batch_tokens: as --batch-tokens.

    Raises:
        typer.BadParameter: texts without a model, vectors with one, or an unclear column.
        DataError: the file cannot be read.
    """
    from ..files.read import check_file
    from ..jobs.recipe import MethodsEmbedder
    from ..jobs.stored import holds_vectors
    from ..search.stored import open_stored

    if path is not None and str(path) != "-" and not path.exists():
        check_file(path)
    stored = path is not None and form.field is None and holds_vectors(path)
    if path is not None and (stored or path.is_dir()):
        if model.model:
            raise typer.BadParameter(
                f"{path} holds vectors, which are used as they are: leave it out, or name the column of the texts by "
                "--column to embed them",
                param_hint="--model",
            )
        if not stored:
            return indexed_side(path)
        file = open_stored(path)
        columns = [one for one in file.infos if not method.method or one in method.method]
        if len(columns) != 1:
            names = ", ".join(file.infos)
            raise typer.BadParameter(f"{path} holds vectors of {names}: pass one of them", param_hint="--method")
        return stored_side(file, columns[0])
    if not model.model:
        raise typer.BadParameter(
            f"{path or 'stdin'} holds no vectors: pass a model for its texts, or a .parquet file of `afterword embed`",
            param_hint="--model",
        )
    if len(method.methods()) > 1:
        raise typer.BadParameter("pass one", param_hint="--method")
    items = read_items(form.open(path))
    return embed_side(items, MethodsEmbedder.open(model, method.methods(), encode_options(method, batch_tokens)), path)


def _check_output(path: Path | None, source: Path | None, overwrite: bool, option: str) -> None:
    """Refuse a file that cannot be written, before a long computation."""
    if path is None:
        return
    if path.suffix.lower() not in ENDINGS:
        raise typer.BadParameter(f"{path}: the name ends in {', '.join(ENDINGS)}", param_hint=option)
    if source is not None and path.resolve() == source.resolve():
        raise typer.BadParameter(f"{path} is the input", param_hint=option)
    if path.exists() and not overwrite:
        raise typer.BadParameter(f"{path} exists: pass another name, or --overwrite", param_hint=option)


def _write_list(path: Path, side: Side, rows: Sequence[int], columns: dict[str, Sequence[Any]]) -> None:
    """Write rows to a .jsonl, .csv or .parquet file, with the columns that were kept with stored rows.

    A kept column with the name of another one is written as kept_NAME.

    Raises:
        DataError: the file cannot be written.
    """
    import csv
    import io

    import pyarrow as pa
    import pyarrow.parquet as pq

    from ..files.atomic import atomic_file
    from ..files.tables import value_of
    from ..jobs.rows import as_json, as_text

    columns = {side.key: [side.named(row) for row in rows], **columns}
    kept = {} if side.kept is None else side.kept().take(pa.array(rows, pa.int64()))
    kept = {f"kept_{name}" if name in columns else name: kept[name] for name in getattr(kept, "column_names", ())}
    with atomic_file(path) as file:
        if path.suffix.lower() == ".parquet":
            pq.write_table(pa.table({**{name: pa.array(values) for name, values in columns.items()}, **kept}), file)
            return
        every = {**columns, **{name: [as_json(value_of(value)) for value in values] for name, values in kept.items()}}
        text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)
        lines = zip(*every.values(), strict=True)
        if path.suffix.lower() == ".csv":
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow(every)
            writer.writerows(map(as_text, line) for line in lines)
        else:
            text.writelines(
                json.dumps(dict(zip(every, line, strict=True)), ensure_ascii=False) + "\n" for line in lines
            )
        text.detach()


def _kept_and_repeats(side: Side, groups: Duplicates) -> tuple[list[int], list[tuple[int, int, float]]]:
    """The rows that are kept; and the others, each with the row that it repeats and their cosine."""
    kept: list[int] = []
    repeats: list[tuple[int, int, float]] = []
    for i, (first, cosine) in enumerate(zip(groups.kept.tolist(), groups.cosines.tolist(), strict=True)):
        one, *others = side.rows[i]
        if first == i:
            kept.append(one)
        else:
            others.append(one)
        repeats += [(row, side.rows[first][0], cosine) for row in others]
    return sorted(kept), sorted(repeats)


def _duplicates_page(
    side: Side, texts: dict[int, str], kept: Sequence[int], repeats: Sequence[tuple[int, int, float]], over: float
) -> list[str]:
    """A summary, and the largest groups, each under the row that is kept."""
    groups: dict[int, list[tuple[float, int]]] = {}
    for row, first, cosine in repeats:
        groups.setdefault(first, []).append((cosine, row))
    head = f"{len(texts):,} rows: {len(kept):,} kept, {len(repeats):,} repeat one of {len(groups):,} of them"
    lines = [f"{head} (cosine {over:g} or more)"]
    if not groups:
        return lines
    cells: list[tuple[str, int]] = []
    for first, members in sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))[:GROUPS]:
        cells.append((f"{len(members) + 1}x", first))
        cells += [(f"{cosine:.3f}", row) for cosine, row in members[:MEMBERS]]
    columns = [
        Column([cell for cell, _ in cells], "label"),
        Column([str(side.named(row)) for _, row in cells], "label"),
        Column([texts[row] for _, row in cells], "text"),
    ]
    more = len(groups) - GROUPS
    return [*lines, "", *table(columns, page_width()), *([f"... and {more:,} more groups"] if more > 0 else [])]


def _typical(side: Side, clusters: Clusters, label: int) -> list[tuple[int | str, str]]:
    """The texts that are nearest to the centre of a cluster, with their first rows; case and punctuation aside."""
    shown: dict[str, tuple[int | str, str]] = {}
    for i in clusters.nearest(label).tolist():
        text = side.texts[i]
        shown.setdefault(re.sub(r"\W+", " ", text.casefold()).strip() or text, (side.named(side.rows[i][0]), text))
        if len(shown) == TYPICAL:
            break
    return list(shown.values())


def _sizes(side: Side, clusters: Clusters) -> list[int]:
    """The number of rows of each cluster."""
    sizes = [0] * len(clusters.sizes)
    for rows, label in zip(side.rows, clusters.labels.tolist(), strict=True):
        sizes[label] += len(rows)
    return sizes


def _clusters_json(side: Side, clusters: Clusters, words: Sequence[Sequence[str]]) -> list[str]:
    """One line of JSON: the clusters with their texts, and the silhouettes that were compared."""
    sizes = _sizes(side, clusters)
    shown = [
        {
            "cluster": n,
            "rows": rows,
            "words": words[n],
            "nearest": [{side.key: row, "text": text} for row, text in _typical(side, clusters, n)],
        }
        for n, rows in enumerate(sizes)
    ]
    counts = {"rows": sum(sizes), "without_vector": side.missing, "silhouettes": dict(clusters.scores)}
    return [json.dumps({**counts, "clusters": shown}, ensure_ascii=False)]


def _clusters_page(side: Side, clusters: Clusters, words: Sequence[Sequence[str]]) -> list[str]:
    """The silhouettes that were compared, and a table of the clusters."""
    lines = []
    if clusters.scores:
        scores = ", ".join(f"{k}: {score:.3f}" for k, score in clusters.scores.items())
        lines = [f"silhouette by number of clusters: {scores}", ""]
    cells: list[tuple[str, str, str, str]] = []
    for n, rows in enumerate(_sizes(side, clusters)):
        for i, (_, text) in enumerate(_typical(side, clusters, n)):
            cells.append(("", "", "", text) if i else (str(n), f"{rows:,}", ", ".join(words[n]), text))
    numbers, sizes, names, texts = (list(part) for part in zip(*cells, strict=True))
    columns = [Column(numbers, "label", "cluster"), Column(sizes, "label", "rows")]
    columns += [Column(names, "text", "words"), Column(texts, "text", "nearest")]
    return [*lines, *table(columns, page_width())]
