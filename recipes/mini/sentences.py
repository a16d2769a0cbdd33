"""Single sentences that may be trained on: from the encyclopaedia, from novels, and the captions of SNLI and CAD.

    files -> sentences -> without those of evaluation sets -> a seeded sample

`distil_mini.py` and `bellm_mini.py` are the commands; this file has no command line of its own.
"""

from __future__ import annotations

import gzip
import itertools
import json
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .corpus import is_free, normalise, read_documents, strings_of

FREE_NLI = ("snli-train/", "cad/train")  # CC BY-SA 4.0 and Apache-2.0; other sources may not be shared
SHORTEST, LONGEST = 4, 25  # words
NOT_MEASURED = re.compile(r"\.train$|flickr30k/captions\.val$")
"""Evaluation files that nothing is measured on: training splits. Every premise of SNLI is a training caption."""

_END = re.compile(r"(?<=[.!?])[\"”’']?\s+(?=[\"“‘']?[A-Z0-9])")


@dataclass(frozen=True)
class Sample:
    """Sentences and what was left out of them."""

    sentences: list[str]
    dropped: Counter[str]


def measured_texts(folder: Path) -> dict[str, str]:
    """Every string of every evaluation set below a data folder, normalised -> the first set that has it."""
    found: dict[str, str] = {}
    for path in sorted(p for room in ("en", "zh") for p in folder.glob(f"{room}/**/*.jsonl.gz")):
        name = str(path.relative_to(folder)).removesuffix(".jsonl.gz")
        if not NOT_MEASURED.search(name):
            with gzip.open(path, "rt", encoding="utf-8") as file:
                for text in itertools.chain.from_iterable(strings_of(json.loads(row)) for row in file):
                    found.setdefault(normalise(text), name)
    return found


def free_triplets(folder: Path) -> Iterator[dict[str, str]]:
    """The triplets whose premises come from SNLI and CAD: the first rows of the file, as its manifest counts them."""
    counts = json.loads((folder / "nli" / "triplets_manifest.json").read_text("utf-8"))["counts"]
    assert list(counts)[:2] == ["snli-train", "cad"], f"the file's order has changed: {list(counts)}"
    with gzip.open(folder / "nli" / "triplets.jsonl.gz", "rt", encoding="utf-8") as file:
        for line in itertools.islice(file, counts["snli-train"] + counts["cad"]):
            yield json.loads(line)


def _captions(folder: Path) -> Iterator[str]:
    with gzip.open(folder / "nli" / "nli_pairs.jsonl.gz", "rt", encoding="utf-8") as file:
        for row in map(json.loads, file):
            if row["source"].startswith(FREE_NLI):
                yield row["premise"]
                yield row["hypothesis"]


def _prose(path: Path) -> Iterator[str]:
    for document in filter(is_free, read_documents(path)):
        for paragraph in document.split("\n"):
            yield from (s.strip() for s in _END.split(paragraph) if SHORTEST <= len(s.split()) <= LONGEST)


def sample(folder: Path, prose: int, seed: int = 1) -> Sample:
    """All captions, and so many sentences of prose: three of four from Wikipedia, one from novels.

    Args:
        folder: the data folder, with corpus/, nli/ and the evaluation sets.
        prose: how many sentences of running text.
        seed: of the sample and its order.
    """
    known, dropped = measured_texts(folder), Counter[str]()
    wiki = _prose(folder / "corpus" / "enwiki_more.txt.xz")
    novels = _prose(folder / "corpus" / "novels.txt.xz")
    streams: list[Iterable[str]] = [
        itertools.islice(wiki, prose * 3 // 4), itertools.islice(novels, prose - prose * 3 // 4), _captions(folder),
    ]  # fmt: skip
    kept: dict[str, str] = {}
    for text in itertools.chain.from_iterable(streams):
        key = normalise(text)
        if key in known:
            dropped[known[key]] += 1
        elif key:
            kept.setdefault(key, text)
    sentences = list(kept.values())
    random.Random(seed).shuffle(sentences)
    return Sample(sentences, dropped)
