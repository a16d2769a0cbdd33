"""ReBA against Echo, memory: the highest resident memory above the loaded model, each in a process of its own.

python benchmarks/reba_memory.py
"""

from statistics import median

from alone import in_turns_alone
from measure import Row, main


def measure(quick: bool) -> list[Row]:
    tokens, rounds = (256, 1) if quick else (1024, 3)
    found = in_turns_alone(["echo", "reba"], tokens, rounds, quick)
    size = {kind: median(one["bytes"] for one in runs) for kind, runs in found.items()}
    what = f"ReBA-2 last / Echo-2, peak memory, {tokens} tokens"
    return [Row(what, size["reba"] / size["echo"], "<= 1.3", parts=size)]


if __name__ == "__main__":
    main("reba_memory", measure)
