"""`afterword tune` against one plain pass over the same texts, with the dev set of the STS benchmark: time and memory.

    python benchmarks/tune.py

Both sides start from strings and end, here, with the choice made: every recipe scored, whitened where it leads, ranked
and confirmed. The plain pass embeds each different text once. Memory is the highest above the loaded model.
"""

import ctypes
import gc
import gzip
import json
import os
import sys
from pathlib import Path

from alone import resident
from measure import Row, apart, in_turns, main, medians, ratio
from models import ROOT, minilm_folder

from afterword import Encoder, classical
from afterword.tasks.pairs import ScoredPairs
from afterword.tune import Grid, tune

GRIDS = {
    "tune": Grid(copies=(), published=False),
    "without heads": Grid(copies=(), heads="none", published=False),
    "heads on all states": Grid(copies=(), heads="all", published=False),
    "with a template": Grid(("eol",), copies=(), published=False),
    "with ReBA-1": Grid(copies=(1,), published=False),
    "with Echo-2, ReBA-1 and ReBA-2": Grid(copies=(1, 2), published=False),
}
"""What is tried: first one layout, no copies; then what more of each kind costs. The last two are for decoders."""


def encoder(name: str) -> Encoder:
    return Encoder.load(minilm_folder() if name == "MiniLM" else name, classical(), device="cpu")


def stsb_dev(quick: bool) -> ScoredPairs:
    """The 1,500 pairs of the dev set."""
    import numpy as np

    path = Path(os.environ.get("AFTERWORD_SHARED") or ROOT.parent / "shared") / "data/en/sts/stsb.dev.jsonl.gz"
    if not path.exists():
        raise SystemExit(f"{path} is not there: set AFTERWORD_SHARED to the folder that holds data/en/sts")
    with gzip.open(path, "rt", encoding="utf-8") as f:
        rows = [json.loads(line) for line in f][: 40 if quick else None]
    left, right = (tuple(row[c] for row in rows) for c in ("sentence1", "sentence2"))
    return ScoredPairs(left, right, np.array([float(row["score"]) for row in rows]), ("",) * len(rows))


def peak(name: str, kind: str, quick: bool) -> int:
    """Bytes above the loaded model, of a process that does nothing else."""
    return int(apart(__file__, "--alone", name, kind, *["--quick"] * quick))


def alone(name: str, kind: str, quick: bool) -> None:
    model, pairs = encoder(name), stsb_dev(quick)
    texts = list(dict.fromkeys((*pairs.left, *pairs.right)))
    model.encode(texts[:16])
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    model.encode(texts) if kind == "plain" else tune(model, pairs, GRIDS[kind])
    print(resident("VmHWM") - before)


def of_model(name: str, quick: bool) -> list[Row]:
    model, pairs = encoder(name), stsb_dev(quick)
    texts = list(dict.fromkeys((*pairs.left, *pairs.right)))
    grids = dict(list(GRIDS.items())[: 2 if quick else 4 if name == "MiniLM" else None])
    calls = {"plain": lambda: model.encode(texts)}
    calls |= {what: (lambda grid=grid: tune(model, pairs, grid)) for what, grid in grids.items()}
    seconds = in_turns(calls, 1 if quick else 3)
    times, tried = medians(seconds), len(tune(model, pairs, GRIDS["tune"]).recipes)
    size = {kind: float(peak(name, kind, quick)) for kind in ("plain", "tune")}
    return [
        Row(f"{name}, {len(pairs.gold)} pairs: tune, {tried} recipes of one layout / one plain pass, time",
            ratio(seconds["tune"], seconds["plain"]), "<= 1.5", parts=times),
        *(Row(f"  {what}", ratio(seconds[what], seconds["plain"]), parts=times) for what in list(grids)[1:]),
        Row("  peak memory above the model", size["tune"] / 2**20, "", "MB", size),
        Row("  peak memory of the plain pass", size["plain"] / 2**20, "", "MB", size),
    ]  # fmt: skip


def measure(quick: bool) -> list[Row]:
    return [row for name in ("MiniLM", "afterword-mini")[1 if quick else 0 :] for row in of_model(name, quick)]


if __name__ == "__main__":
    if "--alone" in sys.argv:
        alone(sys.argv[2], sys.argv[3], "--quick" in sys.argv)
    else:
        main("tune", measure)
