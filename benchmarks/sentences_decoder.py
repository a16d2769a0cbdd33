"""Sentences on a decoder: ReBA here in batches, against the paper's algorithm sentence by sentence.

    python benchmarks/sentences_decoder.py

Lengths are drawn from a lognormal distribution, 25 tokens in the mean, before the repetition.
"""

import torch
from literal import reba_last
from measure import Row, in_turns, main, medians, ratio
from models import gpt2, gpt2_backbone, lognormal_lengths, random_texts

from afterword import Encoder, reba


def measure(quick: bool) -> list[Row]:
    count, rounds = (6, 1) if quick else (64, 3)
    texts = random_texts(lognormal_lengths(count))
    model, encoder = gpt2("eager", quick), Encoder(gpt2_backbone(quick), reba(pool="last"))
    calls = {"paper": lambda: torch.stack([reba_last(model, t) for t in texts]), "ours": lambda: encoder.encode(texts)}
    seconds = in_turns(calls, rounds)
    theirs, ours = calls["paper"]().numpy(), calls["ours"]()
    off = float(abs(theirs - ours).max() / abs(theirs).max())
    what = f"the paper's way / ReBA-2 last, time, {count} sentences of {sum(map(len, texts)) / count:.0f} tokens"
    return [
        Row(what, ratio(seconds["paper"], seconds["ours"]), ">= 2.5", parts=medians(seconds)),
        Row("  the largest difference, of the largest value", off, "<= 2e-5", ""),
    ]


if __name__ == "__main__":
    main("sentences_decoder", measure)
