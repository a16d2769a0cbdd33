"""One short text, eight short texts and repeated texts on MiniLM, against sentence-transformers.

    python benchmarks/short_and_equal.py

Texts of which a third are repeated are compared with as many texts of the same words and lengths without repetition.
"""

import random

from measure import Row, in_turns, main, medians, ratio
from models import minilm_folder, stsb_sentences
from sentence_transformers import SentenceTransformer

from afterword import Encoder

SHORT = ("a short text", "rain", "the sea at night", "nobody knows", "what is this?", "it is so", "a cat sat", "no")
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
        Row(f"MiniLM, {len(repeated)} texts: a third of them duplicates / none, CPU time",
            ratio(equal["a third"], equal["none"]), "<= 0.7",
            parts={f"{name}, s": s for name, s in medians(equal).items()}),
    ]  # fmt: skip


if __name__ == "__main__":
    main("short_and_equal", measure)
