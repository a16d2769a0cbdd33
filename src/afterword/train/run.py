"""Train an encoder: a model, rows and settings in; an encoder out, whose folder sentence-transformers opens too."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from ..codec import parse_method
from ..encoder import Encoder
from ..errors import DataError, InputError, MethodError, MissingExtra
from ..fingerprint import LIBRARIES, weights_digest
from ..methods import Method, classical
from .checkpoints import Place, stopped
from .settings import Precision, Settings
from .triplets import Rows

try:
    import accelerate  # noqa: F401
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainingArguments
    from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator
    from transformers import EarlyStoppingCallback, PrinterCallback, ProgressCallback, set_seed
except ImportError as e:
    raise MissingExtra(e.name or "sentence-transformers", "train") from e

from ..st import sentence_transformer
from . import losses, trainer
from .lora import attach, check_four_bit, merge

Data = Rows | str | Path | Iterable[Mapping[str, Any]]
SCORE, ADAPTER = "eval_dev_spearman_cosine", "adapter"


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
        model: as for `Encoder.load`; or an encoder, whose weights are trained in place.
        data: what `Rows.of` takes.
        out: the folder that the encoder is saved to; ``training.json`` and ``loss.jsonl`` lie beside it, and
            ``checkpoints`` as long as the run is not finished.
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
        InputError: a setting cannot be; an unfinished or another run lies in `out`.
        MethodError: the method does not fit the model.
        DataError: the rows cannot be used, or are too few.
        ModelError: a loss is not finite, or something cannot be written; the last whole checkpoint is kept.

    >>> from afterword.train import train
    >>> train("afterword-mini", "triplets.jsonl", "mini-bellm", method="bellm:last=2", epochs=2)  # doctest: +SKIP
    """
    settings = _settings(settings or Settings(), method, changes)
    rows, scored = Rows.of(data), None if dev is None else Rows.of(dev)
    encoder = _encoder(model, settings, device, trust_remote_code)
    settings = replace(settings, method=encoder.method, precision=settings.precision or _precision(encoder.device))
    _check(settings, encoder, rows, scored)
    told = {
        "settings": settings.to_json(), "processes": trainer.world(), "data": rows.digest,
        "dev": None if scored is None else scored.digest, "weights": weights_digest(encoder.backbone.model).hex(),
    }  # fmt: skip
    place = Place(Path(out))
    checkpoint = place.begin(told, resume)
    if resume and place.finished:
        return Encoder.load(out, device=device, trust_remote_code=trust_remote_code)
    record = {"model": str(model), "data": rows.source, "rows": len(rows), "versions": _versions(), "told": told}
    if trainer.is_first():
        place.write(record)
    encoder, adapted, running = _set_up(encoder, settings, rows, scored, place, log_every, progress)
    if checkpoint is not None and stopped(checkpoint):
        running.finish(checkpoint)
    else:
        running.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    encoder.backbone.model.eval()
    running.accelerator.wait_for_everyone()
    _finish(encoder, adapted, place, {**record, "finished": running.summary()}, keep_adapter)
    return encoder


def _settings(settings: Settings, method: Method | str | None, changes: Mapping[str, Any]) -> Settings:
    try:
        settings = replace(settings, **changes)
    except TypeError:
        known = [f.name for f in fields(Settings)]
        wrong = next(name for name in changes if name not in known)
        raise InputError(f"there is no setting {wrong!r}: there are {', '.join(known)}") from None
    if method is None:
        return settings
    return replace(settings, method=parse_method(method) if isinstance(method, str) else method)


def _encoder(model: str | Path | Encoder, settings: Settings, device: Any, trust_remote_code: bool) -> Encoder:
    """The encoder that is trained, by the settings' method; its weights in float32.

    Raises:
        MethodError: the method makes layers see both ways in a model that does so already.
    """
    if isinstance(model, Encoder):
        encoder = model
    else:
        if device is None and torch.cuda.is_available():
            device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
        start = None if settings.method is None else classical()
        encoder = Encoder.load(model, start, device=device, trust_remote_code=trust_remote_code)
    method, facts = settings.method or encoder.method, encoder.backbone.facts
    if method.sight and not facts.causal:
        raise MethodError(f"{facts.kind} sees both ways already, in every layer: use classical or prompt, not bellm")
    if encoder.backbone.dtype in (torch.float16, torch.bfloat16) and not settings.four_bit:
        encoder.backbone.model.float()
    return encoder if method == encoder.method else replace(encoder, method=method)


