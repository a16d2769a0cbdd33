"""``afterword words``: vectors of words in context."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..jobs import VECTOR, WORD_COLUMNS
from . import options as o
from .console import say
from .embed_folder import settings_of
from .inputs import check_one, open_reader, read_form, stdin_bytes
from .keep import read_keep
from .model import ModelChoice, read_methods
from .progress import say_loading
from .write_rows import output_to, source_of, write_file, write_stream

if TYPE_CHECKING:
    from ..files.lines import FileForm, ListedReader


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

    Examples:
        afterword words -m minilm "We sat on the bank of the river." bank river
    """
    methods = read_methods([method] if method is not None else None)
    kept = read_keep(keep, [*WORD_COLUMNS, VECTOR])
    target = output_to(output, rejects, input, 1, bool(kept), overwrite)
    check_one(prompt=prompt, prompt_name=prompt_name)
    form = read_form(delimiter, encoding, no_header)
    given = [*(words or []), *map(_occurrence, occurrence or []), *map(_span, span or [])]
    listed = _listed(text, given, input, form, kept)
    options = {
        "prompt": prompt, "prompt_name": prompt_name, "normalize_embeddings": normalize, "on_long": on_long,
        "batch_tokens": batch_tokens,
    }  # fmt: skip
    from ..jobs.rows import read_ahead
    from ..jobs.word_rows import WordInputs, WordRecipe, open_words, word_items

    choice = ModelChoice(model, device, dtype, max_length, revision, trust_remote_code)
    recipe = WordRecipe(choice, methods.get(VECTOR), options)
    if target is None:
        path = None if input is None or str(input) == "-" else input
        with closing(listed or open_words(path, stdin_bytes(), kept, form, say)) as reader:
            items = word_items(reader, kept)
            items = read_ahead(items) if path is not None and path.is_file() else items
            say_loading(model, progress)
            embedding = recipe.open().embedding(
                {**WORD_COLUMNS, **{name: reader.kinds[name] for name in kept}}, parquet=False
            )
            return write_stream(reader, items, embedding, rejects, window=window, progress=progress)
    asked = {
        "verb": "words", "--method": method, "--prompt": prompt, "--prompt-name": prompt_name,
        "--normalize": normalize, "--max-length": max_length, "--on-long": on_long, "--dtype": dtype,
        "--window": window, "--keep": kept,
    }  # fmt: skip

    def inputs_of(folder: Path) -> WordInputs:
        file, kind, copied = source_of(folder, listed, input, None)
        return WordInputs((file,), kind, None, (*kept,), form, spooled=copied)

    settings = settings_of(model, asked, None, None, form)
    return write_file(target, inputs_of, recipe, WORD_COLUMNS, settings, model, window=window, progress=progress)


def _listed(
    text: str | None, given: list[Any], path: Path | None, form: FileForm, keep: Sequence[str]
) -> ListedReader | None:
    """The words of the command line; None if they are in a file."""
    from ..files.lines import ListedReader

    if text is not None and path is None and given:
        open_reader([text], None, None, None, {"--keep": keep}, form)
        return ListedReader([text], {"words": given})
    if text is not None or given:
        raise typer.BadParameter(
            "give a text and words of it, or a file with --input" + ("" if path is None else ", not both"),
            param_hint="WORDS",
        )
    return None


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
