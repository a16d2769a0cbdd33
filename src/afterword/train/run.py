"""Train an encoder: model, rows and settings in; out comes an encoder in a folder that sentence-transformers opens."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from transformers import set_seed

from ..backbone.self_check import check as self_check
from ..encoder import Encoder
from ..errors import InputError, MissingExtra
from ..files.fingerprint import LIBRARIES, weights_digest
from ..methods import Method, one_method
from ..methods.serialize import parse_method
from ..papers.figure import draw_losses
from .callbacks import SCORE
from .checkpoints import ADAPTER, PLOT, Place, is_first, processes, stopped
from .rows import TrainingRows, contrasted
from .settings import Settings

try:
    import accelerate  # noqa: F401  (the trainer imports it when it is created)
    import datasets  # noqa: F401

    from ..st import sentence_transformer
    from .lora import attach, merge, merge_into
    from .prepare import check, complete, load
    from .trainer import make_trainer
except ImportError as e:
    raise MissingExtra(getattr(e, "package", None) or e.name or "sentence-transformers", "train") from e

Data = TrainingRows | str | Path | Iterable[Mapping[str, Any]]


def train(
    model: str | Path | Encoder,
    data: Data,
    out: str | Path,
    *,
    method: Method | str | None = None,
    dev: Data | None = None,
    settings: Settings | None = None,
    resume: bool = False,
    keep_adapter: bool = False,
    device: str | torch.device | None = None,
    trust_remote_code: bool = False,
    progress: bool = False,
    log_every: int = 10,
    **changes: Any,
) -> Encoder:
    """Train a model for an embedding method.

    Args:
        model: as for `Encoder.load`; or an encoder, whose weights are trained in place; with four_bit its weights stay
            in 4 bits, and the returned encoder has new ones.
        data: rows, as `TrainingRows.read` takes them.
        out: the folder that the encoder is saved to; ``training.json``, ``loss.jsonl`` and ``loss.png`` are written
            to it too, and ``checkpoints`` until the run is finished.
        method: the embedding method; None keeps the encoder's own. A string is parsed.
        dev: scored pairs. They are evaluated at every checkpoint, with the maximum length of the encoder that is
            saved, and the best checkpoint is the result.
        settings: everything that the result depends on.
        resume: resume from the last checkpoint in `out`; the final weights equal those of an uninterrupted run. Without
            a checkpoint, start from the beginning; if the run is finished, load its result.
        keep_adapter: save the LoRA matrices to ``out/adapter`` too; they are merged into the weights in any case.
        device: None = a GPU where there is one.
        trust_remote_code: run the model's own code.
        progress: show a progress bar on stderr.
        log_every: number of steps between two lines of ``loss.jsonl``; the last step and those with an evaluation are
            logged in any case.
        changes: single settings by name; they replace those of `settings`.

    Returns:
        The trained encoder, equal to the one that `out` loads to.

    Raises:
        InputError: a setting is invalid; or `out` holds an unfinished or another run, or a file that the run did not
            write under a name that it needs.
        MethodError: the method does not fit the model.
        DataError: the rows cannot be used, or are too few.
        ModelError: a loss is NaN or infinite, or a file cannot be written; the last complete checkpoint is kept.

    >>> from afterword.train import train
    >>> train("afterword-mini", "triplets.jsonl", "mini-bellm", method="bellm:last=2", epochs=2)  # doctest: +SKIP
    """
    settings = _settings(settings or Settings(), method, changes)
    if log_every < 1:
        raise InputError(f"log_every={log_every}: give 1 or more")
    if keep_adapter and not settings.lora:
        raise InputError("every weight is trained, so there is no adapter to keep: leave keep_adapter out")
    rows, scored = TrainingRows.read(data), None if dev is None else TrainingRows.read(dev)
    if settings.loss in ("ranking", "cached_ranking"):
        rows = contrasted(rows)
    encoder = load(model, settings, scored, device, trust_remote_code)
    settings = complete(settings, encoder)
    check(settings, encoder, rows, scored)
    place = Place(Path(out))
    record = _record(str(model) if not isinstance(model, Encoder) else None, settings, encoder, rows, scored)
    with place.held():
        checkpoint = place.begin(record["fixed"], resume)
        if resume and place.finished:
            return Encoder.load(out, device=device, trust_remote_code=trust_remote_code)
        if is_first():
            place.write(record)
        run = Run(encoder, settings, place)
        try:
            trainer = make_trainer(run.model, settings, place, rows, scored, log_every, progress, encoder.max_length)
            if checkpoint is not None and stopped(checkpoint):
                trainer.finish(checkpoint)
            else:
                trainer.fit(checkpoint)
            encoder = run.finished(keep_adapter)
        finally:
            run.close()
        if is_first():
            place.save(encoder)
            place.write({**record, "finished": trainer.summary()})
            place.clear()
            with suppress(MissingExtra):  # without matplotlib there is no plot
                draw_losses(place.curve, place.folder / PLOT, SCORE, place.folder.name)
    return encoder


class Run:
    """An encoder during training: a SentenceTransformer, with or without LoRA.

    Args:
        encoder: its weights are trained in place.
        settings: of the run.
        place: the run's folder, for the adapter.
    """

    def __init__(self, encoder: Encoder, settings: Settings, place: Place) -> None:
        self.encoder, self.settings, self.place = encoder, settings, place
        self.before = _copied(encoder.backbone.model) if settings.four_bit else None  # the weights not quantised
        self.adapted: Any = None
        set_seed(settings.seed)
        self.model = sentence_transformer(encoder)
        for module in list(self.model)[1:]:  # post-processing steps are not trained
            module.requires_grad_(False)
        encoder.backbone.model.requires_grad_(True)
        first: Any = self.model[0]
        if settings.lora:
            new = encoder.backbone.stack.layers[-settings.added :] if settings.added else ()
            self.adapted = first.auto_model = attach(encoder.backbone.model, settings, new)
        first.max_seq_length = settings.max_length or encoder.max_length
        if settings.checkpointing:
            _checkpointing(encoder.backbone.model, "enable", {"use_reentrant": False})

    def finished(self, keep_adapter: bool) -> Encoder:
        """The trained encoder, with the LoRA matrices merged into its weights."""
        if self.adapted is None:
            return self.encoder
        if keep_adapter and is_first():
            self.adapted.save_pretrained(str(self.place.folder / ADAPTER))
        adapted, self.adapted = self.adapted, None
        if self.before is None:
            merge(adapted)
            return self.encoder
        merged = merge_into(adapted, self.before, self.settings)
        adapted.unload()
        return replace(self.encoder, backbone=self_check(merged, self.encoder.backbone.tokenizer))

    def close(self) -> None:
        """Make the encoder ready to encode again, also after an error: LoRA off, no gradients, evaluation mode."""
        model: Any = self.encoder.backbone.model
        if self.adapted is not None:
            self.adapted.unload()
        if self.settings.checkpointing:
            _checkpointing(model, "disable")
        model.requires_grad_(self.before is None).eval()


def _copied(model: Any) -> Any:
    """A copy of the model in main memory: the GPU's may be too small for two."""
    device = model.device
    copied = copy.deepcopy(model.cpu())
    model.to(device)
    return copied