def _check(settings: Settings, encoder: Encoder, rows: Rows, dev: Rows | None) -> None:
    """Refuse, before anything is written, what cannot be trained.

    Raises:
        DataError: too few rows, or of a form that the loss, the method or the evaluation cannot use.
        InputError: 4 bits, and no CUDA or bitsandbytes.
    """
    losses.check_rows(settings, rows)
    needed = settings.batch_size * trainer.world()
    if len(rows) < needed:
        raise DataError(f"{rows.source} holds {len(rows)} rows, fewer than a batch of {needed}: lower batch_size")
    if dev is not None and not dev.scored:
        raise DataError(f"{dev.source} holds {dev.form}, and dev is scored pairs: sentence1, sentence2, score")
    wanted = "condition" in encoder.method.layout.fields
    for found in (rows, dev):
        if found is not None and found.conditioned != wanted:
            fix = (
                "use a method whose template holds {condition}"
                if not wanted
                else "give sentence1, sentence2, condition, label"
            )
            raise DataError(
                f"{found.source} holds {found.form}, and the method has {'a' if wanted else 'no'} condition: {fix}"
            )
    if settings.four_bit:
        check_four_bit(encoder.device)


def _precision(device: torch.device) -> Precision:
    return "bfloat16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "float32"


def _versions() -> dict[str, str]:
    return {name: version(name) for name in (*LIBRARIES, "sentence-transformers", "peft", "accelerate")}


def _set_up(
    encoder: Encoder, settings: Settings, rows: Rows, dev: Rows | None, place: Place, log_every: int, progress: bool
) -> tuple[Encoder, Any, trainer.Trainer]:
    """The encoder with what is trained of it, PEFT's model around its own (or None), and the trainer."""
    set_seed(settings.seed)
    if settings.prompt:
        encoder = replace(
            encoder, prompts={**(encoder.prompts or {}), "trained": settings.prompt}, default_prompt_name="trained"
        )
    model = sentence_transformer(encoder)
    for module in list(model)[1:]:
        module.requires_grad_(False)
    first: Any = model[0]
    adapted = None
    if settings.lora:
        adapted = first.auto_model = attach(encoder.backbone.model, settings)
    first.max_seq_length = settings.max_length or encoder.max_length
    if settings.checkpointing:
        encoder.backbone.model.gradient_checkpointing_enable({"use_reentrant": False})  # type: ignore[operator]
    callbacks: list[Any] = [trainer.Curve(place.curve)]
    if settings.patience and dev is not None:
        callbacks.append(EarlyStoppingCallback(settings.patience))
    running = trainer.Trainer(
        model=model,
        args=_arguments(settings, place, encoder.device, dev is not None, log_every, progress),
        train_dataset=Dataset.from_dict(dict(rows.columns)),
        evaluator=None if dev is None else _evaluator(dev),
        loss=losses.make(model, settings, trainer.world() > 1),
        callbacks=callbacks,
    )
    running.remove_callback(ProgressCallback)
    running.remove_callback(PrinterCallback)
    if progress:
        running.add_callback(trainer.Bar())
    return encoder, adapted, running


def _arguments(
    settings: Settings, place: Place, device: torch.device, dev: bool, log_every: int, progress: bool
) -> SentenceTransformerTrainingArguments:
    """The settings in the trainer's words."""
    distinct = settings.distinct and settings.ranking
    evaluation = {"eval_strategy": "steps", "eval_steps": settings.every, "load_best_model_at_end": True,
                  "metric_for_best_model": SCORE, "greater_is_better": True}  # fmt: skip
    return SentenceTransformerTrainingArguments(
        output_dir=str(place.checkpoints),
        per_device_train_batch_size=settings.batch_size,
        gradient_accumulation_steps=settings.accumulate,
        num_train_epochs=settings.epochs,
        max_steps=settings.steps or -1,
        learning_rate=settings.learning_rate,
        warmup_steps=settings.warmup,
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.clip,
        bf16=settings.precision == "bfloat16",
        seed=settings.seed,
        batch_sampler="no_duplicates" if distinct else "batch_sampler",
        prompts=settings.prompt or (dict(settings.prompts) if settings.prompts else None),
        dataloader_drop_last=True,  # every step has as many negatives
        dataloader_pin_memory=device.type == "cuda",
        logging_steps=log_every,
        logging_nan_inf_filter=False,  # it would show a loss that is none as 0
        save_strategy="steps",
        save_steps=settings.every,
        save_total_limit=2,
        report_to=[],
        disable_tqdm=not progress,
        use_cpu=device.type == "cpu",
        ddp_backend="gloo" if device.type == "cpu" and trainer.world() > 1 else None,
        **(evaluation if dev else {}),
    )


def _evaluator(dev: Rows) -> Any:
    first, second, scores = dev.columns.values()
    return EmbeddingSimilarityEvaluator(
        first, second, scores, name="dev", main_similarity="cosine", batch_size=64, write_csv=False,
        show_progress_bar=False,
    )  # fmt: skip


def _finish(encoder: Encoder, adapted: Any, place: Place, record: Mapping[str, Any], keep_adapter: bool) -> None:
    """Add LoRA's matrices to the weights, save the encoder, close the record, remove the checkpoints."""
    model: Any = encoder.backbone.model
    model.gradient_checkpointing_disable()
    if adapted is not None:
        if keep_adapter and trainer.is_first():
            adapted.save_pretrained(str(place.folder / ADAPTER))
        merge(adapted)
    model.requires_grad_(True)
    if trainer.is_first():
        encoder.save(place.folder)
        place.write(record)
        place.clear()
