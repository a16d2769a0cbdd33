"""Sentences per second of the trained models that the package ships, against MiniLM, by either library.

    python benchmarks/mini.py

All embed the sentences of the STS benchmark's test set, tokenizer included, each with its own method.
"""

from measure import Row, in_turns, main, medians, ratio
from models import minilm_folder, stsb_sentences
from sentence_transformers import SentenceTransformer

from afterword import Encoder
from afterword.backbone.model_source import find

SHIPPED = ("afterword-mini-bellm", "afterword-mini-distilled")
LIBRARIES = ("sentence-transformers", "Encoder")
PAIRS = (("Encoder", "sentence-transformers"), ("sentence-transformers",) * 2, ("Encoder",) * 2)


def theirs(folder: str) -> SentenceTransformer:
    """A folder as sentence-transformers opens it, in float32."""
    return SentenceTransformer(folder, device="cpu", trust_remote_code=True).float()


def measure(quick: bool) -> list[Row]:
    sentences = stsb_sentences()[:64] if quick else stsb_sentences()
    folders = {name: find(name) for name in SHIPPED} | {"MiniLM": str(minilm_folder())}
    calls = {}
    for name, folder in folders.items():
        model, encoder = theirs(folder), Encoder.load(folder, device="cpu")
        made = (lambda model=model: model.encode(sentences, show_progress_bar=False),
                lambda encoder=encoder: encoder.encode(sentences))  # fmt: skip
        calls |= {f"{name} by {library}": call for library, call in zip(LIBRARIES, made, strict=True)}
    seconds = in_turns(calls, 1 if quick else 5)
    rate = {f"{side}, sentences/s": len(sentences) / s for side, s in medians(seconds).items()}
    return [
        Row(f"{name} by {ours} / MiniLM by {other}, sentences/s",
            ratio(seconds[f"MiniLM by {other}"], seconds[f"{name} by {ours}"]), parts=rate)
        for name in SHIPPED
        for ours, other in PAIRS
    ]  # fmt: skip


if __name__ == "__main__":
    main("mini", measure)
