"""The post-processing of one call: the encoder's own steps, then truncation, then normalisation."""

from __future__ import annotations

from collections.abc import Sequence

from ..backbone.backbone import Backbone
from ..errors import InputError
from ..methods import AnyMethod
from ..post import Normalise, Post, Truncate
from .limits import count
from .output_arrays import width_of


def steps_of(
    backbone: Backbone, methods: Sequence[AnyMethod], post: Sequence[Post], truncate_dim: int | None, normalise: bool
) -> tuple[Post, ...]:
    """The post-processing steps of an encoder, followed by those that one call asks for.

    Raises:
        InputError: the vectors have fewer components than truncate_dim.
    """
    truncate_dim = count("truncate_dim", truncate_dim)
    steps = tuple(post)
    if truncate_dim is not None:
        width = min((width_of(backbone, method, steps) for method in methods), default=truncate_dim)
        if truncate_dim > width:
            raise InputError(f"truncate_dim={truncate_dim}: vectors have {width} components, give at most so many")
        steps += (Truncate(truncate_dim),)
    return (*steps, Normalise()) if normalise else steps
