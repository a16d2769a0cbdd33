"""The hidden states of all tokens of each text, which sentence-transformers calls token embeddings."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..backbone.backbone import Backbone
from ..errors import InputError
from ..methods import Method
from ..post import Post, after
from ..text.batch import Batch
from ..text.inputs import check_ids, check_written, refuse_blank
from ..text.layout import Text
from .limits import Limits, Losses, each
from .sentences import combine, weights

Features = dict[str, Tensor]


def token_states(
    backbone: Backbone,
    method: Method,
    texts: Sequence[Text],
    limits: Limits,
    post: Sequence[Post] = (),
    conditions: Sequence[str] | None = None,
) -> list[Features]:
    """Token ids, hidden states and vector of each text.

    Args:
        backbone: the model.
        method: says which hidden states are returned, and how they become the vector.
        texts: texts that `check_texts` accepted.
        limits: limits on texts and batches.
        post: post-processing steps, applied to the vectors and not to the hidden states.
        conditions: one per text, for a template with {condition}.

    Returns:
        For each text, under sentence-transformers' names: "input_ids" and "attention_mask" (n,), "token_embeddings"
        (n, D), "sentence_embedding" (D',); the n tokens are those that the model reads, template, copies and special
        tokens included.

    Raises:
        InputError: a text is blank, or the method splits texts into chunks.
    """
    if method.layout.chunk:
        raise InputError(f"{method.name} splits a text into chunks, whose states are not those of one sequence")
    check_ids(texts, backbone.vocabulary_size)
    refuse_blank(list(texts))
    writings = method.layout.write(texts, backbone.tokenizer, limits.max_length, conditions=conditions)
    check_written(writings, backbone.tokenizer, backbone.vocabulary_size)
    cuts, features = Losses(unknown_id=backbone.tokenizer.unknown_id), dict[int, Features]()
    cuts.note(writings, limits)

    def run(batch: Batch, indices: list[int]) -> list[tuple[int, Features]]:
        (weighed,) = weights(backbone, [method], batch)
        vectors = after(combine(weighed.batch, weighed.weights, weighed.states)[:, 0], post)
        return [
            (indices[t], _features(ids, states, vectors[t]))
            for group in weighed.batch.groups
            for t, ids, states in zip(group.text.tolist(), group.tokens, group.slice(weighed.states), strict=True)
        ]

    for _, rows in each(writings, run, limits.budget(backbone.device), backbone.device):
        features.update(rows)
    cuts.warn(limits)
    return [features[i] for i in range(len(texts))]


def _features(ids: Tensor, states: Tensor, vector: Tensor) -> Features:
    """The features of one text, copied: a view would keep the whole batch in memory."""
    return {
        "input_ids": ids.clone(),
        "attention_mask": torch.ones_like(ids),
        "token_embeddings": states.clone(),
        "sentence_embedding": vector.clone(),
    }
