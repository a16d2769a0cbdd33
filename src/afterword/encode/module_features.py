"""The features of our sentence-transformers module: texts as padded token ids, and the vectors of such features."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..backbone.backbone import Backbone
from ..errors import InputError
from ..methods import AnyMethod, Method
from ..text.batch import lay
from ..text.collate import from_features, to_features
from ..text.inputs import check_ids, check_written, with_prompt
from ..text.layout import Text
from ..text.segments import TokenizedText
from .sentences import combine, joined, weights


def _named(name: str, i: int) -> str:
    """The name of a feature of an ensemble's i-th method; those of the first are named as a single method's."""
    return f"{name}.{i}" if i else name


def features_of(
    backbone: Backbone, method: AnyMethod, texts: Sequence[Text], conditions: Sequence[str] | None,
    prompt: str | None, max_length: int | None,
) -> dict[str, Tensor]:  # fmt: skip
    """Tokenize texts; `Afterword.preprocess` documents the arguments, the features and the errors."""
    tokenizer, vocabulary, members = backbone.tokenizer, backbone.vocabulary_size, method.members
    check_ids(texts, vocabulary)
    some, blank, passes = any("condition" in one.layout.fields for one in members), set[int](), []
    for one in members:
        layout = with_prompt(one.layout, prompt)
        given = None if some and "condition" not in layout.fields else conditions
        rows = layout.write(texts, tokenizer, max_length, conditions=given)
        check_written(rows, tokenizer, vocabulary)
        blank |= {t for t, row in enumerate(rows) if _is_blank(row, one, tokenizer.hf.mask_token_id)}
        passes.append((layout, None if given is None else ["."], rows))
    other, features = next((t for t in range(len(texts)) if t not in blank), None), dict[str, Tensor]()
    for i, (layout, condition, rows) in enumerate(passes):
        if blank:
            instead = rows[other] if other is not None else None
            if instead is None:
                (instead,) = layout.write(["."], tokenizer, max_length, conditions=condition)
            if not all(s.ids for s in instead.segments):
                t = min(blank)
                raise InputError(f"text {t} has no tokens, {texts[t]!r:.40}, and neither has '.': remove it")
            rows = [instead if t in blank else row for t, row in enumerate(rows)]
        padded = to_features(rows, tokenizer.hf.pad_token_id or 0)
        features |= {_named(name, i): tensor for name, tensor in padded.items()}
    return features | ({"blank": torch.tensor([t in blank for t in range(len(texts))])} if blank else {})


def _is_blank(text: TokenizedText, method: Method, mask_id: int | None) -> bool:
    """Whether nothing of a text's input is left to pool; special tokens and a template may be."""
    if text.total:
        return False
    if not all(s.ids for s in text.segments):
        return True
    try:
        for group in lay([text], torch.device("cpu")).groups:
            method.weigh.sentence(group, mask_id=mask_id)
    except InputError:
        return True
    return False


def vectors_of(
    backbone: Backbone, method: AnyMethod, features: dict[str, Tensor], *, keep_mode: bool
) -> dict[str, Tensor]:
    """The vectors and states of the features of T texts; `Afterword.forward` documents them."""
    blank, found, parts = features.get("blank"), dict[str, Tensor](), []
    for i, one in enumerate(method.members):
        ids = features[_named("input_ids", i)]
        batch = lay(from_features(ids, features[_named("segments", i)]), ids.device)
        (weighed,) = weights(backbone, [one], batch, keep_mode=keep_mode)
        parts.append(combine(weighed.batch, weighed.weights, weighed.states)[:, 0])
        if batch.source is None and isinstance(method, Method):
            states = weighed.states.new_zeros(*ids.shape, weighed.states.shape[-1])
            for group in batch.groups:
                states[group.text, : group.length] = group.slice(weighed.states)
            found["token_embeddings"] = states if blank is None else states.masked_fill(blank[:, None, None], 0)
    vectors = joined(method, parts)
    found["sentence_embedding"] = vectors if blank is None else vectors.masked_fill(blank[:, None], 0)
    return found
