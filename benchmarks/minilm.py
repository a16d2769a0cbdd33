"""Sentences per second on MiniLM against sentence-transformers, on the sentences of the STS benchmark's test set.

    python benchmarks/minilm.py

Both embed the same strings, tokenizer included. Where the processor multiplies in bfloat16, there is a second figure:
ours in bfloat16 against theirs in float32. Elsewhere bfloat16 is several times slower than float32.
"""

import numpy as np
from measure import Row, in_turns, main, medians, ratio
from models import minilm_folder, stsb_sentences
from sentence_transformers import SentenceTransformer

from afterword import Encoder
from afterword.backbone.linear_products import lacks_bfloat16


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Of each row of a with the same row of b."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    return (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def measure(quick: bool) -> list[Row]:
    sentences = stsb_sentences()[:16] if quick else stsb_sentences()
    folder = minilm_folder()
    theirs = SentenceTransformer(str(folder), device="cpu")
    ours = Encoder.load(folder, device="cpu")
    calls = {
        "theirs": lambda: theirs.encode(sentences, batch_size=32, show_progress_bar=False),
        "ours": lambda: ours.encode(sentences),
    }
    if lacks_bfloat16() is None:
        half = Encoder.load(folder, device="cpu", dtype="bfloat16")
        calls["bfloat16"] = lambda: half.encode(sentences)
    vectors = {name: call() for name, call in calls.items()}
    seconds = in_turns(calls, 1 if quick else 5)
    rate = {f"{name}, sentences/s": len(sentences) / s for name, s in medians(seconds).items()}
    rows = [
        Row(f"MiniLM, {len(sentences)} sentences: here / sentence-transformers, sentences/s",
            ratio(seconds["theirs"], seconds["ours"]), ">= 3", parts=rate),
        Row("  the largest difference", float(np.abs(vectors["theirs"] - vectors["ours"]).max()), "<= 1e-6", ""),
    ]  # fmt: skip
    if "bfloat16" in calls:
        alike = float(cosines(vectors["theirs"], vectors["bfloat16"]).min())
        rows += [
            Row("  bfloat16 here / float32 sentence-transformers, sentences/s",
                ratio(seconds["theirs"], seconds["bfloat16"]), ">= 5", parts=rate),
            Row("  the smallest cosine", alike, ">= 0.9995", "cosine"),
        ]  # fmt: skip
    return rows


if __name__ == "__main__":
    main("minilm", measure)
