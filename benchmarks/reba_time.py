"""ReBA against Echo, time: the cost of reading attention on top of the forward that both need.

    python benchmarks/reba_time.py

A length is that of the model's input, the two copies together: 2048 is a text of 1024 tokens, twice. One text a call.
"""

from measure import Row, in_turns, main, medians, ratio
from models import gpt2_backbone, random_texts

from afterword import Encoder, echo, reba

ROUNDS = {64: 15, 128: 11, 256: 9, 512: 7, 1024: 5, 2048: 3}


def measure(quick: bool) -> list[Row]:
    backbone = gpt2_backbone(quick)
    methods = {"echo": echo(pool="last"), "last": reba(pool="last"), "mean": reba(pool="mean")}
    encoders = {name: Encoder(backbone, method) for name, method in methods.items()}
    rows = []
    for tokens, rounds in {64: 2, 256: 1}.items() if quick else ROUNDS.items():
        text = random_texts([tokens // 2])
        calls = {name: (lambda e=encoder, t=text: e.encode(t)) for name, encoder in encoders.items()}
        seconds = in_turns(calls, rounds)
        for pool, aim in ("last", "<= 1.05"), ("mean", "<= 1.15" if tokens <= 1024 else "<= 1.25"):
            what = f"ReBA-2 {pool} / Echo-2, time, {tokens} tokens"
            rows.append(Row(what, ratio(seconds[pool], seconds["echo"]), aim, parts=medians(seconds)))
    return rows


if __name__ == "__main__":
    main("reba_time", measure)
