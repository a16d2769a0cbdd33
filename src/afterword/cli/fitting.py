"""Methods and post-processing steps that are fitted to the texts of a file: read, checked and fitted for a command."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from .console import say
from .inputs import open_reader
from .model import members_of

if TYPE_CHECKING:
    from ..jobs.recipe import MethodsEmbedder
    from ..methods import AnyMethod
    from ..post import Post


def fit_texts(path: Path) -> list[str]:
    """The texts of a file to fit on. Rows without a text are left out, and counted.

    Raises:
        DataError: the file cannot be read, or holds no texts.
    """
    from ..errors import DataError

    with closing(open_reader(None, path, None, None)) as reader:
        values = [(record.fields or {}).get(reader.field) for record in reader]
    texts = [text for text in values if isinstance(text, str) and text.strip()]
    if not texts:
        raise DataError(f"{path} holds no texts to fit on")
    if len(texts) < len(values):
        say(f"warning: {path}: {len(values) - len(texts)} of {len(values)} rows hold no text to fit on")
    return texts


def check_fit(fit: object, methods: Iterable[AnyMethod], steps: Iterable[Post]) -> None:
    """Refuse ``--fit`` where nothing is fitted.

    Raises:
        typer.BadParameter: no method and no step is.
    """
    from ..post import Unfitted

    unfitted = any(not m.weigh.fitted for m in members_of(methods)) or any(isinstance(step, Unfitted) for step in steps)
    if fit is not None and not unfitted:
        raise typer.BadParameter(
            "has no effect: no method (tfidf, sif, remove_biases) and no step (centre, whiten, ...) is fitted to texts",
            param_hint="--fit",
        )


@dataclass(frozen=True)
class Fit:
    """The post-processing steps of one command, and what its method and steps are fitted to.

    Attributes:
        steps: post-processing steps, after those of the encoder.
        texts: texts to fit on, each as often as it is there; None if nothing is fitted.
        digest: a hash of the texts; a run goes on with the same ones only.
        save: folder that the fitted encoder is saved to.
        overwrite: replace the encoder that is saved there.
    """

    steps: tuple[Post, ...] = ()
    texts: tuple[str, ...] | None = None
    digest: str | None = None
    save: Path | None = None
    overwrite: bool = False

    @classmethod
    def read(
        cls,
        path: Path | None,
        post: str | None,
        methods: Mapping[str, AnyMethod],
        save: Path | None,
        written: Iterable[Path | None] = (),
        overwrite: bool = False,
    ) -> Fit:
        """Read and check the options, before a model is loaded.

        Args:
            path: the texts to fit on.
            post: post-processing steps, as ``--post`` has them.
            methods: the methods of the command.
            save: the folder for the encoder.
            written: the files that the command writes.
            overwrite: replace the encoder that is saved in that folder.

        Raises:
            typer.BadParameter: an option has no effect, or another one is needed.
            DataError: the file cannot be read.
            MethodError: a step is unknown.
            ModelError: the encoder cannot be saved in that folder.
        """
        if len(methods) > 1 and (path is not None or save is not None):
            raise typer.BadParameter("goes with one method", param_hint="--fit" if path is not None else "--save")
        if post is None and path is None and save is None and all(m.weigh.fitted for m in members_of(methods.values())):
            return cls()
        from ..files.atomic import check_folder
        from ..post import Unfitted, parse_post

        if save is not None:
            check_folder(save, overwrite)
        steps = parse_post(post or "none")
        check_fit(path, methods.values(), steps)
        if path is None:
            if any(isinstance(step, Unfitted) for step in steps):
                raise typer.BadParameter("is fitted to texts: give a file of them with --fit", param_hint="--post")
            if any(not m.weigh.fitted for m in members_of(methods.values())):
                raise typer.BadParameter("is fitted to texts: give a file of them with --fit", param_hint="--method")
            return cls(steps, save=save, overwrite=overwrite)
        if any("condition" in m.layout.fields for m in members_of(methods.values())):
            raise typer.BadParameter("goes with a template without {condition}", param_hint="--fit")
        from ..jobs.output import same
        from ..tasks.runner import Fitting

        if any(file is not None and same(file, path) for file in written):
            raise typer.BadParameter(f"{path} is written by this command: choose another file", param_hint="--fit")
        fitting = Fitting.on(fit_texts(path))
        return cls(steps, fitting.texts, fitting.digest, save, overwrite)

    def apply(self, embedder: MethodsEmbedder) -> MethodsEmbedder:
        """Return the embedder with the steps, fitted to the texts.

        Raises:
            InputError: there are too few texts.
        """
        from ..jobs.recipe import fitted

        embedder = fitted(embedder, self.steps, self.texts)
        if self.texts is not None:
            say(f"fitted to {len(self.texts):,} texts")
        return embedder
