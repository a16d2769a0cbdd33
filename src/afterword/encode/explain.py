"""Explain the vector of one text: the weight of each token, and ReBA's attention matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..backbone.backbone import Backbone
from ..backbone.facts import LAST
from ..errors import MethodError
from ..methods import Method
from ..methods.weights import Backward
from ..text.batch import lay
from ..text.inputs import check_ids, check_written
from ..text.layout import Text
from ..text.segments import TokenizedText
from .sentences import weights

Explained = tuple[list[str], NDArray[np.floating[Any]]]
"""Tokens, and their weights or attention."""


def token_weights(backbone: Backbone, method: Method, text: Text, max_length: int | None = None) -> Explained:
    """The tokens of one text, template, copies and special tokens included, and the weight of each in its vector.

    Returns:
        n tokens and weights (n,); for a text that is split into chunks, those of its chunks one after the other.
    """
    writing = _written(backbone, method, text, max_length)
    batch = lay([writing], backbone.device)
    with torch.no_grad():
        rows = weights(backbone, [method], batch)[0].weights
    ids: list[int] = []
    values: list[float] = []
    for group, row in zip(batch.groups, rows, strict=True):
        for g in torch.argsort(group.first, stable=True).tolist() if group.pooled else ():
            ids += group.tokens[g].tolist()
            values += row[g, 0].tolist()
    return backbone.tokenizer.tokens(ids), np.asarray(values)


def attention_matrix(backbone: Backbone, method: Method, text: Text, max_length: int | None = None) -> Explained:
    """The matrix A_new of ReBA, Algorithm 1, for one text: the maximum over heads of (A + A^T) / 2.

    Returns:
        n tokens and the matrix (n, n); with triangle="upper" only its part k >= i.

    Raises:
        MethodError: the method does not use backward attention.
    """
    weigh = method.weigh
    if not isinstance(weigh, Backward):
        raise MethodError(f"{method.name} reads no attention between tokens: use reba()")
    writing = _written(backbone, method, text, max_length)
    batch = lay([writing], backbone.device)
    everything = [torch.ones(g.count, 1, g.length, device=g.tokens.device) for g in batch.groups]
    tap = weigh.tap(batch.groups, everything, backbone.facts.layers)
    with torch.no_grad():
        backbone.forward(batch, frozenset({LAST}), method.sight, [tap])
    return backbone.tokenizer.tokens(batch.groups[0].tokens[0].tolist()), tap.result(0)[0].cpu().numpy()


def _written(backbone: Backbone, method: Method, text: Text, max_length: int | None) -> TokenizedText:
    vocabulary = backbone.vocabulary_size
    check_ids([text], vocabulary)
    return check_written(method.layout.write([text], backbone.tokenizer, max_length), backbone.tokenizer, vocabulary)[0]
