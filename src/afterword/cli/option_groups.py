"""Groups of options that verbs share, and what they stand for: a model to load, texts to read, a file to write.

``help.expanded`` replaces a parameter of a group's type by the fields of the group; ``title`` heads them in the help.
"""

from __future__ import annotations

import csv
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, ClassVar

import typer

from ..jobs import VECTOR
from . import options as o
from .console import say

if TYPE_CHECKING:
    from ..backbone.model_source import ModelSource
    from ..encode.limits import Limits
    from ..encoder import Encoder
    from ..files.lines import FileForm, Reader
    from ..methods import AnyMethod
    from ..methods import Method as OneMethod

Models = Annotated[
    list[str],
    typer.Option(
        "-m", "--model", show_default=False, metavar="MODEL",
        help="A folder, or a model on the Hugging Face Hub. May be given several times, to compare models.",
    ),
]  # fmt: skip


@dataclass(frozen=True)
class Model:
    """The model and how it is loaded; a verb with an optional model overrides the field in a subclass."""

    title: ClassVar = "Model"
    model: o.Model
    device: o.Device = None
    dtype: o.Dtype = None
    max_length: o.MaxLength = None
    revision: o.Revision = None
    trust_remote_code: o.Trust = False

    def load(self, method: AnyMethod | None) -> Encoder:
        """Load the encoder.

        Raises:
            typer.BadParameter: there is no such device.
            ModelError: the model cannot be loaded, or cannot be run exactly.
        """
        source = self.located()  # before torch is imported
        from ..encoder import Encoder
        from ..files.read_encoder import read_located

        check_device(self.device)
        parts = read_located(
            source, self.model, method, device=self.device, dtype=self.dtype, max_length=self.max_length,
            trust_remote_code=self.trust_remote_code,
        )  # fmt: skip
        return Encoder(**parts)

    def located(self) -> ModelSource:
        """Find the model.

        Raises:
            ModelError: it does not exist, or its folder holds no model.
        """
        from ..backbone.model_source import ModelSource, check_folder

        source = ModelSource(self.model, self.revision).located()
        folder = Path(source.name)
        if folder.is_dir() and not (folder / "modules.json").exists():
            check_folder(folder)
        return source


@dataclass(frozen=True)
class Form:
    """How a file of texts is read."""

    title: ClassVar = "Input"
    format: o.Format = None
    field: o.Field = None
    delimiter: o.Delimiter = None
    encoding: o.Encoding = None
    no_header: o.NoHeader = False

    def form(self) -> FileForm:
        """How a table is written."""
        return read_form(self.delimiter, self.encoding, self.no_header)

    def open(self, path: Path | None, texts: Sequence[str] | None = None, columns: Sequence[str] = ()) -> Reader:
        """Open texts from arguments, else a file, else the standard input, with further columns of the file."""
        return open_reader(texts, path, self.format, self.field, {"": columns} if columns else {}, self.form())


@dataclass(frozen=True)
class Input(Form):
    """A file of texts and how it is read."""

    input: o.Input = None


@dataclass(frozen=True)
class Method:
    """The method, and what is done to texts before it and to vectors after it."""

    title: ClassVar = "Method"
    method: o.Methods = None
    prompt: o.Prompt = None
    prompt_name: o.PromptName = None
    normalize: o.Normalize = False
    truncate_dim: o.TruncateDim = None
    on_long: o.OnLong = "warn"

    def methods(self) -> dict[str, AnyMethod]:
        """The methods by the name of their vectors."""
        return read_methods(self.method)


@dataclass(frozen=True)
class Output:
    """The file of vectors."""

    title: ClassVar = "Output"
    output: o.Output = None
    keep: o.Keep = None
    rejects: o.RejectsFile = None
    overwrite: o.Overwrite = False

    def columns(self, taken: Sequence[str]) -> list[str]:
        """The columns of the input to keep; ``taken`` are columns that the output has already."""
        return read_keep(self.keep, taken)


@dataclass(frozen=True)
class Speed:
    """How the work is cut into pieces, and whether its progress is drawn."""

    title: ClassVar = "Speed and memory"
    batch_tokens: o.BatchTokens = None
    window: o.Window = 2048
    progress: o.Progress = None


