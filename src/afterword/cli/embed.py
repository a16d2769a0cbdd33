"""``afterword embed``: texts to vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options as o
from .load import Choice, Embedder, open_reader, read_methods

if TYPE_CHECKING:
    from ..files.lines import Reader
    from .stream import Item, Told


def embed(
    model: o.Model,
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="Texts; without any, --input or stdin.")
    ] = None,
    input: o.Input = None,
    output: o.Output = None,
    format: o.Format = None,
    field: o.Field = None,
    method: o.Methods = None,
    prompt: o.Prompt = None,
    prompt_name: o.PromptName = None,
    condition: Annotated[
        str | None,
        typer.Option("--condition", metavar="TEXT", help="What {condition} stands for in a template, for every text."),
    ] = None,
    condition_field: Annotated[
        str | None,
        typer.Option("--condition-field", metavar="NAME", help="The column or field that holds it, text by text."),
    ] = None,
    normalize: o.Normalize = False,
    truncate_dim: o.TruncateDim = None,
    max_length: o.MaxLength = None,
    on_long: o.OnLong = "warn",
    batch_tokens: o.BatchTokens = None,
    window: o.Window = 2048,
    device: o.Device = None,
    dtype: o.Dtype = None,
    products: o.Products = None,
    revision: o.Revision = None,
    trust_remote_code: o.Trust = False,
    rejects: o.RejectsFile = None,
    progress: o.Progress = None,
) -> int:
    """Embed texts, one row out for every row in.

    A row that cannot be embedded (blank, not a string, a corrupt line) gives a null row and is listed; the run goes
    on and ends with exit code 1.
    """
    from .stream import pour
    from .target import Target

    methods = read_methods(method)
    if len(methods) > 1 and (condition or condition_field):
        raise typer.BadParameter("a condition goes with one method", param_hint="--condition")
    target = Target(output if str(output) != "-" else None, rejects, {"text": "text"}, {"afterword.model": model})
    target.check(input, len(methods))
    reader = open_reader(texts, input, format, field, [condition_field] if condition_field else ())
    settings = {
        "prompt": prompt, "prompt_name": prompt_name, "normalize_embeddings": normalize,
        "truncate_dim": truncate_dim, "batch_tokens": batch_tokens, "on_long": on_long,
    }  # fmt: skip
    with target.opened() as file:
        choice = Choice(model, device, dtype, max_length, revision, trust_remote_code, products)
        embedder = Embedder.open(choice, methods, settings)
        conditioned = condition is not None or condition_field is not None

        def encode(items: Sequence[Item], told: Told) -> dict[str, Any]:
            conditions = [item.beside for item in items] if conditioned else None
            return embedder([item.text or "" for item in items], conditions, told)

        return pour(
            reader, items_of(reader, condition, condition_field), encode, embedder.why_nan, columns, target, file,
            window=window, progress=progress,
        )  # fmt: skip


def items_of(reader: Reader, condition: str | None = None, condition_field: str | None = None) -> Iterator[Item]:
    """The texts of a file, each with its condition or its problem."""
    from .stream import Item, fault

    for record in reader:
        if record.fields is None:
            yield Item(record.line, None, record.problem)
            continue
        if reader.field not in record.fields:
            yield Item(record.line, None, f"has no field {reader.field!r}")
            continue
        text, beside = record.fields[reader.field], condition
        problem = fault(text)
        if condition_field is not None:
            beside = record.fields.get(condition_field)
            wrong = fault(beside)
            problem = problem or (f"{condition_field!r} {wrong}" if wrong else None)
        yield Item(record.line, text if problem is None else None, problem, beside)


def columns(items: Sequence[Item]) -> dict[str, list[Any]]:
    """What stands beside the vectors."""
    return {"text": [item.text for item in items]}
