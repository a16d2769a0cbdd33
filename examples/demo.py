"""A search, a word's two senses and a race, with a real model: `make demo`, or `python examples/demo.py`."""

from __future__ import annotations

import csv
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

os.environ.update(
    HF_HUB_OFFLINE="1", HF_HUB_DISABLE_PROGRESS_BARS="1", TOKENIZERS_PARALLELISM="false", TRANSFORMERS_VERBOSITY="error"
)

import numpy as np
import torch

from afterword import AfterwordError, Encoder

HERE = Path(__file__).resolve().parent
QUERIES = ["they billed me too much", "food allergy", "can I bring my pet?"]
BANKS = [
    "We sat on the grassy bank and watched the river.",
    "The bank raised the interest rate on my loan.",
    "The boat was tied to the bank of the stream.",
    "She opened a savings account at the bank.",
    "The children slid down the bank into the water.",
    "The bank refused to lend him the money.",
    "Otters dig their dens in the bank.",
    "Our bank charges a fee for every transfer.",
]
ROUNDS = 3  # of the race
WIDTH = 32  # characters of a bar, and of the line on which the senses stand


def tickets() -> list[str]:
    """Two hundred messages to a help desk."""
    with (HERE / "tickets.csv").open(encoding="utf-8", newline="") as file:
        return [row["text"] for row in csv.DictReader(file)]


def search(encoder: Encoder, texts: list[str]) -> None:
    """The two messages that are nearest to each query."""
    print(f"1. Search. The nearest of {len(texts)} messages, by the cosine of their vectors:\n")
    scores = encoder.similarity(encoder.encode(QUERIES), encoder.encode(texts))
    for query, row in zip(QUERIES, scores, strict=True):
        print(f"   {query}")
        for i in np.argsort(-row)[:2]:
            print(f"     {row[i]:.2f}  {texts[i]}")
    print("\n   It compares meanings: no query shares a word with its first answer.\n")


def senses(encoder: Encoder) -> None:
    """The vectors of one word in eight texts, on the line along which they differ most."""
    print("2. A word's two senses. Each o is the vector of 'bank' in its text, on the axis of largest variance:\n")
    vectors = encoder.encode_words(BANKS, ["bank"] * len(BANKS), normalize_embeddings=True)
    centred = vectors - vectors.mean(0)
    places = centred @ np.linalg.svd(centred, full_matrices=False)[2][0]
    columns = ((places - places.min()) / np.ptp(places) * (WIDTH - 1)).round().astype(int)
    for i in np.argsort(places):
        print(f"   |{' ' * columns[i]}o{' ' * (WIDTH - 1 - columns[i])}|  {BANKS[i]}")
    print("\n   Rivers at one end, money at the other: a token's vector depends on the words around it.\n")


def seconds(call: Callable[[], object]) -> float:
    """CPU time of one call."""
    start = time.process_time()
    call()
    return time.process_time() - start


def race(encoder: Encoder, texts: list[str]) -> None:
    """Sentences per second of CPU time here and by sentence-transformers, in turns; the median of its rounds."""
    from sentence_transformers import SentenceTransformer

    with TemporaryDirectory() as folder:
        encoder.save(f"{folder}/minilm")
        theirs = SentenceTransformer(f"{folder}/minilm", device="cpu")
    difference = np.abs(theirs.encode(texts) - encoder.encode(texts)).max()
    calls = {"sentence-transformers": lambda: theirs.encode(texts), "afterword": lambda: encoder.encode(texts)}
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            taken[name].append(seconds(call))
    rates = {name: len(texts) / median(found) for name, found in taken.items()}
    print(f"3. A race. all-MiniLM-L6-v2 on one thread of this processor, {len(texts)} messages:\n")
    for name, rate in rates.items():
        print(f"   {name:<21}  {'#' * round(WIDTH * rate / max(rates.values())):<{WIDTH}}  {rate:5.0f} a second")
    times = rates["afterword"] / rates["sentence-transformers"]
    print(f"\n   The same vectors (the largest difference is {difference:.0e}), {times:.1f} times as fast.\n")


def command() -> str:
    """The command line, as it is typed here."""
    beside = Path(sys.executable).with_name("afterword")
    if shutil.which("afterword") or not beside.exists():
        return "afterword"
    near = beside.is_relative_to(Path.cwd())
    return str(beside.relative_to(Path.cwd()) if near else beside)


def main() -> None:
    """The demo."""
    torch.set_num_threads(1)
    try:
        encoder = Encoder.load("minilm", device="cpu")
    except AfterwordError as e:
        sys.exit(f"the demo needs a model: {e}")
    texts, afterword = tickets(), command()
    search(encoder, texts)
    senses(encoder)
    race(encoder, texts)
    print("Try these:")
    print(f'  {afterword} similar -m minilm "too loud to sleep" --against examples/tickets.csv')
    print(f"  {afterword} tune -m minilm --dev examples/pairs.jsonl --out best")
    print(f"  {afterword} methods")


if __name__ == "__main__":
    main()
