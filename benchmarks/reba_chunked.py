"""ReBA in chunks (section 6 of the paper) against ReBA and the plain mean: time, texts of 64 to 4096 tokens.

    python benchmarks/reba_chunked.py

A length is that of the text, before it is repeated. The model has afterword-mini's shape, with two layers for its six,
and positions for two copies of the longest text: each layer costs the same, so a ratio hardly depends on how many there
are, and the longest texts take minutes, not an hour. One text a call, mean pooling.
"""

from measure import Row, in_turns, main, medians, ratio
from models import mini_backbone, random_texts

from afterword import Encoder, classical, reba

ROUNDS = {64: 5, 256: 5, 1024: 3, 4096: 1}
LAYERS = 2
CHUNKS = (16, 64, 256)


def measure(quick: bool) -> list[Row]:
    methods = {"the plain mean": classical(), "ReBA-2": reba(pool="mean")}
    methods |= {f"chunks of {size}": reba(pool="mean", chunk=size) for size in CHUNKS}
    lengths = {64: 1, 256: 1} if quick else ROUNDS
    backbone = mini_backbone(2 * max(lengths) + 1, LAYERS)  # the model's token <s> begins a text
    encoders = {name: Encoder(backbone, method) for name, method in methods.items()}
    rows = []
    for tokens, rounds in lengths.items():
        text = random_texts([tokens], vocabulary=8192)
        calls = {name: (lambda e=encoder, t=text: e.encode(t)) for name, encoder in encoders.items()}
        seconds = in_turns(calls, rounds)
        parts = medians(seconds)
        plain = seconds["the plain mean"]
        rows.append(
            Row(f"ReBA-2 / the plain mean, time, {tokens} tokens", ratio(seconds["ReBA-2"], plain), parts=parts)
        )
        for name in (f"chunks of {size}" for size in CHUNKS if size < tokens):
            for other in ("the plain mean", "ReBA-2"):
                what = f"ReBA-2 in {name} / {other}, time, {tokens} tokens"
                rows.append(Row(what, ratio(seconds[name], seconds[other]), parts=parts))
    return rows


if __name__ == "__main__":
    main("reba_chunked", measure)