TITLES = {f.name: str(group.title) for group in (Model, Input, Method, Output, Speed) for f in fields(group)}
"""The headings in the help of options that verbs share."""


@dataclass(frozen=True)
class Texts:
    """The texts that are measured."""

    title: ClassVar = "Input"
    input: o.Input = None
    pairs: Annotated[
        Path | None,
        typer.Option("--pairs", metavar="FILE", help="Use the texts in sentence1 and sentence2 of this file."),
    ] = None
    format: o.Format = None
    field: o.Field = None

    def read(self) -> list[str]:
        """The texts of the input, or those of the pairs, each once.

        Raises:
            typer.BadParameter: both files are passed.
            DataError: a row cannot be used.
        """
        from ..tasks.rows import read_rows

        if self.pairs is None:
            return read_input(self.input, self.format, self.field)
        if self.input is not None:
            raise typer.BadParameter("pass --input or --pairs, not both")
        rows = list(read_rows(self.pairs, {"sentence1": _filled, "sentence2": _filled}))
        return list(dict.fromkeys(row[side] for row in rows for side in ("sentence1", "sentence2")))


@dataclass(frozen=True)
class Run:
    """How models are loaded and run, and how results are printed."""

    title: ClassVar = "Output"
    max_length: o.MaxLength = None
    batch_tokens: o.BatchTokens = None
    device: o.Device = None
    dtype: o.Dtype = None
    revision: o.Revision = None
    trust_remote_code: o.Trust = False
    as_json: o.AsJson = False

    def load(self, model: str, method: AnyMethod | None) -> Encoder:
        """Load a model with a method; None is its own."""
        choice = Model(
            model, self.device, self.dtype, self.max_length, self.revision, self.trust_remote_code
        )  # fmt: skip
        return choice.load(method)

    def encoders(
        self, models: Sequence[str], methods: Mapping[str, AnyMethod]
    ) -> Iterator[tuple[str, Encoder, Limits]]:
        """Each model with each method, one model in memory at a time: its name in results, encoder and limits."""
        from ..encode.limits import Limits
        from ..encoder import Encoder

        specs: dict[str, AnyMethod | None] = {**methods} or {"": None}
        for model, short in self.names(models).items():
            first = next(iter(specs.values()))
            loaded = self.load(model, first)
            limits = Limits(loaded.max_length, batch_tokens=self.batch_tokens)
            for spec, method in specs.items():
                encoder = loaded
                if method not in (None, first):
                    encoder = Encoder(loaded.backbone, method, max_length=self.max_length)
                name = [short] * (len(models) > 1 or len(specs) == 1) + [spec] * (len(specs) > 1)
                yield " ".join(name), encoder, limits

    def names(self, models: Sequence[str]) -> dict[str, str]:
        """The models with their short names.

        Raises:
            typer.BadParameter: a model is repeated, or several are to have one revision.
        """
        if self.revision is not None and len(models) > 1:
            raise typer.BadParameter("is that of one model: pass one -m", param_hint="--revision")
        return distinct(models, short_name, "--model")

    def show(self, results: Any, lines: Iterator[str] | Sequence[str]) -> int:
        """Print the results as JSON, or the lines. Returns the exit code."""
        typer.echo(as_text(results) if self.as_json else "\n".join(lines))
        return 0


@dataclass(frozen=True)
class Figure:
    """The figure of the results."""

    title: ClassVar = "Output"
    plot: o.Plot = None
    dark: o.Dark = False

    def check(self) -> None:
        """Check, before a long computation, that the figure can be drawn."""
        if self.plot is not None:
            from ..papers.figure import check

            check(self.plot, self.dark)

    def draw(self, draw: Callable[..., None], *results: Any, model: str = "", **options: Any) -> None:
        """Call ``draw(path, *results)`` if there is --plot; with a model, the file is named after it too."""
        if self.plot is not None:
            path = self.plot.with_stem(f"{self.plot.stem}-{model.replace('/', '-')}") if model else self.plot
            draw(path, *results, dark=self.dark, **options)


