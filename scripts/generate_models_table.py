"""Write docs/models.md: what each family of models gives, measured.

python scripts/generate_models_table.py [--check]
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "models.md"
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tests.families import Verdict, judge  # noqa: E402 (the root has just been added)
from tests.tiny import FAMILIES, MUST  # noqa: E402

WAYS = {"flat": "exact", "stacked": "exact, equal lengths", "eager": "exact, by the eager way", "refused": "refused"}
FIGURE = re.compile(r"\b\d+e-\d+\b")
SHORT = {
    "shows no attention": "shows no attention in each layer",
    "runs with its own": "its attention is out of reach",
    "is an encoder and a decoder": "an encoder and a decoder; no encoder of texts alone",
}
HEAD = """# Models

Written by `python scripts/generate_models_table.py`; a test keeps it true.

Any model that `AutoModel` loads is checked when it is loaded: a few texts that share a batch must come out as the
model's own eager attention gives them for each text alone, within 1e-4 of the largest value, and every layer must
have asked for its attention. Three ways of running are tried, the fastest first:

- **exact**: all texts laid end to end in one sequence, without padding.
- **exact, equal lengths**: texts of one length at a time, through our attention function.
- **exact, by the eager way**: texts of one length at a time, through the model's own attention. ReBA and Ditto read
  the matrices that the model hands out, which takes the memory of all of them.

A model that none of them reproduces is refused with the reasons. A family that is not named here needs no code: load
it, and `afterword inspect` says which way it takes.

The table's figures come from random models of each family, of three or four layers: texts of 1 to 23 tokens in one
batch, every method that applies (classical, Echo, ReBA with its options and for words, Ditto, prompts, BeLLM with one
and two layers), against plain formulas over the model's own eager matrices, one text at a time. The difference is the
worst of any method in float32, relative to the vector's largest component; 1e-7 is the last bit.

"""
TAIL = """
Rotary frequencies of the types `longrope` (Phi 3) and `dynamic` depend on the longest text of a forward: texts on both
sides of the limit never share one. `dynamic` is the row "llama dynamic". Sliding windows, chunks, softcaps and sinks
are the models' own.
"""


def row(verdict: Verdict) -> str:
    """One line of the table."""
    refused: dict[str, list[str]] = {}
    for method, reason in verdict.refused.items():
        said = next((short for key, short in SHORT.items() if key in reason), reason)
        refused.setdefault(said, []).append(method)
    told = [f"{', '.join(families(methods))}: {reason}" for reason, methods in refused.items()]
    worst = f"{max(verdict.worst.values()):.0e}" if verdict.worst else ""
    required = "yes" if verdict.kind in MUST else ""
    exact = ", ".join(families(verdict.worst))
    return f"| {verdict.kind} | {required} | {WAYS[verdict.way]} | {exact} | {worst} | {'; '.join(told)} |"


def families(methods: Iterable[str]) -> list[str]:
    """The methods by the names of the papers, each once."""
    names = {"reba": "ReBA", "ditto": "Ditto", "bellm": "BeLLM", "every": "every method"}
    first = [m.split(maxsplit=1)[0] for m in methods]
    return list(dict.fromkeys(names.get(f, f) for f in first))


def agrees(old: str, new: str) -> bool:
    """Whether two pages say the same: machines differ in a float's last bits, so a figure may be ten times another."""
    figures = [[float(f) for f in FIGURE.findall(text)] for text in (old, new)]
    if FIGURE.sub("", old) != FIGURE.sub("", new):
        return False
    return all(max(a, b) <= 10 * min(a, b) for a, b in zip(*figures, strict=True))


def page(verdicts: Sequence[Verdict]) -> str:
    """The page."""
    head = "| family | required | how it runs | exact methods | difference | refused |\n|---|---|---|---|---|---|\n"
    return HEAD + head + "".join(row(v) + "\n" for v in verdicts) + TAIL


def main(check: bool) -> int:
    """Write the page, or say whether it is as it would be written."""
    torch.set_num_threads(1)  # threads that wait for each other on a busy machine cost more than they gain here
    verdicts = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind in FAMILIES:
            with tempfile.TemporaryDirectory() as folder:
                verdicts.append(judge(kind, Path(folder)))
    made = page(verdicts)
    if check:
        same = PAGE.exists() and agrees(PAGE.read_text("utf-8"), made)
        print(f"{PAGE.relative_to(ROOT)} is {'up to date' if same else 'out of date: make docs'}")
        return 0 if same else 1
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(made, "utf-8")
    return 0


if __name__ == "__main__":
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1")
    sys.exit(main("--check" in sys.argv[1:]))
