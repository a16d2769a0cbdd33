"""Load the encoder that an index names, without running code because the index names it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import DataError
from .console import without_advice
from .model import ModelChoice

if TYPE_CHECKING:
    from ..encoder import Encoder
    from ..methods import AnyMethod
    from ..search.index import Index


def encoder_of(index: Index, given: ModelChoice, method: str | None) -> Encoder:
    """The encoder that made an index.

    Args:
        index: the index.
        given: the model that is given, with "" for the one that the index names, and options in place of the index's.
        method: as ``--method`` spells it; None = the one that the index names.

    Raises:
        DataError: it cannot be loaded, its method is a class that is not imported, or it gives other vectors.
        ModelError: the model that is given cannot be loaded.
    """
    from ..errors import AfterwordError
    from ..methods.serialize import parse_method
    from ..search.guard import check_encoder

    info = index.info
    wanted = _own_method(index) if method is None else parse_method(method)
    kept = {name: getattr(given, name) or value for name, value in info.loading.items()}
    choice = replace(given, model=given.model or info.model, **kept)
    try:
        with without_advice():
            encoder = choice.load(None if method is None else wanted)
    except AfterwordError as e:
        if given.model:
            raise
        raise DataError(
            f"{index.folder} names the model {info.model}, which is not loaded: {e}: give -m MODEL"
        ) from None
    encoder = encoder if method is not None else _with_method(encoder, wanted, info.identity)
    check_encoder(index.folder, info, encoder)
    return encoder


def _own_method(index: Index) -> AnyMethod:
    """The method that an index names.

    Raises:
        DataError: it is made of a class of somebody's own, which is never imported.
    """
    from ..errors import MethodError
    from ..methods.serialize import from_json

    try:
        return from_json(index.info.method)
    except MethodError as e:
        raise DataError(f"{index.folder} runs no code, and its method needs some: give -m and --method: {e}") from None


def _with_method(encoder: Encoder, method: AnyMethod, identity: str) -> Encoder:
    """An encoder with the method of an index: as it is saved, or by the method, with and without its further steps."""
    from ..post import Normalise

    steps = tuple(step for step in encoder.post if isinstance(step, Normalise))
    tried = [encoder, replace(encoder, method=method), replace(encoder, method=method, post=steps)]
    return next((one for one in tried if one.identity == identity), tried[1])
