"""One short text, eight short texts, a service and repeated texts on MiniLM, against sentence-transformers.

    python benchmarks/short_and_equal.py

The service is 32 threads that encode one short text after another with one shared model, as the worker threads of a
web framework do. Its row is texts per second by the clock, so it needs a machine that does nothing else.
Texts of which a third are repeated are compared with as many texts of the same words and lengths without repetition.
"""

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median

from measure import Row, in_turns, main, medians, ratio
from models import minilm_folder, stsb_sentences
from sentence_transformers import SentenceTransformer

from afterword import Encoder

SHORT = ("a short text", "rain", "the sea at night", "nobody knows", "what is this?", "it is so", "a cat sat", "no")
CLIENTS = 32
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


def texts_per_second(calls: dict[str, Callable[[str], object]], texts: int, rounds: int) -> dict[str, list[float]]:
    """How many short texts each call encodes per second for `CLIENTS` clients at once, in turns."""
    wanted = [f"{SHORT[i % len(SHORT)]} {i}" for i in range(texts)]
    found: dict[str, list[float]] = {name: [] for name in calls}
    with ThreadPoolExecutor(CLIENTS) as clients:
        for r in range(rounds + 1):
            for name in sorted(calls, reverse=r % 2 == 1):
                start = time.perf_counter()
                list(clients.map(calls[name], wanted))
                if r:  # the first round warms up
                    found[name].append(texts / (time.perf_counter() - start))
    return found


def measure(quick: bool) -> list[Row]:
    folder = minilm_folder()
    ours, theirs = Encoder.load(folder, device="cpu"), SentenceTransformer(str(folder), device="cpu")
    times = 3 if quick else 50
    short = {
        n: in_turns(
            {
                "theirs": lambda n=n: [theirs.encode(list(SHORT[:n]), show_progress_bar=False) for _ in range(times)],
                "ours": lambda n=n: [ours.encode(list(SHORT[:n])) for _ in range(times)],
            },
            1 if quick else 11,
        )
        for n in (1, 8)
    }
    service = texts_per_second(
        {"theirs": lambda text: theirs.encode(text, show_progress_bar=False), "ours": ours.encode},
        CLIENTS if quick else 4 * CLIENTS,
        1 if quick else 11,
    )
    different, repeated = corpora(60 if quick else 20_000)
    equal = in_turns(
        {"none": lambda: ours.encode(different), "a third": lambda: ours.encode(repeated)}, 1 if quick else 3
    )
    return [
        *(
            Row(f"MiniLM, short texts in one call, {n}: here / sentence-transformers, CPU time",
                ratio(seconds["ours"], seconds["theirs"]), aim,
                parts={f"{name}, ms": 1000 * s / times for name, s in medians(seconds).items()})
            for (n, seconds), aim in zip(short.items(), ("<= 0.95", "<= 0.8"), strict=True)
        ),
        Row(f"MiniLM, a service with {CLIENTS} clients: here / sentence-transformers, texts per second",
            ratio(service["ours"], service["theirs"]), ">= 1",
            parts={f"{name}, texts per second": median(rates) for name, rates in service.items()}),
        Row(f"MiniLM, {len(repeated)} texts: a third of them duplicates / none, CPU time",
            ratio(equal["a third"], equal["none"]), "<= 0.7",
            parts={f"{name}, s": s for name, s in medians(equal).items()}),
    ]  # fmt: skip


if __name__ == "__main__":
    main("short_and_equal", measure)
