"""sentence-transformers' trainer with small, exact checkpoints, that stops at the first number that is none."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator
from torch import Tensor, nn
from transformers import EarlyStoppingCallback, PrinterCallback, ProgressCallback, TrainerState

from ..errors import DataError, ModelError
from .callbacks import SCORE, LossLog, StepsBar
from .checkpoints import STATE, WEIGHTS, Place, is_first, processes, rotate, seal
from .losses import make
from .rows import TrainingRows
from .settings import Settings

NUMBERS = ("loss", "grad_norm")


class Trainer(SentenceTransformerTrainer):
    """sentence-transformers' own; a checkpoint holds the weights that are trained and no others."""

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """No model card: the folder is written by the encoder."""

    def training_step(self, model: nn.Module, *args: Any, **kwargs: Any) -> Tensor:
        """One batch, forward and backward."""
        loss: Tensor = super().training_step(model, *args, **kwargs)
        self.last_loss = loss
        return loss

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> Any:
        """Called right before the weights change.

        Raises:
            ModelError: the loss or its gradient is not finite; the weights are as they were.
        """
        norm = super()._get_grad_norm(model, grad_norm)
        found = (float(self.last_loss), float(norm))
        if bad := next((n for n, v in zip(NUMBERS, found, strict=True) if not torch.tensor(v).isfinite()), None):
            what = "the loss" if bad == "loss" else "the gradient"
            raise ModelError(
                f"step {self.state.global_step + 1}: {what} is {found[NUMBERS.index(bad)]}; "
                f"{_kept(Path(self.args.output_dir))}; lower the learning rate, or train in float32"
            )
        return norm

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        """The trained weights alone."""
        folder = Path(output_dir or self.args.output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        save_file({n: p.detach().contiguous() for n, p in _trained(self.model).items()}, folder / WEIGHTS)

    def _load_from_checkpoint(self, checkpoint_path: str, model: Any = None) -> None:
        """Put the weights of a checkpoint in their places."""
        path = Path(checkpoint_path) / WEIGHTS
        found, places = load_file(path), _trained(self.model)
        if found.keys() != places.keys() or any(found[n].shape != p.shape for n, p in places.items()):
            raise ModelError(f"{path} holds other weights than are trained here: it is of another run")
        with torch.no_grad():
            for name, place in places.items():
                place.copy_(found[name])

    def _load_best_model(self) -> None:
        """The weights that did best on dev."""
        self._load_from_checkpoint(str(self.state.best_model_checkpoint))

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """A checkpoint, or none.

        Raises:
            ModelError: a weight is not finite; it cannot be written. The one before it stays.
        """
        self._check_weights()
        half = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
        try:
            super()._save_checkpoint(model, trial)
            self.accelerator.wait_for_everyone()
            if is_first():
                seal(half)
                rotate(half.parent, self.state.best_model_checkpoint)
        except Exception as e:  # a full disk is told by errors of many kinds
            shutil.rmtree(half, ignore_errors=True)
            reason = (e.strerror if isinstance(e, OSError) else None) or str(e).splitlines()[0]
            raise ModelError(f"{half} cannot be written: {reason}; {_kept(half.parent)}") from e

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """The score on dev, of weights that are numbers."""
        self._check_weights()
        scores: dict[str, float] = super().evaluate(*args, **kwargs)
        return scores

    def _check_weights(self) -> None:
        """An update can be too large for a number to hold, with a loss and a gradient that were finite."""
        if bad := next((name for name, p in _trained(self.model).items() if not p.isfinite().all()), None):
            kept = _kept(Path(self.args.output_dir))
            raise ModelError(f"step {self.state.global_step}: {bad} is not finite; {kept}; lower the learning rate")

    def fit(self, checkpoint: Path | None) -> None:
        """Train, from the start or from a checkpoint.

        Raises:
            ModelError: a number is not finite, or something cannot be written.
            DataError: the rows fill no batch.
        """
        try:
            self.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        except OSError as e:
            folder = Path(self.args.output_dir)
            where = e.filename or folder
            raise ModelError(f"{where} cannot be written: {e.strerror or e}; {_kept(folder)}") from e
        self._check_weights()
        if not self.state.global_step:
            size = self.args.per_device_train_batch_size
            many = f"too many rows share a text to fill a batch of {size}"
            raise DataError(f"{many}: lower batch_size, or give distinct=False")
        self.accelerator.wait_for_everyone()

    def finish(self, checkpoint: Path) -> None:
        """Take a run that had ended to where its end would have taken it.

        Args:
            checkpoint: its last one.
        """
        self.state = TrainerState.load_from_json(str(checkpoint / STATE))
        best = self.state.best_model_checkpoint if self.args.load_best_model_at_end else None
        self._load_from_checkpoint(best or str(checkpoint))
        self.accelerator.wait_for_everyone()

    def summary(self) -> dict[str, Any]:
        """How far it went, and the best score on dev, None where it has none."""
        best = self.state.best_metric
        return {"steps": self.state.global_step, "epochs": self.state.epoch,
                "best_dev": best if best is not None and math.isfinite(best) else None,
                "best_step": self.state.best_global_step}  # fmt: skip


def _trained(model: nn.Module) -> dict[str, nn.Parameter]:
    """The weights that change, by name."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def _kept(checkpoints: Path) -> str:
    last = Place(checkpoints.parent).last()
    return f"{last} is kept" if last else "there was no checkpoint yet"


def make_trainer(
    model: Any,
    settings: Settings,
    place: Place,
    rows: TrainingRows,
    dev: TrainingRows | None,
    log_every: int,
    progress: bool,
) -> Trainer:
    """The trainer of a run.

    Args:
        model: a SentenceTransformer; what of it asks for gradients is trained.
        settings: of the run.
        place: where its losses and checkpoints go.
        rows: what it learns from.
        dev: scored pairs, or None.
        log_every: steps from one line of losses to the next.
        progress: a bar on stderr.
    """
    callbacks: list[Any] = [LossLog(place.curve)]
    if settings.patience and dev is not None:
        callbacks.append(EarlyStoppingCallback(settings.patience))
    options: dict[str, Any] = {}
    if dev is not None:
        options = {"eval_strategy": "steps", "eval_steps": settings.every, "load_best_model_at_end": True,
                   "metric_for_best_model": SCORE, "greater_is_better": True}  # fmt: skip
    if model.device.type == "cpu":
        options |= {"use_cpu": True, "ddp_backend": "gloo" if processes() > 1 else None}
    running = Trainer(
        model=model,
        args=arguments(settings, place, logging_steps=log_every, disable_tqdm=not progress, **options),
        train_dataset=Dataset.from_dict(dict(rows.columns)),
        evaluator=None if dev is None else evaluator(dev),
        loss=make(model, settings, gather=processes() > 1),
        callbacks=callbacks,
    )
    running.remove_callback(ProgressCallback)
    running.remove_callback(PrinterCallback)
    if progress:
        running.add_callback(StepsBar())
    return running


def arguments(settings: Settings, place: Place, **options: Any) -> SentenceTransformerTrainingArguments:
    """The settings in the trainer's words. Several processes split one batch, in which no text stands twice."""
    made = SentenceTransformerTrainingArguments(
        output_dir=str(place.checkpoints),
        per_device_train_batch_size=settings.batch_size * processes(),
        accelerator_config={"split_batches": processes() > 1},
        gradient_accumulation_steps=settings.accumulate,
        num_train_epochs=settings.epochs,
        max_steps=settings.steps or -1,
        learning_rate=settings.learning_rate,
        warmup_steps=settings.warmup,
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.clip,
        bf16=settings.precision == "bfloat16",
        seed=settings.seed,
        batch_sampler="no_duplicates" if settings.distinct and settings.ranking else "batch_sampler",
        prompts=settings.prompt or (dict(settings.prompts) if settings.prompts else None),
        dataloader_drop_last=True,  # every step has as many negatives
        dataloader_pin_memory=False,
        logging_nan_inf_filter=False,  # it would show a loss that is none as 0
        save_strategy="steps",
        save_steps=settings.every,
        save_total_limit=None,  # older ones go when the new one is sealed, not before
        restore_callback_states_from_checkpoint=True,  # how long early stopping has waited
        report_to=[],
        **options,
    )
    made._n_gpu = min(made.n_gpu, 1)  # a process trains on one GPU; torchrun starts one for each
    return made


def evaluator(dev: TrainingRows) -> Any:
    """Spearman between the scores of pairs and their vectors' cosines."""
    first, second, scores = dev.columns.values()
    return EmbeddingSimilarityEvaluator(
        first, second, scores, name="dev", main_similarity="cosine", batch_size=64, write_csv=False,
        show_progress_bar=False,
    )  # fmt: skip
