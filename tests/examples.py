"""How many examples a property draws whose single example is slow: it runs a model, or saves a folder."""

import os
from collections.abc import Callable
from typing import Any

from hypothesis import settings


def examples(usual: int, thorough: int = 1_000, **more: Any) -> Callable[..., Any]:
    """The settings of a property: so many examples in `make test`, and in `make thorough`, where others take 10,000."""
    return settings(max_examples=thorough if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else usual, **more)
