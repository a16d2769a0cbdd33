"""``afterword analyse lengths``: how many tokens texts have for a model. No weights are loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options as o
from .analyse_inputs import Models, PairFile, as_text, short_names, texts_of
from .drawing import check_plot
from .model import ModelChoice

if TYPE_CHECKING:
    from ..papers.lengths import Lengths
    from ..text.layout import Layout
    from ..text.tokenizer import Tokenizer

QUANTILES = (0.5, 0.9, 0.99, 1.0)


def lengths(
    model: Models,
    input: o.Input = None,
    pairs: PairFile = None,
    format: o.Format = None,
    field: o.Field = None,
    tasks: Annotated[
        list[str] | None,
        typer.Option(
            "--tasks",
            metavar="TASKS",
            help="Measure the texts of these tasks, each by itself: groups or names, separated by commas; see "
            "`afterword evaluate --list`.",
        ),
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", metavar="DIR", help="Folder of the tasks' data; or hub, to download them.")
    ] = None,
    method: o.Method = None,
    plot: o.Plot = None,
    dark: o.Dark = False,
    max_length: Annotated[
        int | None,
        typer.Option(
            "--max-length", min=1, metavar="N", help="Count the texts over N tokens. Default: the model's limit."
        ),
    ] = None,
    revision: o.Revision = None,
    trust_remote_code: o.Trust = False,
    as_json: o.AsJson = False,
) -> int:
    """Count the tokens of texts by a model's tokenizer, and the texts over its limit (ReBA's Figure 4).

    Special tokens, template and copies of the method count. The model's weights are not loaded. The plot shows the
    share of texts that are at most so long.
    """
    check_plot(plot, dark)
    from ..methods import one_method
    from ..methods.serialize import parse_method

    chosen = None if method is None else one_method(parse_method(method), "the number of tokens")
    texts = texts_by_name(tasks, data, input, pairs, format, field)
    from ..papers.lengths import lengths as measure

    results: list[Lengths] = []
    for spec, short in short_names(model).items():
        tokenizer, layout, limit = reading(ModelChoice(spec, None, None, None, revision, trust_remote_code))
        for name, those in texts.items():
            whole = " ".join([short] * (len(model) > 1 or not name) + [name] * bool(name))
            found = measure(
                tokenizer, those, chosen.layout if chosen else layout, limit=max_length or limit, name=whole
            )
            results.append(found)
    if plot is not None:
        from ..papers import figure
        from ..papers.lengths import plot as plot_shares

        draw = partial(plot_shares, results=results)
        note = "special tokens, template and copies of the method included"
        figure.draw(plot, draw, title="Lengths of texts in tokens", note=note, dark=dark)
    typer.echo(as_text([r.to_json() for r in results]) if as_json else "\n".join(_table(results)))
    return 0


def texts_by_name(
    tasks: Sequence[str] | None,
    data: str | None,
    input: Path | None,
    pairs: Path | None,
    format: str | None,
    field: str | None,
) -> Mapping[str, Sequence[str]]:
    """The texts of each task, or of a file under the name "".

    Raises:
        typer.BadParameter: a file and tasks are given.
        DataError: a task has no plain texts, or its data are missing.
    """
    if not tasks:
        return {"": texts_of(input, pairs, format, field)}
    if input is not None or pairs is not None:
        raise typer.BadParameter("give a file or --tasks, not both", param_hint="--tasks")
    from ..errors import DataError
    from ..tasks.catalogue import jobs, local_tasks
    from ..tasks.hub import source
    from ..tasks.rows import Folder

    none, found = Folder(Path("no folder is given")), {}
    asked = jobs(tasks, none if data is None else source(data), local_tasks(), _mteb_tasks)
    if any(job.source == none for job in asked):
        raise typer.BadParameter("is needed: the folder of the tasks' data, or hub", param_hint="--data")
    for job in asked:
        found[job.name] = list(dict.fromkeys(job.task.load(job.source).texts()))
        if not found[job.name]:
            raise DataError(f"{job.name} has no texts without a word or a condition: leave it out")
    return found


def _mteb_tasks(name: str) -> tuple[Any, ...]:
    from ..adapters.mteb_official import known_by

    return known_by(name)


def reading(choice: ModelChoice) -> tuple[Tokenizer, Layout, int | None]:
    """A model's tokenizer, the layout of its saved method, and the most tokens that it reads; no weights are loaded."""
    from ..backbone.loading import load_tokenizer
    from ..backbone.model_source import ModelSource
    from ..encode.options import choose_prompt
    from ..files.folder_modules import read_folder
    from ..methods import one_method
    from ..text.inputs import with_prompt
    from ..text.layout import Layout

    source = choice.located()
    folder, _ = source.folder()
    if not (folder / "modules.json").exists():
        tokenizer, limit = load_tokenizer(source, choice.trust_remote_code)
        return tokenizer, Layout(), limit
    saved = read_folder(folder)
    tokenizer, limit = load_tokenizer(ModelSource(str(saved.model)).located(), choice.trust_remote_code)
    prompt = choose_prompt(saved.prompts, saved.default_prompt_name)
    layout = one_method(saved.method, "the number of tokens").layout
    return tokenizer, with_prompt(layout, prompt), saved.max_length or limit


def _table(results: Sequence[Lengths]) -> Iterator[str]:
    wide = max(len(r.name) for r in results)
    yield f"{'':{wide}}   texts  median  90 %  99 %  longest  limit  over it"
    for r in results:
        middle, ninety, most, longest = (r.quantile(q) for q in QUANTILES)
        over = "0.00 %" if r.limit is None else f"{100 * r.over / len(r.tokens):.2f} %"
        limit = "none" if r.limit is None else str(r.limit)
        yield (f"{r.name:{wide}} {len(r.tokens):7} {middle:7} {ninety:5} {most:5} {longest:8} {limit:>6} {over:>8}")
