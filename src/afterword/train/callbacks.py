"""Callbacks of the trainer: the log of losses and the progress bar."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from transformers import ProgressCallback, TrainerCallback

SCORE = "eval_dev_spearman_cosine"
"""The trainer's name for the score on the dev pairs: Spearman's correlation with the cosines."""


class LossLog(TrainerCallback):
    """Write every logged loss to a file, one JSON object per line.

    Args:
        path: the file. A resumed run keeps the lines up to its checkpoint.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the log history of the checkpoint; a new run begins with an empty file."""
        if state.is_world_process_zero:
            self.path.write_text("".join(json.dumps(row) + "\n" for row in state.log_history), encoding="utf-8")

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Have the last step logged, and every step with an evaluation, so that a short run has a curve too."""
        control.should_log |= control.should_evaluate or state.global_step >= state.max_steps

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Append the newest entry."""
        if state.is_world_process_zero:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(state.log_history[-1]) + "\n")


class StepsBar(ProgressCallback):
    """The trainer's progress bar, followed by the latest loss and dev score."""

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Show the loss and the dev score."""
        shown = {"loss": "loss", SCORE: "dev"}
        if state.is_world_process_zero and self.training_bar is not None and logs:
            self.training_bar.set_postfix({shown[k]: f"{v:.4f}" for k, v in logs.items() if k in shown})
