"""sentence-transformers' trainer with small, exact checkpoints, that stops at the first number that is none."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformerTrainer
from torch import Tensor, nn
from transformers import ProgressCallback, TrainerCallback, TrainerState

from ..errors import AfterwordError, ModelError
from .checkpoints import STATE, WEIGHTS

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
            ModelError: it cannot be written; the one before it stays.
        """
        try:
            super()._save_checkpoint(model, trial)
        except AfterwordError:
            raise
        except Exception as e:  # a full disk is told by errors of many kinds
            half = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
            shutil.rmtree(half, ignore_errors=True)
            reason = (e.strerror if isinstance(e, OSError) else None) or str(e).splitlines()[0]
            raise ModelError(f"{half} cannot be written: {reason}; {_kept(half.parent)}") from e

    def finish(self, checkpoint: Path) -> None:
        """Take a run that had ended to where its end would have taken it.

        Args:
            checkpoint: its last one.
        """
        self.state = TrainerState.load_from_json(str(checkpoint / STATE))
        best = self.state.best_model_checkpoint if self.args.load_best_model_at_end else None
        self._load_from_checkpoint(best or str(checkpoint))

    def summary(self) -> dict[str, Any]:
        """How far it went, and the best score on dev."""
        return {"steps": self.state.global_step, "epochs": self.state.epoch, "best_dev": self.state.best_metric,
                "best_step": self.state.best_global_step}  # fmt: skip


def _trained(model: nn.Module) -> dict[str, nn.Parameter]:
    """The weights that change, by name."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def _kept(checkpoints: Path) -> str:
    found = sorted(checkpoints.glob("checkpoint-*"), key=lambda p: int(p.name.rpartition("-")[2]))
    return f"{found[-1]} is kept" if found else "there was no checkpoint yet"


class Curve(TrainerCallback):
    """Write the losses as they come, a JSON object per line.

    Args:
        path: of the file. A run that goes on keeps what stood there up to its checkpoint.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start from what the checkpoint knows."""
        if state.is_world_process_zero:
            self.path.write_text("".join(json.dumps(row) + "\n" for row in state.log_history), encoding="utf-8")

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """One more."""
        if state.is_world_process_zero:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(state.log_history[-1]) + "\n")


class Bar(ProgressCallback):
    """The trainer's progress bar, with the last numbers behind it."""

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Show the loss and the score on dev."""
        shown = {"loss": "loss", "eval_dev_spearman_cosine": "dev"}
        if state.is_world_process_zero and self.training_bar is not None and logs:
            self.training_bar.set_postfix({shown[k]: f"{v:.4f}" for k, v in logs.items() if k in shown}, refresh=False)


def world() -> int:
    """How many processes train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Whether this process writes what is written once."""
    return int(os.environ.get("RANK", "0")) == 0
