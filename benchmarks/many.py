"""Five methods in one `encode_many` against the five one by one, sentences on a decoder.

python benchmarks/many.py
"""

from measure import Row, in_turns, main, medians, ratio
from models import gpt2_backbone, lognormal_lengths, random_texts

from afterword import Encoder, classical, echo, reba


def measure(quick: bool) -> list[Row]:
    texts = random_texts(lognormal_lengths(6 if quick else 48))
    methods = [classical(), echo(pool="last"), echo(pool="mean"), reba(pool="last"), reba(pool="mean")]
    backbone = gpt2_backbone(quick)
    together, single = Encoder(backbone, methods[0]), [Encoder(backbone, m) for m in methods]
    calls = {
        "together": lambda: together.encode_many(texts, methods),
        "one by one": lambda: [encoder.encode(texts) for encoder in single],
    }
    seconds = in_turns(calls, 1 if quick else 3)
    what = "classical mean, Echo-2 last and mean, ReBA-2 last and mean: one encode_many / one by one, time"
    return [Row(what, ratio(seconds["together"], seconds["one by one"]), "<= 0.35", parts=medians(seconds))]


if __name__ == "__main__":
    main("many", measure)
