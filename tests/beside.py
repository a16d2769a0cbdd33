"""A tiny model twice: in float64 with its own eager attention, and as the package loads it."""

from functools import lru_cache
from pathlib import Path

import torch
from tests.eager import Eager
from tests.tiny import tiny

from afterword.backbone.backbone import Backbone
from afterword.backbone.loading import load_backbone


@lru_cache
def loaded(folder: Path, kind: str) -> tuple[Eager, Backbone]:
    tiny(kind, folder / kind)
    return Eager(folder / kind, torch.float64), load_backbone(folder / kind)
