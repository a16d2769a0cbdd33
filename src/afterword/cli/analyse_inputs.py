"""What the verbs of ``afterword analyse`` share: their options, their texts, and their encoders."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .inputs import open_reader
from .model import ModelChoice, short_name

if TYPE_CHECKING:
    from ..encode.limits import Limits
    from ..encoder import Encoder
    from ..methods import AnyMethod
    from ..papers.heads import Measure
    from ..tasks.pairs import ScoredPairs

Models = Annotated[
    list[str],
    typer.Option(
        "-m", "--model", show_default=False, metavar="MODEL",
        help="A folder, or a model on the Hugging Face Hub. May be given several times, to compare models.",
    ),
]  # fmt: skip
PairFile = Annotated[
    Path | None,
    typer.Option("--pairs", metavar="FILE", help="Use the texts in the columns sentence1 and sentence2 of this file."),
]
Corpus = Annotated[
    Path | None,
    typer.Option(
        "--corpus",
        metavar="FILE",
        help="Count document frequencies for TF-IDF in the texts of this file, of any format of --input. Default: in "
        "the texts themselves.",
    ),
]


def texts_of(input: Path | None, pairs: Path | None, format: str | None, field: str | None) -> list[str]:
    """The texts of a file, or of a file of pairs, each once.

    Raises:
        DataError: a row cannot be used.
    """
    from ..errors import BadRow, DataError
    from ..jobs.items import items_of
    from ..tasks.rows import read_rows

    if pairs is not None:
        if input is not None:
            raise typer.BadParameter("give --input or --pairs, not both")
        rows = list(read_rows(pairs, {"sentence1": _filled, "sentence2": _filled}))
        return list(dict.fromkeys(row[side] for row in rows for side in ("sentence1", "sentence2")))
    texts = []
    with closing(open_reader(None, input, format, field)) as reader:
        for item in items_of(reader):
            if item.problem is not None:
                raise BadRow(input or "stdin", item.line, item.problem)
            texts.append(item.text or "")
    if not texts:
        raise DataError(f"{input or 'stdin'} holds no text: give at least one")
    return texts


def _filled(value: Any) -> str:
    """Check for a text of a pair, as one of ``--input`` is checked."""
    from ..jobs.items import fault

    if problem := fault(value):
        raise ValueError(problem)
    return str(value)


def check_scores(sets: Mapping[str, ScoredPairs]) -> None:
    """Refuse, before a model is loaded, pairs by file that all have one score.

    Raises:
        InputError: a file's pairs do.
    """
    from ..errors import InputError

    for file, pairs in sets.items():
        if (pairs.gold == pairs.gold[0]).all():
            same = f"all {len(pairs.gold)} pairs have the score {pairs.gold[0]:g}"
            raise InputError(f"{file}: {same}: a correlation needs different ones")


def varies(weights: Sequence[Measure]) -> bool:
    """Whether TF-IDF differs between the tokens of any text (N,), so that something can be correlated with it."""
    return any(len(w) > 1 and (w != w[0]).any() for w in weights)


def check_varies(weights: Sequence[Measure]) -> None:
    """Refuse texts in which TF-IDF does not.

    Raises:
        InputError: there is none with different weights.
    """
    from ..errors import InputError, plural

    if not varies(weights):
        raise InputError(
            f"all tokens of a text have one TF-IDF in {plural(len(weights), 'text')}, as where texts are equal or "
            "there is only one: no correlation; give --corpus, a file of other texts to count in"
        )


def encoders(
    models: Sequence[str],
    given: Mapping[str, AnyMethod],
    device: str | None,
    dtype: str | None,
    max_length: int | None,
    trust: bool,
    batch_tokens: int | None,
    revision: str | None = None,
) -> Iterator[tuple[str, Encoder, Limits]]:
    """Each model with each method, one model in memory at a time: its name, encoder and limits."""
    from ..encode.limits import Limits
    from ..encoder import Encoder

    methods: dict[str, AnyMethod | None] = {**given} or {"": None}
    names = short_names(models)
    for model in models:
        first = next(iter(methods.values()))
        loaded = ModelChoice(model, device, dtype, max_length, revision, trust).load(first)
        limits = Limits(loaded.max_length, batch_tokens=batch_tokens)
        for spec, method in methods.items():
            encoder = loaded if method in (None, first) else Encoder(loaded.backbone, method, max_length=max_length)
            several = [names[model]] * (len(models) > 1 or len(methods) == 1) + [spec] * (len(methods) > 1)
            yield " ".join(several), encoder, limits


def distinct(given: Sequence[str], short: Callable[[str], str], option: str) -> dict[str, str]:
    """A short name for each of several things; those whose short names are equal keep what was given.

    Raises:
        typer.BadParameter: one is given twice.
    """
    if twice := [one for one, n in Counter(given).items() if n > 1]:
        raise typer.BadParameter(f"{twice[0]} is given twice", param_hint=option)
    counts = Counter(map(short, given))
    return {one: short(one) if counts[short(one)] == 1 else one for one in given}


def short_names(models: Sequence[str]) -> dict[str, str]:
    """Models by name: their short names, or the names as given if two short ones are equal.

    Raises:
        typer.BadParameter: a model is given twice.

    >>> short_names(["a/gpt2/", "b/bert"]), short_names(["a/m", "b/m"])
    ({'a/gpt2/': 'gpt2', 'b/bert': 'bert'}, {'a/m': 'a/m', 'b/m': 'b/m'})
    """
    return distinct(models, short_name, "--model")


def as_text(results: Any) -> str:
    """Results as JSON: a list on one line, an object indented."""
    return json.dumps(results, ensure_ascii=False, indent=None if isinstance(results, list) else 2)
