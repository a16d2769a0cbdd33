"""From the options of a command line to an encoder and its methods."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import typer

if TYPE_CHECKING:
    from ..encoder import Encoder
    from ..files.lines import Reader
    from ..files.write import Array
    from ..methods import Method

VECTOR = "vector"  # what the only vector of a row is called


@dataclass(frozen=True)
class Choice:
    """A model and how it is loaded; the names are those of the options."""

    model: str
    device: str | None = None
    dtype: str | None = None
    max_length: int | None = None
    revision: str | None = None
    trust_remote_code: bool = False
    products: str | None = None

    def load(self, method: Method | None) -> Encoder:
        """The encoder.

        Raises:
            typer.BadParameter: there is no such device.
            ModelError: the model cannot be loaded, or not run exactly.
        """
        from ..encoder import Encoder

        check_device(self.device)
        return Encoder.load(
            self.model, method, device=self.device, dtype=self.dtype, max_length=self.max_length,
            revision=self.revision, trust_remote_code=self.trust_remote_code, products=self.products or "float32",
        )  # fmt: skip


def check_device(device: str | None) -> None:
    """Raise typer.BadParameter where there is no such device."""
    if device is None:
        return
    import torch

    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as e:
        reason = str(e).splitlines()[0]
        raise typer.BadParameter(f"{device!r} cannot be used: {reason:.160}", param_hint="--device") from None


def read_methods(specs: Sequence[str] | None) -> dict[str, Method]:
    """Methods by the name their vectors get: "vector" for one, their own spelling for several; {} for none.

    Raises:
        MethodError: one is unknown, or given twice.
    """
    from ..methods.serialize import parse_method

    specs = list(specs or ())
    if len(set(specs)) < len(specs):
        raise typer.BadParameter("the same method is given twice", param_hint="--method")
    if len(specs) == 1:
        return {VECTOR: parse_method(specs[0])}
    return {spec: parse_method(spec) for spec in specs}


@dataclass
class Embedder:
    """Texts to vectors by every method that was asked for.

    Args:
        encoder: with the first of the methods, or its own.
        methods: by name, at least one.
        options: of `Encoder.encode`.
    """

    encoder: Encoder
    methods: dict[str, Method]
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def open(cls, choice: Choice, methods: dict[str, Method], options: dict[str, Any]) -> Embedder:
        """Load the model."""
        encoder = choice.load(next(iter(methods.values()), None))
        return cls(encoder, methods or {VECTOR: encoder.method}, options)

    def __call__(
        self,
        texts: Sequence[str],
        conditions: Sequence[str] | None = None,
        told: Callable[[float], None] = lambda _: None,
    ) -> dict[str, Array]:
        """Vectors (n, D) by name, NaN for a text that holds no token; `told` hears how many more texts are done."""

        def done(vectors: int) -> None:
            told(vectors / len(self.methods))

        options = {**self.options, "on_empty": "nan", "show_progress_bar": done}
        if len(self.methods) > 1:
            return self.encoder.encode_many(list(texts), self.methods, **options)
        (name,) = self.methods
        made = self.encoder.encode(list(texts), conditions=conditions, **options)
        return {name: made}

    def why_nan(self, text: str) -> str:
        """What is wrong with a text whose vector is not finite."""
        empty = not self.encoder.backbone.tokenizer.ids([text])[0]
        return (
            "holds no token that the model knows" if empty else "has a vector that is not finite: try --dtype float32"
        )


def open_reader(
    texts: Sequence[str] | None, path: Path | None, kind: str | None, column: str | None, beside: Sequence[str] = ()
) -> Reader:
    """Texts given one by one, else those of a file, else those of the standard input.

    Raises:
        typer.BadParameter: both are given, or a file is given as if it were a text.
        DataError: the file cannot be read.
    """
    from ..files.lines import Listed
    from ..files.read import FORMATS, open_texts

    if texts and path is not None:
        raise typer.BadParameter("give texts, or a file with --input, not both")
    if texts and path is None:
        for text in texts:
            if text.lower().endswith(tuple(f".{f}" for f in FORMATS)) and _is_file(text):
                raise typer.BadParameter(f"{text!r} is a file: --input {text} reads it", param_hint="TEXTS")
        return Listed(list(texts))
    path = None if path is None or str(path) == "-" else path
    if path is None and sys.stdin.isatty():
        typer.echo("texts from the keyboard, one a line; Ctrl-D ends them", err=True)
    return open_texts(path, stdin_bytes(), kind=kind, field=column, beside=beside)


def stdin_bytes() -> BinaryIO:
    """The standard input, as bytes."""
    return sys.stdin.buffer


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except (OSError, ValueError):
        return False
