"""What need not be computed, on MiniLM: beside a lone short text, for equal texts, and in the last layer.

    python benchmarks/short_and_equal.py

What is compared with a third of duplicates are as many texts of the same words and lengths, in which no two are equal.
Pooling by cls is compared with a forward that is told that all tokens are read.
"""

import random
import sys

from measure import Row, in_turns, main, medians, ratio
from models import minilm_folder, stsb_sentences
from sentence_transformers import SentenceTransformer

from afterword import Encoder, classical
from afterword.backbone import skip_unread as unread

LONE = "a short text"
SHARE = 3  # every third text is equal to one before it


def corpora(texts: int) -> tuple[list[str], list[str]]:
    """Texts without duplicates; and the same, but that every third is one of the others, of the same length."""
    generator, sentences = random.Random(0), stsb_sentences()
    different = [f"{sentences[i % len(sentences)]} {i}" for i in range(texts)]
    repeated = list(different)
    for i in range(SHARE - 1, texts, SHARE):
        words = different[i - 1].split()
        generator.shuffle(words)
        different[i], repeated[i] = " ".join([*words, "again"]), f"{different[i - 1]} again"
        repeated[i - 1] = repeated[i]
        different[i - 1] = f"{different[i - 1]} again"
    return different, repeated


def encode_whole(encoder: Encoder, texts: list[str]) -> None:
    """Encode as if every token were read."""
    worth, unread.WORTH = unread.WORTH, sys.maxsize
    try:
        encoder.encode(texts)
    finally:
        unread.WORTH = worth


def measure(quick: bool) -> list[Row]:
    folder = minilm_folder()
    ours, theirs = Encoder.load(folder, device="cpu"), SentenceTransformer(str(folder), device="cpu")
    times = 3 if quick else 50
    lone = in_turns(
        {
            "theirs": lambda: [theirs.encode(LONE, show_progress_bar=False) for _ in range(times)],
            "ours": lambda: [ours.encode(LONE) for _ in range(times)],
        },
        1 if quick else 11,
    )
    different, repeated = corpora(60 if quick else 20_000)
    equal = in_turns(
        {"none": lambda: ours.encode(different), "a third": lambda: ours.encode(repeated)}, 1 if quick else 3
    )
    some, first = stsb_sentences()[: 60 if quick else 1_000], Encoder(ours.backbone, classical(pool="cls"))
    pooled = in_turns(
        {"cut": lambda: first.encode(some), "whole": lambda: encode_whole(first, some)}, 1 if quick else 5
    )
    return [
        Row(f"MiniLM, a lone short text {LONE!r}: here / sentence-transformers, CPU time",
            ratio(lone["ours"], lone["theirs"]), "<= 0.8",
            parts={f"{name}, ms": 1000 * s / times for name, s in medians(lone).items()}),
        Row(f"MiniLM, {len(repeated)} texts: a third of them duplicates / none, CPU time",
            ratio(equal["a third"], equal["none"]), "<= 0.7",
            parts={f"{name}, s": s for name, s in medians(equal).items()}),
        Row(f"MiniLM, {len(some)} texts pooled by cls: the last layer for these tokens alone / for all, CPU time",
            ratio(pooled["cut"], pooled["whole"]), "<= 0.95",
            parts={f"{name}, s": s for name, s in medians(pooled).items()}),
    ]  # fmt: skip


if __name__ == "__main__":
    main("short_and_equal", measure)
