"""What each training-free method costs, as a ratio to PromptEOL: the sentences of STS-B's test set on afterword-mini.

python benchmarks/methods_cost.py
"""

from measure import Row, in_turns, main, medians, ratio
from models import stsb_sentences

from afterword import Encoder, parse_method

EOL = "prompt:template=eol"
METHODS = (
    "classical", "classical:pool=weighted", "classical:temperature=0.8", "classical:states=values:all",
    "prompt:template=cot", "prompt:template=ke", "ensemble:ck", "ensemble:metaeol",
    "prompt:template=eol,states=attention:all", "token_prepending", "scsp", "echo", "reba:pool=mean",
    "reba:pool=mean,states=values:all", "bellm:last=1",
)  # fmt: skip


def measure(quick: bool) -> list[Row]:
    sentences = stsb_sentences()[:: 120 if quick else 6]
    backbone = Encoder.load("afterword-mini", EOL).backbone
    encoders = {spec: Encoder(backbone, parse_method(spec)) for spec in (EOL, *METHODS)}
    calls = {spec: (lambda e=encoder: e.encode(sentences)) for spec, encoder in encoders.items()}
    seconds = in_turns(calls, 1 if quick else 9)
    parts = medians(seconds)
    return [
        Row(f"{spec} / {EOL}, time", ratio(seconds[spec], seconds[EOL]), parts={k: parts[k] for k in (spec, EOL)})
        for spec in METHODS
    ]


if __name__ == "__main__":
    main("methods_cost", measure)
