"""Sentences per second of the trained models that the package ships, against MiniLM by either library.

    python benchmarks/mini.py

All embed the sentences of the STS benchmark's test set, tokenizer included, each with its own method.
"""

from measure import Row, in_turns, main, medians, ratio
from models import minilm_folder, stsb_sentences
from sentence_transformers import SentenceTransformer

from afterword import Encoder

SHIPPED = ("afterword-mini-bellm", "afterword-mini-distilled")


def measure(quick: bool) -> list[Row]:
    sentences = stsb_sentences()[:64] if quick else stsb_sentences()
    theirs = SentenceTransformer(str(minilm_folder()), device="cpu")
    here = {name: Encoder.load(name, device="cpu") for name in SHIPPED} | {"MiniLM": Encoder.load(minilm_folder())}
    calls = {name: lambda encoder=encoder: encoder.encode(sentences) for name, encoder in here.items()}
    calls["theirs"] = lambda: theirs.encode(sentences, batch_size=32, show_progress_bar=False)
    seconds = in_turns(calls, 1 if quick else 5)
    rate = {f"{name}, sentences/s": len(sentences) / s for name, s in medians(seconds).items()}
    return [
        Row(f"{name} / MiniLM by {library}, sentences/s", ratio(seconds[side], seconds[name]), parts=rate)
        for name in SHIPPED
        for side, library in {"theirs": "sentence-transformers", "MiniLM": "Encoder"}.items()
    ]


if __name__ == "__main__":
    main("mini", measure)
