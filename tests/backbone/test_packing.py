"""What a model is fed, worked out by hand."""

import torch

from afterword.backbone.attention_masks import FILLER, PackedGroup
from afterword.backbone.packing import PackedBatch, pack
from afterword.text.batch import Batch, lay
from afterword.text.segments import Segment, TokenizedText


def batch_of(*texts: list[int], prefix: tuple[int, ...] = ()) -> Batch:
    return lay([TokenizedText((Segment(t, ((0, len(t)),)),)).with_shared_prefix(prefix) for t in texts])


def fed(batch: Batch, prefix: int = 0) -> PackedBatch:
    return pack(batch, range(len(batch.groups)), prefix)


def same(batch: Batch, made: PackedBatch) -> bool:
    """Whether the batch's own tokens and positions come back from the pack."""
    return torch.equal(made.back(made.tokens), batch.tokens) and torch.equal(made.back(made.position), batch.position)


def test_without_a_shared_prefix_the_input_is_the_batch():
    batch = batch_of([1, 2, 3], [4, 5], [6, 7])
    made = fed(batch)
    assert made.tokens.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert made.position.tolist() == [0, 1, 2, 0, 1, 0, 1]
    assert made.groups == (PackedGroup(0, 0, 1, 3), PackedGroup(1, 3, 2, 2))
    assert made.index is None and same(batch, made)


def test_a_lead_is_there_once_in_front_of_the_longest_text_that_has_it():
    batch = batch_of([9, 9, 1, 2], [9, 9, 3, 4], [1, 2, 3, 4], [9, 9, 5], [6], prefix=(9, 9))
    made = fed(batch, batch.prefix)
    assert made.tokens.tolist() == [9, 9, 1, 2, 3, 4, 1, 2, 3, 4, 5, 6]
    assert made.position.tolist() == [0, 1, 2, 3, 2, 3, 0, 1, 2, 3, 2, 0]
    front = range(2)
    assert made.groups == (
        PackedGroup(FILLER, 0, 1, 2),
        PackedGroup(0, 2, 2, 2, front),
        PackedGroup(0, 6, 1, 4),
        PackedGroup(1, 10, 1, 1, front),
        PackedGroup(2, 11, 1, 1),
    )
    assert same(batch, made)


def test_a_longer_text_without_the_lead_stays_in_front_of_it():
    batch = batch_of([9, 9, 1], [1, 2, 3, 4], prefix=(9, 9))
    made = fed(batch, batch.prefix)
    assert made.tokens.tolist() == [1, 2, 3, 4, 9, 9, 1] and made.position.tolist() == [0, 1, 2, 3, 0, 1, 2]
    assert made.groups == (PackedGroup(0, 0, 1, 4), PackedGroup(FILLER, 4, 1, 2), PackedGroup(1, 6, 1, 1, range(4, 6)))
    assert same(batch, made)


def test_a_lead_that_is_not_to_be_shared_is_in_every_text():
    batch = batch_of([9, 9, 1], [9, 9, 2], prefix=(9, 9))
    made = fed(batch)
    assert made.tokens.tolist() == batch.tokens.tolist() and made.groups == (PackedGroup(0, 0, 2, 3),)
