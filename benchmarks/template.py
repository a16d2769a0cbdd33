"""A template on a decoder: what all texts begin with run once for a batch, against the same run in every text.

    python benchmarks/template.py

afterword-mini embeds the sentences of the STS benchmark's test set, tokenizer included.
"""

from dataclasses import replace

import numpy as np
from measure import Row, in_turns, main, medians, ratio
from models import stsb_sentences

from afterword import Encoder, prompt
from afterword.backbone.backbone import Backbone


def without(encoder: Encoder) -> Encoder:
    """The same model and method; every text is run whole."""
    backbone = encoder.backbone
    whole = Backbone(backbone.model, backbone.tokenizer, replace(backbone.facts, shares=False), backbone.modules)
    return Encoder(whole, encoder.method)


def measure(quick: bool) -> list[Row]:
    sentences = stsb_sentences()[:64] if quick else stsb_sentences()
    rows = []
    for template in ("bellm", "eol"):
        shared = Encoder.load("afterword-mini", prompt(template), device="cpu")
        whole, (writing,) = without(shared), shared.method.layout.write(["a"], shared.backbone.tokenizer)
        calls = {"shared": lambda e=shared: e.encode(sentences), "whole": lambda e=whole: e.encode(sentences)}
        seconds = in_turns(calls, 1 if quick else 7)
        theirs, ours = calls["whole"](), calls["shared"]()
        prefix = writing.segments[0].prefix
        what = f"template {template!r}, {prefix} tokens run once / in each of {len(sentences)} sentences"
        off = float(np.abs(ours - theirs).max() / np.abs(theirs).max())
        rows += [
            Row(f"{what}, time", ratio(seconds["shared"], seconds["whole"]), "<= 0.85", parts=medians(seconds)),
            Row(f"  the largest difference, of the largest value ({template})", off, "<= 2e-6", ""),
        ]
    return rows


if __name__ == "__main__":
    main("template", measure)
