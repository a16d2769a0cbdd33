"""What is shown and written while a run goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from transformers import ProgressCallback, TrainerCallback

SCORE = "eval_dev_spearman_cosine"
"""The score on dev, as the trainer calls it."""


class LossLog(TrainerCallback):
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


class StepsBar(ProgressCallback):
    """The trainer's progress bar, with the last numbers behind it."""

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Show the loss and the score on dev."""
        shown = {"loss": "loss", SCORE: "dev"}
        if state.is_world_process_zero and self.training_bar is not None and logs:
            self.training_bar.set_postfix({shown[k]: f"{v:.4f}" for k, v in logs.items() if k in shown})
