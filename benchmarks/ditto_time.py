"""Ditto against the plain first-last average, and the diagonals of all heads in one pass, on MiniLM.

python benchmarks/ditto_time.py
"""

from dataclasses import dataclass

import torch
from measure import Row, in_turns, main, medians, ratio
from models import minilm_backbone, stsb_sentences

from afterword import Encoder, classical, ditto
from afterword.backbone.attention_taps import Diagonals
from afterword.methods.weights import Plain


@dataclass(frozen=True)
class AllDiagonals(Plain):
    """The weights of the plain average, and every head's diagonal, as a search of heads needs them."""

    def tap(self, *_: object) -> Diagonals:
        return Diagonals()


def measure(quick: bool) -> list[Row]:
    sentences = stsb_sentences()[:: 60 if quick else 4]
    backbone, plain = minilm_backbone(), classical(states="first_last")
    search = type(plain)(plain.layout, plain.states, AllDiagonals(), name="all diagonals")
    methods = {"plain": plain, "ditto": ditto("1-10"), "all heads": search}
    encoders = {name: Encoder(backbone, method) for name, method in methods.items()}
    calls = {name: (lambda e=encoder: e.encode(sentences)) for name, encoder in encoders.items()}
    with torch.no_grad():
        seconds = in_turns(calls, 1 if quick else 9)
    parts = medians(seconds)
    return [
        Row("Ditto / plain first-last, time", ratio(seconds["ditto"], seconds["plain"]), "<= 1.03", parts=parts),
        Row("the diagonals of all heads in one pass / plain first-last, time",
            ratio(seconds["all heads"], seconds["plain"]), "<= 1.05", parts=parts),
    ]  # fmt: skip


if __name__ == "__main__":
    main("ditto_time", measure)
