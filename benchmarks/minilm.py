"""Sentences per second on MiniLM against sentence-transformers, on the sentences of the STS benchmark's test set.

    python benchmarks/minilm.py

Both embed the same strings, tokenizer included.
"""

import numpy as np
from measure import Row, in_turns, main, medians, ratio
from models import minilm_folder, stsb_sentences
from sentence_transformers import SentenceTransformer

from afterword import Encoder


def measure(quick: bool) -> list[Row]:
    sentences = stsb_sentences()[:16] if quick else stsb_sentences()
    folder = minilm_folder()
    theirs = SentenceTransformer(str(folder), device="cpu")
    ours = Encoder.load(folder, device="cpu")
    calls = {
        "theirs": lambda: theirs.encode(sentences, batch_size=32, show_progress_bar=False),
        "ours": lambda: ours.encode(sentences),
    }
    vectors = {name: call() for name, call in calls.items()}
    seconds = in_turns(calls, 1 if quick else 5)
    rate = {f"{name}, sentences/s": len(sentences) / s for name, s in medians(seconds).items()}
    return [
        Row(f"MiniLM, {len(sentences)} sentences: here / sentence-transformers, sentences/s",
            ratio(seconds["theirs"], seconds["ours"]), ">= 3", parts=rate),
        Row("  the largest difference", float(np.abs(vectors["theirs"] - vectors["ours"]).max()), "<= 1e-6", ""),
    ]  # fmt: skip


if __name__ == "__main__":
    main("minilm", measure)
