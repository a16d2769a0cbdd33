"""``afterword words``: vectors of words in context."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..jobs.names import VECTOR, reasons_with_options
from . import options as o
from .console import say
from .inputs import check_one, open_reader, read_form, stdin_bytes
from .keep import read_keep, with_kept
from .model import ModelChoice, read_methods
from .progress import say_loading
from .write_rows import opened, output_to, write_rows

if TYPE_CHECKING:
    from ..encoder import Encoder
    from ..files.lines import FileForm, Reader, Record
    from ..jobs.items import Item
    from ..jobs.output_file import Output
    from ..jobs.windows import Progress
    from ..text.words import Word

COLUMNS = {"line": "number", "text": "text", "word": "text", "start": "number", "end": "number"}


def words(
    model: o.Model,
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="The text that holds the words.")] = None,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="WORD", help="Words to embed; of each, the first occurrence.")
    ] = None,
    occurrence: Annotated[
        list[str] | None,
        typer.Option(
            "--occurrence", metavar="WORD:N", help="Embed occurrence N of a word, counted from 0; -1 is the last."
        ),
    ] = None,
    span: Annotated[
        list[str] | None,
        typer.Option(
            "--span",
            metavar="START:END",
            help="Embed the characters from START up to, not including, END, counted from 0.",
        ),
    ] = None,
    input: Annotated[
        Path | None,
        typer.Option(
            "-i",
            "--input",
            metavar="FILE",
            help="Read rows from this .jsonl, .csv, .tsv (these may be gzipped) or .parquet file. A row has a text and "
            "word or words; a word is a string, [string, n] or [start, end].",
        ),
    ] = None,
    delimiter: o.Delimiter = None,
    encoding: o.Encoding = None,
    no_header: o.NoHeader = False,
    keep: o.Keep = None,
    output: o.Output = None,
    method: o.Method = None,
    prompt: o.Prompt = None,
    prompt_name: o.PromptName = None,
    normalize: o.Normalize = False,
    max_length: o.MaxLength = None,
    on_long: o.OnLong = "warn",
    batch_tokens: o.BatchTokens = None,
    window: o.Window = 2048,
    device: o.Device = None,
    dtype: o.Dtype = None,
    revision: o.Revision = None,
    trust_remote_code: o.Trust = False,
    rejects: o.RejectsFile = None,
    overwrite: o.Overwrite = False,
    progress: o.Progress = None,
) -> int:
    """Embed words in context: each word gives one row of the output.

    A word that is not in its text, or was cut off with the end of the text, gives a null row and is listed.
    """
    from ..jobs.windows import Embedding

    methods = read_methods([method] if method is not None else None)
    kept = read_keep(keep, [*COLUMNS, VECTOR])
    asked = {
        "verb": "words", "--method": method, "--prompt": prompt, "--prompt-name": prompt_name,
        "--normalize": normalize, "--max-length": max_length, "--on-long": on_long, "--dtype": dtype,
        "--window": window, "--keep": kept,
    }  # fmt: skip
    target = output_to(output, rejects, COLUMNS, input, 1, model=model, settings=asked, overwrite=overwrite)
    check_one(prompt=prompt, prompt_name=prompt_name)
    given = [*(words or []), *map(_occurrence, occurrence or []), *map(_span, span or [])]
    form = read_form(delimiter, encoding, no_header)
    reader = _reader(text, given, input, form, kept)
    with closing(reader), opened(target := with_kept(target, kept, reader)) as store:
        say_loading(model, progress)
        encoder = ModelChoice(model, device, dtype, max_length, revision, trust_remote_code).load(methods.get(VECTOR))
        settings = {
            "prompt": prompt, "prompt_name": prompt_name, "normalize_embeddings": normalize,
            "on_long": on_long, "batch_tokens": batch_tokens,
        }  # fmt: skip
        from ..jobs.made_by import made_by

        empty = encoder.encode([])
        probed = target.kind == "parquet"
        infos = {} if target.path is None else made_by(encoder, {VECTOR: encoder.method}, settings, model, probed)

        def encode(items: Sequence[Item], done: Progress) -> dict[str, Any]:
            return {VECTOR: _vectors(encoder, items, settings, done) if items else empty}

        embedding = Embedding(encode, not_finite, lambda items: columns(items, target))
        return write_rows(
            reader, items_of(reader, kept), embedding, store, target, infos, encoder, window=window,
            progress=progress,
        )  # fmt: skip


def not_finite(text: str) -> str:
    """The reason why the vector of a word is NaN or infinite."""
    return "has a vector that is not finite: try --dtype float32"


def _reader(text: str | None, given: list[Any], path: Path | None, form: FileForm, keep: Sequence[str]) -> Reader:
    from ..errors import DataError
    from ..files.lines import TEXT, ListedReader
    from ..files.read import TABLES, format_of, open_rows, open_texts

    if text is not None and path is None and given:
        open_reader([text], None, None, None, {"--keep": keep}, form)
        return ListedReader([text], {"words": given})
    if text is not None or given:
        raise typer.BadParameter(
            "give a text and words of it, or a file with --input" + ("" if path is None else ", not both"),
            param_hint="WORDS",
        )
    if path is None or str(path) == "-":
        return open_texts(None, stdin_bytes(), kind="jsonl", beside=keep, form=form, tell=say)
    kind = None if format_of(path) in TABLES else "jsonl"
    reader = open_rows(path, TEXT, kind=kind, beside=keep, form=form, tell=say)
    if reader.columns and "word" not in reader.columns and ("words" not in reader.columns or reader.only_strings):
        raise DataError(
            f"{path} has no column 'word': give a word with each text, in the columns text and word; it has "
            + ", ".join(reader.columns)
        )
    return reader


def _occurrence(spelled: str) -> tuple[str, int]:
    word, colon, number = spelled.rpartition(":")
    try:
        return word, int(number if colon else "none")
    except ValueError:
        raise typer.BadParameter(
            f"{spelled!r}: write WORD:N, as in bank:1 for the second", param_hint="--occurrence"
        ) from None


def _span(spelled: str) -> tuple[int, int]:
    start, _, end = spelled.partition(":")
    try:
        return int(start), int(end)
    except ValueError:
        raise typer.BadParameter(f"{spelled!r}: write START:END, as in 4:8", param_hint="--span") from None


def items_of(reader: Iterable[Record], keep: Sequence[str] = ()) -> Iterator[Item]:
    """The words of a file, each with its text, its span (start, end) and kept values, or its problem."""
    from ..files.lines import TEXT
    from ..jobs.items import Item, fault, values_of

    for record in reader:
        fields = record.fields or {}
        own, kept, wrong = values_of(fields, TEXT, keep)
        wanted = fields.get("words", [fields["word"]] if "word" in fields else None)
        problem = record.problem or (fault(fields[TEXT]) if TEXT in fields else f"has no field {TEXT!r}") or wrong
        if problem is None and (not isinstance(wanted, list) or not wanted):
            problem = "has no field 'word'" if wanted is None else "'words' is no list of words"
        if problem is not None or own is None:
            yield Item(record.line, own, problem, None, kept)
            continue
        for word in wanted:
            yield _item(record.line, own, word, kept)


def _item(line: int, text: str, word: object, kept: Mapping[str, Any]) -> Item:
    from ..errors import InputError
    from ..jobs.items import Item
    from ..text.words import span_of

    try:
        return Item(line, text, None, span_of(_word(word), text, "the text"), kept)
    except InputError as e:
        return Item(line, text, str(e), word, kept)


def _word(word: object) -> Word:
    """A word from JSON: a list is a pair, and true is not a number."""
    pair = tuple(word) if isinstance(word, list) else word
    if isinstance(pair, tuple) and any(isinstance(part, bool) for part in pair):
        pair = None
    return pair  # type: ignore[return-value]  # span_of validates it


def _vectors(encoder: Encoder, items: Sequence[Item], settings: dict[str, Any], done: Progress) -> Any:
    """Vectors of words (n, D); words of one text come from one forward."""
    import numpy as np

    texts = [list(group) for _, group in groupby(items, key=lambda item: item.line)]
    rows_of_a_text = len(items) / len(texts)
    with reasons_with_options():
        vectors = encoder.encode_words(
            [group[0].text or "" for group in texts], [[item.beside for item in group] for group in texts], **settings,
            show_progress_bar=lambda more: done(more * rows_of_a_text),
        )  # fmt: skip
    return np.concatenate(vectors)


def columns(items: Sequence[Item], output: Output) -> dict[str, list[Any]]:
    """The columns that are written beside the vectors; a rejected word has no span."""
    from ..jobs.items import kept_columns

    kinds = {name: kind for name, kind in output.columns.items() if name not in COLUMNS}
    spans = [item.beside if item.problem is None else (None, None) for item in items]
    return {
        "line": [item.line for item in items],
        "text": [item.text for item in items],
        "word": [_spelling(item) for item in items],
        "start": [start for start, _ in spans],
        "end": [end for _, end in spans],
        **kept_columns(items, kinds, output.kind == "parquet"),
    }


def _spelling(item: Item) -> str | None:
    if item.problem is None and item.text is not None:
        start, end = item.beside
        return item.text[start:end]
    first = item.beside[0] if isinstance(item.beside, list | tuple) and item.beside else item.beside
    return first if isinstance(first, str) and first.isprintable() else None
