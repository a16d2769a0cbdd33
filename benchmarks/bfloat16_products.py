"""``products="bfloat16"`` on MiniLM against sentence-transformers in float32, on the sentences of `minilm.py`.

    python benchmarks/bfloat16_products.py

It needs a processor with AMX or AVX512-BF16, and says in one line where this one has neither.
"""

import os

from measure import Row, in_turns, main, medians, ratio
from minilm import cosines
from models import minilm_folder, stsb_sentences
from sentence_transformers import SentenceTransformer

from afterword import Encoder
from afterword.backbone.linear_products import lacks_bfloat16


def measure(quick: bool) -> list[Row]:
    if os.environ.get("AFTERWORD_KERNELS") == "plain":
        return []  # such products are packed ones
    sentences = stsb_sentences()[:64] if quick else stsb_sentences()
    folder = minilm_folder()
    theirs = SentenceTransformer(str(folder), device="cpu")
    ours, exact = Encoder.load(folder, device="cpu", products="bfloat16"), Encoder.load(folder, device="cpu")
    calls = {
        "theirs": lambda: theirs.encode(sentences, batch_size=32, show_progress_bar=False),
        "bfloat16 products": lambda: ours.encode(sentences),
        "float32 products": lambda: exact.encode(sentences),
    }
    vectors = {name: call() for name, call in calls.items()}
    seconds = in_turns(calls, 1 if quick else 5)
    rate = {f"{name}, sentences/s": len(sentences) / s for name, s in medians(seconds).items()}
    alike = float(cosines(vectors["theirs"], vectors["bfloat16 products"]).min())
    return [
        Row(f"MiniLM, {len(sentences)} sentences: products='bfloat16' here / sentence-transformers, sentences/s",
            ratio(seconds["theirs"], seconds["bfloat16 products"]), ">= 2.5", parts=rate),
        Row("  the smallest cosine", alike, ">= 0.9995", "cosine"),
    ]  # fmt: skip


if __name__ == "__main__":
    if missing := lacks_bfloat16():
        print(f"products='bfloat16' cannot be measured here: {missing}")
    else:
        main("bfloat16_products", measure)