def read_input(input: Path | None, format: str | None = None, field: str | None = None) -> list[str]:
    """The texts of a file or of stdin.

    Raises:
        DataError: a row cannot be used, or there is none.
    """
    from ..errors import DataError

    if texts := list(items(None, input, format, field)):
        return texts
    raise DataError(f"{input or 'stdin'} holds no text: pass at least one")


def items(text: str | None, input: Path | None, format: str | None, field: str | None) -> Iterator[str]:
    """The texts of an argument, a file or stdin.

    Raises:
        BadRow: a row cannot be used.
    """
    from ..errors import BadRow
    from ..jobs.rows import items_of

    with closing(open_reader(None if text is None else [text], input, format, field)) as reader:
        for item in items_of(reader):
            if item.problem is not None:
                raise BadRow(input or ("the text" if text is not None else "stdin"), item.line, item.problem)
            yield item.text or ""


def _filled(value: Any) -> str:
    """The text of a pair, checked as one of --input is."""
    from ..jobs.rows import fault

    if problem := fault(value):
        raise ValueError(problem)
    return str(value)


def distinct(names: Sequence[str], short: Callable[[str], str], option: str) -> dict[str, str]:
    """A short name for each name; where short names are equal, the long one.

    Raises:
        typer.BadParameter: a name is repeated.
    """
    if repeated := [name for name, n in Counter(names).items() if n > 1]:
        raise typer.BadParameter(f"{repeated[0]} is repeated: pass it once", param_hint=option)
    counts = Counter(map(short, names))
    return {name: short(name) if counts[short(name)] == 1 else name for name in names}


def as_text(results: Any) -> str:
    """Results as JSON: a list on one line, an object indented."""
    return json.dumps(results, ensure_ascii=False, indent=None if isinstance(results, list) else 2)


def check_device(device: str | None) -> None:
    """Raise typer.BadParameter if there is no such device; `options` checks how it is written."""
    if device is None:
        return
    import torch

    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as e:
        reason = f"{device!r} cannot be used: {str(e).splitlines()[0]:.160}"
        if device != "cpu" and not (torch.cuda.is_available() or torch.backends.mps.is_available()):
            reason = "there is no GPU here: leave --device out"
        raise typer.BadParameter(reason, param_hint="--device") from None


def read_methods(specs: Sequence[str] | None) -> dict[str, AnyMethod]:
    """Methods by the name of their vectors: "vector" for a single method, else the method as it is written.

    Raises:
        MethodError: a method is unknown.
    """
    from ..methods.serialize import parse_method

    specs = list(dict.fromkeys(specs or ()))
    if len(specs) == 1:
        return {VECTOR: parse_method(specs[0])}
    return {spec: parse_method(spec) for spec in specs}


def members_of(methods: Iterable[AnyMethod]) -> list[OneMethod]:
    """The methods, and those of the ensembles among them."""
    return [member for method in methods for member in method.members]


def check_condition(methods: Iterable[AnyMethod], options: str, given: bool) -> None:
    """Refuse a condition without a place in the template, and the reverse, before a model is loaded.

    Args:
        methods: the methods.
        options: the options that give a condition.
        given: whether one is given.

    Raises:
        typer.BadParameter: it is given without effect, or is missing.
    """
    for method in methods:
        wanted = any("condition" in member.layout.fields for member in method.members)
        if wanted and not given:
            raise typer.BadParameter(f"the template holds {{condition}}: give {options}", param_hint="--method")
        if given and not wanted:
            raise typer.BadParameter(f"the template of {method} holds no {{condition}}", param_hint="--condition")


GENERIC = re.compile(r"(model|encoder|final|best|out|checkpoint-\d+)")


def short_name(model: str) -> str:
    """A model's name in tables and figures: its folder's, with the folder above where the name says nothing.

    >>> short_name("runs/tuned/"), short_name("tuned/checkpoint-50")
    ('tuned', 'tuned/checkpoint-50')
    """
    path = Path(model)
    path = path.resolve() if path.exists() else path
    named = len(path.parts) > 1 and GENERIC.fullmatch(path.name) is not None
    return "/".join(path.parts[-2:]) if named else path.name or model


