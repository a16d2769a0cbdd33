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


def call_of(kind: str) -> Any:
    """What embeds one text of token ids."""
    from literal import reba_last
    from models import gpt2, gpt2_backbone

    from afterword import Encoder, echo, reba

    if kind == "literal":
        model = gpt2("eager")
        return lambda ids: reba_last(model, ids)
    encoder = Encoder(gpt2_backbone(), reba(pool="last") if kind == "reba" else echo(pool="last"))
    return lambda ids: encoder.encode([ids])


def resident(key: str) -> int:
    """Bytes of resident memory: "VmRSS" now, "VmHWM" the highest."""
    rows = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(rows[key].split()[0]) * 1024


def measured(kind: str, tokens: int) -> dict[str, float]:
    """Seconds of CPU time and bytes above the loaded model."""
    from models import random_texts

    call, ids = call_of(kind), random_texts([tokens // 2])[0]
    call(ids[:16])
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # glibc's
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    seconds = cpu_seconds(lambda: call(ids))
    return {"seconds": seconds, "bytes": float(resident("VmHWM") - before)}


def alone(kind: str, tokens: int) -> dict[str, float]:
    """The same, in a process of its own."""
    found: dict[str, float] = json.loads(apart(__file__, kind, str(tokens)))
    return found


def in_turns_alone(kinds: list[str], tokens: int, rounds: int) -> dict[str, list[dict[str, float]]]:
    """Every kind in every round, each in a process of its own."""
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    for r in range(rounds):
        for kind in kinds[r % len(kinds) :] + kinds[: r % len(kinds)]:
            found[kind].append(alone(kind, tokens))
    return found


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in CALLS:
        raise SystemExit(f"usage: python benchmarks/alone.py {'|'.join(CALLS)} TOKENS")
    print(json.dumps(measured(sys.argv[1], int(sys.argv[2]))))
