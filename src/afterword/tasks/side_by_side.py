"""What several methods retrieve for one caption, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import InputError
from .captions import Captions, retrieve
from .task import Array


@dataclass(frozen=True)
class Retrieved:
    """One row of the table.

    Attributes:
        image: whose first caption is the query.
        query: the caption that looks for others.
        method: by which it was embedded.
        rank: from 1.
        caption: what it found.
        right: whether that is a caption of the same image.
    """

    image: str
    query: str
    method: str
    rank: int
    caption: str
    right: bool


def side_by_side(
    captions: Captions, vectors: Mapping[str, Array], images: Sequence[str], k: int = 4
) -> list[Retrieved]:
    """The captions that the first captions of some images find, by several methods (BeLLM, Table 5).

    Args:
        captions: to search in.
        vectors: per method, one vector for each of the captions (n, D).
        images: names of the images whose first captions are the queries.
        k: how many are shown, at least 1.

    Returns:
        Query by query, method by method, by rank.

    Raises:
        InputError: no such image, vectors of another number of captions, or a k below 1.
        MissingExtra: faiss is not installed.
    """
    for method, made in vectors.items():
        if len(made) != len(captions.sentences):
            raise InputError(f"{method} has {len(made)} vectors for {len(captions.sentences)} captions")
    if k < 1:
        raise InputError(f"k={k}: show at least 1 caption")
    if unknown := [i for i in images if i not in captions.images]:
        raise InputError(f"no image is named {unknown[0]!r}: the first is {captions.images[0]!r}")
    wanted = np.array([captions.images.index(i) for i in images], np.int64)
    queries = captions.first[wanted]
    found = {method: retrieve(made, queries, k) for method, made in vectors.items()} if len(images) else {}
    return [
        Retrieved(image, captions.sentences[queries[q]], method, rank, captions.sentences[i], captions.image[i] == at)
        for q, (image, at) in enumerate(zip(images, wanted, strict=True))
        for method, rows in found.items()
        for rank, i in enumerate(rows[q], 1)
    ]


def markdown(rows: Sequence[Retrieved]) -> str:
    """The table as Markdown, one for each query: methods as columns, ranks as rows, right captions in bold."""
    images = dict.fromkeys(r.image for r in rows)
    return "\n\n".join(_one([r for r in rows if r.image == image]) for image in images)


def _one(rows: Sequence[Retrieved]) -> str:
    methods = list(dict.fromkeys(r.method for r in rows))
    cells = {(r.rank, r.method): f"**{_cell(r.caption)}**" if r.right else _cell(r.caption) for r in rows}
    lines = [f"Query: {_cell(rows[0].query)}", "", _line(["", *methods]), _line(["---"] * (len(methods) + 1))]
    lines += [_line([f"#{rank}", *(cells[rank, m] for m in methods)]) for rank in sorted({r.rank for r in rows})]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