def open_reader(
    texts: Sequence[str] | None,
    path: Path | None,
    kind: str | None,
    column: str | None,
    beside: Mapping[str, Sequence[str]] = MappingProxyType({}),
    form: FileForm | None = None,
) -> Reader:
    """Open the input: texts from arguments, else a file, else the standard input.

    Args:
        texts: the texts.
        path: of the file.
        kind: its format.
        column: the column that holds the texts.
        beside: further columns to read, by the option that names them.
        form: how the file is written, from `read_form`.

    Raises:
        typer.BadParameter: texts and a file are passed, or the name of a file is passed as a text.
        DataError: the file cannot be read.
    """
    from ..files.lines import USUAL_FORM, ListedReader
    from ..files.read import FORMATS, format_of, open_texts

    if texts:
        if path is not None:
            raise typer.BadParameter("pass texts, or a file with --input, not both")
        for text in texts:
            if format_of(Path(text)) in FORMATS and os.path.isfile(text):
                raise typer.BadParameter(f"{text!r} is a file: --input {text} reads it", param_hint="TEXTS")
        return ListedReader(list(texts))
    path = None if path is None or str(path) == "-" else path
    if path is None and sys.stdin.isatty():
        typer.echo("texts from the keyboard, one a line; Ctrl-D ends them", err=True)
    columns = [name for names in beside.values() for name in names]
    return open_texts(path, stdin_bytes(), kind=kind, field=column, beside=columns, form=form or USUAL_FORM, tell=say)


def read_form(delimiter: str | None, encoding: str | None, no_header: bool) -> FileForm:
    """How a table is written.

    Raises:
        typer.BadParameter: the delimiter is not a single character.
        DataError: the encoding is unknown.
    """
    from ..files.lines import FileForm
    from ..files.read import check_encoding

    if delimiter is not None:
        delimiter = {"tab": "\t", "\\t": "\t"}.get(delimiter, delimiter)
        if len(delimiter) != 1 or delimiter in '"\r\n':
            raise typer.BadParameter(f"{delimiter!r}: pass one character, or tab", param_hint="--delimiter")
    return FileForm(delimiter, None if encoding is None else check_encoding(encoding), not no_header)


def check_one(**options: object) -> None:
    """Refuse two options of which one has no effect: ``check_one(prompt=..., prompt_name=...)``.

    Raises:
        typer.BadParameter: more than one is given.
    """
    given = [f"--{name.replace('_', '-')}" for name, value in options.items() if value is not None]
    if len(given) > 1:
        raise typer.BadParameter(f"pass {given[0]} or {given[1]}, not both", param_hint=given[1])


def stdin_bytes() -> BinaryIO:
    """The standard input, as bytes."""
    return sys.stdin.buffer


def read_keep(spelled: Sequence[str] | None, taken: Sequence[str]) -> list[str]:
    """The names of the columns to keep.

    Args:
        spelled: names, separated by commas; a name that holds a comma is written in double quotes.
        taken: names that the output has already.

    Raises:
        typer.BadParameter: a name is taken.

    >>> read_keep(['id,"last, first"', "channel"], ["text", "vector"])
    ['id', 'last, first', 'channel']
    """
    names = list(dict.fromkeys(name.strip() for row in csv.reader(spelled or []) for name in row))
    for name in names:
        if name in taken:
            raise typer.BadParameter(
                f"the output has its own column {name!r}: rename that of the input", param_hint="--keep"
            )
    return names


def numbers(spelled: str | None, option: str, kind: Callable[[str], Any] = int) -> tuple[Any, ...]:
    """The numbers of a list such as ``1,2``.

    Raises:
        typer.BadParameter: one is not a number.

    >>> numbers("1, 2", "--copies")
    (1, 2)
    """
    try:
        return tuple(kind(part) for part in spelled.split(",")) if spelled else ()
    except ValueError:
        raise typer.BadParameter(f"{spelled!r}: write numbers separated by commas", param_hint=option) from None


ModelChoice = Model
