"""Search, and what looking back changes, with two real models: `make demo`, or `python examples/demo.py`."""

from __future__ import annotations

import csv
import os
import shutil
import sys
from pathlib import Path

os.environ.update(HF_HUB_DISABLE_PROGRESS_BARS="1", TOKENIZERS_PARALLELISM="false", TRANSFORMERS_VERBOSITY="error")

import numpy as np

from afterword import AfterwordError, Encoder, Method, classical, echo, prompt, reba

HERE = Path(__file__).resolve().parent
QUERIES = ["they billed me too much", "food allergy", "can I bring my pet?"]
HARDER = ["food allergy", "too loud to sleep"]
BANKS = ["The bank was steep and covered in reeds.", "The bank raised the interest on my loan."]
WIDTH = 32  # characters of a bar


def tickets() -> list[str]:
    """Two hundred messages to a help desk."""
    with (HERE / "tickets.csv").open(encoding="utf-8", newline="") as file:
        return [row["text"] for row in csv.DictReader(file)]


def nearest(encoder: Encoder, query: str, texts: list[str], vectors: np.ndarray, count: int) -> list[str]:
    """The lines of a query's nearest texts."""
    scores = encoder.similarity(encoder.encode([query]), vectors)[0]
    return [f"     {scores[i]:.2f}  {texts[i]}" for i in np.argsort(-scores)[:count]]


def search(encoder: Encoder, texts: list[str]) -> None:
    """The two messages that are nearest to each query."""
    print(f"1. Search with all-MiniLM-L6-v2, a trained encoder: the nearest of {len(texts)} messages.\n")
    vectors = encoder.encode(texts)
    for query in QUERIES:
        print("\n".join([f"   {query}", *nearest(encoder, query, texts, vectors, 2)]))
    print("\n   It compares meanings: no query shares a word with its first answer.\n")


def banks(encoder: Encoder) -> None:
    """The cosine of one word's vectors in two texts, by methods that do and do not look back."""
    print("2. Looking back with SmolLM2-135M, a language model: how similar are the vectors of 'bank' in\n")
    print("\n".join(f"     {text}" for text in BANKS) + "\n")
    for name, method in {"classical": classical(), "ReBA": reba(), "Echo": echo()}.items():
        first, second = with_method(encoder, method).encode_words(BANKS, ["bank", "bank"], normalize_embeddings=True)
        cosine = float(first @ second)
        print(f"   {name:<10} {'#' * round(WIDTH * cosine):<{WIDTH}} {cosine:.2f}")
    print("\n   A causal model reads only 'The bank' before it computes the word's vector. Echo and ReBA read the")
    print("   text twice, so that the word also sees what follows it.\n")


def looking_back(encoder: Encoder, texts: list[str]) -> None:
    """The nearest messages by the mean of the language model's states, and by PromptEOL."""
    print("3. Search with SmolLM2-135M, without any training:\n")
    methods = {"the mean of its states": classical(), "its answer to a prompt": prompt("eol", states="layer:-2")}
    for name, method in methods.items():
        chosen = with_method(encoder, method)
        vectors = chosen.encode(texts)
        print(f"   By {name}:")
        for query in HARDER:
            print("\n".join([f"   {query}", *nearest(chosen, query, texts, vectors, 2)]))
        print()
    print("   The prompt ends in 'means in one word:', where the model looks back over all of the text.\n")


def with_method(encoder: Encoder, method: Method) -> Encoder:
    """The same model by another method."""
    return Encoder(encoder.backbone, method)


def command() -> str:
    """The command line, as it is typed here."""
    installed = Path(sys.executable).with_name("afterword")
    if shutil.which("afterword") or not installed.exists():
        return "afterword"
    near = installed.is_relative_to(Path.cwd())
    return str(installed.relative_to(Path.cwd()) if near else installed)


def main() -> None:
    """The demo."""
    texts, afterword = tickets(), command()
    try:
        search(Encoder.load("minilm", device="cpu"), texts)
        decoder = Encoder.load("smollm2", classical(), device="cpu")
    except AfterwordError as e:
        sys.exit(f"the demo needs its two models: {e}")
    banks(decoder)
    looking_back(decoder, texts)
    print("Try these:")
    print(f'  {afterword} similar -m minilm "too loud to sleep" --against examples/tickets.csv')
    print(f"  {afterword} tune -m minilm --dev examples/pairs.jsonl --out best")
    print(f"  {afterword} methods")


if __name__ == "__main__":
    main()
