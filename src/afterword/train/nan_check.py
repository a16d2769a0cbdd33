"""A training step whose loss or gradient is NaN or infinite ends the run before the weights change."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..errors import ModelError


def check_finite(loss: float, gradient_norm: float, step: int, kept: Callable[[], str]) -> None:
    """Validate the numbers of a step, right before the optimizer updates the weights.

    Args:
        loss: of the step's last batch.
        gradient_norm: of all trained weights.
        step: the number of the step, from 1.
        kept: says which checkpoint the run still has; called only for the message.

    Raises:
        ModelError: one of them is NaN or infinite.

    >>> check_finite(0.5, 1.0, 1, str)
    """
    for name, value in (("the loss", loss), ("the gradient", gradient_norm)):
        if not math.isfinite(value):
            raise ModelError(f"step {step}: {name} is {value}; {kept()}; lower the learning rate, or train in float32")
