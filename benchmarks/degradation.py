"""The degradation curve of afterword-mini against one plain pass over the same texts by the same method: time.

    python benchmarks/degradation.py

All layers are scored on the dev set of the STS benchmark. One plain pass embeds each different text once; resamples of
the turning point are left out of the curves and stand in a row of their own.
"""

from measure import Row, in_turns, main, medians, ratio
from tune import encoder, stsb_dev

from afterword import Encoder, bellm, prompt
from afterword.papers.turning import degradation


def measure(quick: bool) -> list[Row]:
    model, pairs = encoder("afterword-mini"), stsb_dev(quick)
    texts = list(dict.fromkeys((*pairs.left, *pairs.right)))
    plain = Encoder(model.backbone, prompt("bellm", "mean"))
    mean, both = {"mean": bellm(2)}, {"mean": bellm(2), "last": bellm(2, "last")}
    calls = {
        "plain": lambda: plain.encode(texts),
        "one pool": lambda: degradation(model, pairs, mean, draws=0),
        "two pools": lambda: degradation(model, pairs, both, draws=0),
        "one pool, 200 resamples": lambda: degradation(model, pairs, mean),
    }
    seconds = in_turns(calls, 1 if quick else 3)
    layers = model.backbone.facts.layers
    what = f"degradation curve, {len(pairs.gold)} pairs, {layers} layers, {{}} / one plain pass, time"
    parts = medians(seconds)
    return [Row(what.format(name), ratio(seconds[name], seconds["plain"]), parts=parts) for name in list(calls)[1:]]


if __name__ == "__main__":
    main("degradation", measure)
