"""Load the encoder and the methods that the options of a command name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ..jobs import VECTOR

if TYPE_CHECKING:
    from ..backbone.model_source import ModelSource
    from ..encoder import Encoder
    from ..methods import AnyMethod, Method


@dataclass(frozen=True)
class ModelChoice:
    """A model and the options for loading it; `options` documents them."""

    model: str
    device: str | None = None
    dtype: str | None = None
    max_length: int | None = None
    revision: str | None = None
    trust_remote_code: bool = False

    def load(self, method: AnyMethod | None) -> Encoder:
        """The encoder.

        Raises:
            typer.BadParameter: there is no such device.
            ModelError: the model cannot be loaded, or cannot be run exactly.
        """
        source = self.located()  # before torch is imported
        from ..encoder import Encoder
        from ..files.read_encoder import read_located

        check_device(self.device)
        fields = read_located(
            source, self.model, method, device=self.device, dtype=self.dtype, max_length=self.max_length,
            trust_remote_code=self.trust_remote_code,
        )  # fmt: skip
        return Encoder(**fields)

    def located(self) -> ModelSource:
        """Where the model is.

        Raises:
            ModelError: it is nowhere, or its folder holds none.
        """
        from ..backbone.file_safety import check_folder
        from ..backbone.model_source import ModelSource

        source = ModelSource(self.model, self.revision).located()
        folder = Path(source.name)
        if folder.is_dir() and not (folder / "modules.json").exists():
            check_folder(folder)
        return source


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
    """Methods by the name of their vectors: "vector" for a single method, else the method as it was given.

    Raises:
        MethodError: a method is unknown.
        typer.BadParameter: a method is given twice.
    """
    from ..methods.serialize import parse_method

    specs = list(specs or ())
    if len(set(specs)) < len(specs):
        raise typer.BadParameter("the same method is given twice", param_hint="--method")
    if len(specs) == 1:
        return {VECTOR: parse_method(specs[0])}
    return {spec: parse_method(spec) for spec in specs}


def members_of(methods: Iterable[AnyMethod]) -> list[Method]:
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


def title_of(model: str) -> str:
    """The name of a model in results.

    >>> title_of("models/gpt2/"), title_of("openai-community/gpt2")
    ('gpt2', 'openai-community/gpt2')
    """
    path = Path(model)
    return path.resolve().name if path.exists() else model


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
