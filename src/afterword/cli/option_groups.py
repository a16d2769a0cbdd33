"""Groups of options that verbs share: a parameter of a group's type stands for all of its options.

``help.expanded`` replaces such a parameter by the fields of its group; ``title`` heads them in the help.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from . import options as o
from .drawing import check_plot
from .inputs import open_reader, read_form
from .keep import read_keep
from .model import ModelChoice, read_methods, short_name

if TYPE_CHECKING:
    from ..encode.limits import Limits
    from ..encoder import Encoder
    from ..files.lines import FileForm, Reader
    from ..methods import AnyMethod

Models = Annotated[
    list[str],
    typer.Option(
        "-m", "--model", show_default=False, metavar="MODEL",
        help="A folder, or a model on the Hugging Face Hub. May be given several times, to compare models.",
    ),
]  # fmt: skip


@dataclass(frozen=True)
class Model(ModelChoice):
    """The model and how it is loaded; a verb with an optional model overrides the field in a subclass."""

    title: ClassVar = "Model"
    model: o.Model
    device: o.Device = None
    dtype: o.Dtype = None
    max_length: o.MaxLength = None
    revision: o.Revision = None
    trust_remote_code: o.Trust = False


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
        choice = ModelChoice(
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
        """Refuse a figure that cannot be drawn, before a long computation."""
        check_plot(self.plot, self.dark)

    def draw(self, plot: Callable[..., None], title: str, note: str, model: str = "", **options: Any) -> None:
        """Draw it, if it is asked for; of several, each to a file with the name of its model."""
        if self.plot is not None:
            from ..papers.figure import draw

            path = self.plot.with_stem(f"{self.plot.stem}-{model.replace('/', '-')}") if model else self.plot
            draw(path, plot, title=title, note=note, dark=self.dark, **options)


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
