"""Tokenized texts in collated form, one row per text, as DataLoader, DataParallel and trainers need them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .segments import Segment, TokenizedText

FIELDS = 6
"""Columns of `segments` before placeholders and spans of copies: length, special tokens in front, behind, `first`,
`prefix`, the number of placeholders."""


def to_features(texts: Sequence[TokenizedText], pad_id: int) -> dict[str, Tensor]:
    """Collate tokenized texts.

    Returns:
        ``input_ids`` and ``attention_mask`` (T, n): all segments of a text in a row, then padding; ``segments``
        (T, S, 6 + P + 2C): length, number of special tokens in front and behind, first, prefix, number of placeholders,
        the indices of P placeholders, and the spans of C copies of each segment; all zero where there is no segment.
    """
    copies = max((len(s.copies) for w in texts for s in w.segments), default=1)
    slots = max((len(s.slots) for w in texts for s in w.segments), default=0)
    width, most = max((w.size for w in texts), default=0), max((len(w.segments) for w in texts), default=1)
    ids = torch.full((len(texts), width), pad_id)
    mask = torch.zeros(len(texts), width, dtype=torch.long)
    segments = torch.zeros(len(texts), most, FIELDS + slots + 2 * copies, dtype=torch.long)
    for t, w in enumerate(texts):
        ids[t, : w.size] = torch.tensor([i for s in w.segments for i in s.ids])
        mask[t, : w.size] = 1
        for i, s in enumerate(w.segments):
            row = [len(s.ids), *s.special, s.first, s.prefix, len(s.slots), *s.slots]
            row += [end for span in s.copies for end in span]
            segments[t, i, : len(row)] = torch.tensor(row)
    return {"input_ids": ids, "attention_mask": mask, "segments": segments}


def from_features(ids: Tensor, segments: Tensor) -> list[TokenizedText]:
    """The inverse of `to_features`; character offsets are not restored."""
    rows = zip(ids.tolist(), segments.tolist(), strict=True)
    return [_text(row, [part for part in parts if part[0]]) for row, parts in rows]


def _text(ids: list[int], parts: list[list[int]]) -> TokenizedText:
    segments, at, chunked = [], 0, len(parts) > 1
    whole = parts[0][FIELDS + 1] - parts[0][FIELDS]  # for a chunked text, its length in the full pass
    for i, (length, front, behind, first, prefix, marks, *ends) in enumerate(parts):
        slots, ends = tuple(ends[:marks]), ends[marks:]
        copies = tuple(zip(ends[::2], ends[1::2], strict=True))
        piece = chunked and i > 0
        share = (copies[0][1] - copies[0][0]) / whole if piece else 1.0
        final = i == len(parts) - 1 if piece else True
        if chunked and not piece:
            copies = copies[:1]  # the full pass has one copy, the chunks may have more
        body = ids[at : at + length]
        read = piece or not chunked
        segments.append(Segment(body, copies, (front, behind), first, read, share, final, prefix, slots))
        at += length
    return TokenizedText(tuple(segments))
