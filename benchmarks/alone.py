"""One call in a process of its own: its CPU time, and how far memory rises above the loaded model.

    python benchmarks/alone.py reba 1024      (or echo, or literal: the paper's algorithm as it is written)

The model is loaded and has run on a short text before: packed weights belong to the loaded model. Then the mark of the
highest resident memory is reset (Linux), the call is made, and the mark is read. What loading had taken and freed is
given back to the system first, or a call could hide in it.
"""

from __future__ import annotations

import ctypes
import gc
import json
import sys
from pathlib import Path
from typing import Any

from measure import apart, cpu_seconds

CALLS = ("echo", "reba", "literal")


def call_of(kind: str, quick: bool = False) -> Any:
    """What embeds one text of token ids; a quick one has a small model."""
    from literal import reba_last
    from models import gpt2, gpt2_backbone

    from afterword import Encoder, echo, reba

    if kind == "literal":
        model = gpt2("eager", quick)
        return lambda ids: reba_last(model, ids)
    encoder = Encoder(gpt2_backbone(quick), reba(pool="last") if kind == "reba" else echo(pool="last"))
    return lambda ids: encoder.encode([ids])


def resident(key: str) -> int:
    """Bytes of resident memory: "VmRSS" now, "VmHWM" the highest."""
    rows = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(rows[key].split()[0]) * 1024


def measured(kind: str, tokens: int, quick: bool = False) -> dict[str, float]:
    """Seconds of CPU time and bytes above the loaded model."""
    from models import random_texts

    call, ids = call_of(kind, quick), random_texts([tokens // 2])[0]
    call(ids[:16])
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # glibc's
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    seconds = cpu_seconds(lambda: call(ids))
    return {"seconds": seconds, "bytes": float(resident("VmHWM") - before)}


def alone(kind: str, tokens: int, quick: bool = False) -> dict[str, float]:
    """The same, in a process of its own."""
    found: dict[str, float] = json.loads(apart(__file__, kind, str(tokens), *["--quick"] * quick))
    return found


def in_turns_alone(
    kinds: list[str], tokens: int, rounds: int, quick: bool = False
) -> dict[str, list[dict[str, float]]]:
    """Every kind in every round, each in a process of its own."""
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    for r in range(rounds):
        for kind in kinds[r % len(kinds) :] + kinds[: r % len(kinds)]:
            found[kind].append(alone(kind, tokens, quick))
    return found


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--quick"]
    if len(words) != 2 or words[0] not in CALLS:
        raise SystemExit(f"usage: python benchmarks/alone.py {'|'.join(CALLS)} TOKENS [--quick]")
    print(json.dumps(measured(words[0], int(words[1]), "--quick" in sys.argv)))