def _checkpointing(model: Any, what: str, *options: Any) -> None:
    """Switch gradient checkpointing; newer versions of transformers call it activation checkpointing."""
    name = "activation" if hasattr(model, "activation_checkpointing_enable") else "gradient"
    getattr(model, f"{name}_checkpointing_{what}")(*options)


def _settings(settings: Settings, method: Method | str | None, changes: Mapping[str, Any]) -> Settings:
    known = [f.name for f in fields(Settings)]
    if wrong := [name for name in changes if name not in known]:
        raise InputError(f"there is no setting {wrong[0]!r}: there are {', '.join(known)}")
    if method is not None:
        parsed = parse_method(method) if isinstance(method, str) else method
        changes = {**changes, "method": one_method(parsed, "training")}
    return replace(settings, **changes)


def _record(
    name: str | None, settings: Settings, encoder: Encoder, rows: TrainingRows, dev: TrainingRows | None
) -> dict[str, Any]:
    """The content of ``training.json``; under "fixed" are the settings that a resumed run must have too."""
    fixed = {
        "settings": settings.to_json(),
        "processes": processes(),
        "weights": weights_digest(encoder.backbone.model).hex(),
        "data": rows.digest,
        "dev": None if dev is None else dev.digest,
    }
    libraries = (*LIBRARIES, "sentence-transformers", "peft", "accelerate")
    return {
        "model": name,
        "data": rows.source,
        "rows": len(rows),
        "versions": {library: version(library) for library in libraries},
        "fixed": fixed,
    }
