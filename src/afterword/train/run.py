"""Train an encoder: a model, rows and settings in; an encoder out, whose folder sentence-transformers opens too."""

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

from ..analysis.plots import draw_losses
from ..backbone.self_check import check as checked
from ..encoder import Encoder
from ..errors import InputError, MissingExtra
from ..files.fingerprint import LIBRARIES, weights_digest
from ..methods import Method
from ..methods.serialize import parse_method
from .callbacks import SCORE
from .checkpoints import ADAPTER, PLOT, Place, is_first, processes, stopped
from .rows import TrainingRows
from .settings import Settings

try:
    import accelerate  # noqa: F401  (the trainer imports it when it is made)
    import datasets  # noqa: F401

    from ..st import sentence_transformer
    from .lora import attach, merge, moved
    from .prepare import check, load, told
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
    """Train a model for a method.

    Args:
        model: as for `Encoder.load`; or an encoder, whose weights are trained in place; with four_bit they are left in
            4 bits, and what is returned has others.
        data: what `TrainingRows.of` takes.
        out: the folder that the encoder is saved to; ``training.json``, ``loss.jsonl`` and ``loss.png`` lie beside
            it, and ``checkpoints`` as long as the run is not finished.
        method: None keeps the encoder's own. A string is parsed.
        dev: scored pairs. They are evaluated at every checkpoint, and the best one is the result.
        settings: everything the result depends on.
        resume: go on from the last checkpoint in `out`, to the very weights that an unbroken run gives; start if
            there is none; if the run is finished, load what it made.
        keep_adapter: save LoRA's matrices to ``out/adapter`` too; they are added to the weights either way.
        device: None = a GPU where there is one.
        trust_remote_code: run the model's own code.
        progress: a bar on stderr.
        log_every: steps from one line of ``loss.jsonl`` to the next.
        changes: of single settings.

    Returns:
        The trained encoder, as the folder gives it.

    Raises:
        InputError: a setting cannot be; an unfinished or another run lies in `out`, or a file of somebody else's with a
            name that the run needs.
        MethodError: the method does not fit the model.
        DataError: the rows cannot be used, or are too few.
        ModelError: a loss is not finite, or something cannot be written; the last whole checkpoint is kept.

    >>> from afterword.train import train
    >>> train("afterword-mini", "triplets.jsonl", "mini-bellm", method="bellm:last=2", epochs=2)  # doctest: +SKIP
    """
    settings = _settings(settings or Settings(), method, changes)
    if log_every < 1:
        raise InputError(f"log_every={log_every}: give 1 or more")
    if keep_adapter and not settings.lora:
        raise InputError("every weight is trained, so there is no adapter to keep: leave keep_adapter out")
    rows, scored = TrainingRows.of(data), None if dev is None else TrainingRows.of(dev)
    encoder = load(model, settings, scored, device, trust_remote_code)
    settings = told(settings, encoder)
    check(settings, encoder, rows, scored)
    place = Place(Path(out))
    record = _record(str(model) if not isinstance(model, Encoder) else None, settings, encoder, rows, scored)
    with place.held():
        checkpoint = place.begin(record["told"], resume, keep_adapter)
        if resume and place.finished:
            return Encoder.load(out, device=device, trust_remote_code=trust_remote_code)
        if is_first():
            place.write(record)
        run = Run(encoder, settings, place)
        try:
            running = make_trainer(run.model, settings, place, rows, scored, log_every, progress)
            if checkpoint is not None and stopped(checkpoint):
                running.finish(checkpoint)
            else:
                running.fit(checkpoint)
            encoder = run.finished(keep_adapter)
        finally:
            run.close()
        if is_first():
            encoder.save(place.folder)
            place.write({**record, "finished": running.summary()})
            place.clear()
            with suppress(MissingExtra):  # where matplotlib is not installed the numbers are enough
                draw_losses(place.curve, place.folder / PLOT, SCORE, place.folder.name)
    return encoder


class Run:
    """An encoder while it is trained: as a SentenceTransformer, with LoRA's matrices or without.

    Args:
        encoder: its weights are trained in place.
        settings: of the run.
        place: where the adapter is saved, if it is.
    """

    def __init__(self, encoder: Encoder, settings: Settings, place: Place) -> None:
        self.encoder, self.settings, self.place = encoder, settings, place
        self.before = _copied(encoder.backbone.model) if settings.four_bit else None
        self.adapted: Any = None
        set_seed(settings.seed)
        self.model = sentence_transformer(encoder)
        for module in list(self.model)[1:]:  # steps behind the model stay as they are
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
        """The encoder with what was learned in its weights."""
        if self.adapted is None:
            return self.encoder
        if keep_adapter and is_first():
            self.adapted.save_pretrained(str(self.place.folder / ADAPTER))
        adapted, self.adapted = self.adapted, None
        if self.before is None:
            merge(adapted)
            return self.encoder
        whole = moved(adapted, self.before, self.settings)
        adapted.unload()
        return replace(self.encoder, backbone=checked(whole, self.encoder.backbone.tokenizer))

    def close(self) -> None:
        """Leave the encoder as one to encode with, whatever happened."""
        model: Any = self.encoder.backbone.model
        if self.adapted is not None:
            self.adapted.unload()
        if self.settings.checkpointing:
            _checkpointing(model, "disable")
        model.requires_grad_(self.before is None).eval()


def _copied(model: Any) -> Any:
    """The weights in the computer's own memory: a GPU may not hold them twice."""
    device = model.device
    copied = copy.deepcopy(model.cpu())
    model.to(device)
    return copied


def _checkpointing(model: Any, what: str, *options: Any) -> None:
    """Switch gradient checkpointing, under its newer name where there is one."""
    name = "activation" if hasattr(model, "activation_checkpointing_enable") else "gradient"
    getattr(model, f"{name}_checkpointing_{what}")(*options)


def _settings(settings: Settings, method: Method | str | None, changes: Mapping[str, Any]) -> Settings:
    known = [f.name for f in fields(Settings)]
    if wrong := [name for name in changes if name not in known]:
        raise InputError(f"there is no setting {wrong[0]!r}: there are {', '.join(known)}")
    if method is not None:
        changes = {**changes, "method": parse_method(method) if isinstance(method, str) else method}
    return replace(settings, **changes)


def _record(
    name: str | None, settings: Settings, encoder: Encoder, rows: TrainingRows, dev: TrainingRows | None
) -> dict[str, Any]:
    """What stands in ``training.json``; what a resumed run must be told again stands under "told"."""
    told = {
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
        "told": told,
    }
