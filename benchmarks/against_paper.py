"""The paper's algorithm as it is written (eager attention, every matrix kept) against ReBA here: time and memory.

    python benchmarks/against_paper.py

2048 tokens is a text of 1024 tokens, twice. Every run is a process of its own; `literal.py` holds the algorithm.
"""

from statistics import median

from alone import in_turns_alone
from measure import Row, main, ratio


def measure(quick: bool) -> list[Row]:
    tokens, rounds = (256, 1) if quick else (2048, 3)
    found = in_turns_alone(["literal", "reba"], tokens, rounds, quick)
    seconds, size = ({k: [one[key] for one in runs] for k, runs in found.items()} for key in ("seconds", "bytes"))
    parts = [{kind: median(of) for kind, of in one.items()} for one in (seconds, size)]
    what = f"the paper's way / ReBA-2 last, {{}}, {tokens} tokens"
    return [
        Row(what.format("time"), ratio(seconds["literal"], seconds["reba"]), ">= 6", parts=parts[0]),
        Row(what.format("peak memory"), parts[1]["literal"] / parts[1]["reba"], ">= 10", parts=parts[1]),
    ]


if __name__ == "__main__":
    main("against_paper", measure)
