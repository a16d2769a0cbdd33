"""The attention sink in means of every layer: with the first token, without it, and of states of unit length.

    python recipes/sink.py --pairs ../shared/data/en/sts/stsb.dev.jsonl.gz -m smollm2 -m gemma3 --out runs/sink

Writes a JSON file of Spearman's correlations for each model, and prints one table of them all. A model whose file
exists is not run again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from afterword import Encoder, Method, classical
from afterword.methods import CustomStates
from afterword.tasks.pairs import read_pairs
from afterword.tasks.results import aligned
from afterword.tasks.scores import cosines, spearman

WAYS = ("mean", "without the first token", "unit states")


def unit_states(layer: int) -> CustomStates:
    """Hidden states of a layer, each scaled to length 1."""

    class UnitStates(CustomStates):
        kind: ClassVar[str] = f"unit:{layer}"
        reads: ClassVar[tuple[str, ...]] = (f"layer:{layer}",)

        def __call__(self, *states: Tensor) -> Tensor:
            return torch.nn.functional.normalize(states[0], dim=-1)

    return UnitStates()


def methods(layers: int) -> Mapping[str, Method]:
    """The three means of each layer, which share one forward pass."""
    named = {}
    for k in range(1, layers + 1):
        plain = classical(states=f"layer:{k}")
        named |= {f"{k} {WAYS[0]}": plain, f"{k} {WAYS[1]}": classical(states=f"layer:{k}", skip_first=True)}
        named[f"{k} {WAYS[2]}"] = replace(plain, states=unit_states(k))
    last = {"mean": classical(), "without the first token": classical(skip_first=True)}
    return named | {f"output {way}": method for way, method in last.items()}


def scores(model: str, path: Path) -> dict[str, float]:
    """Spearman's correlation x 100 of each mean."""
    encoder, pairs = Encoder.load(model, classical()), read_pairs(path)
    made = methods(encoder.backbone.facts.states)
    left, right = (encoder.encode_many(list(side), made) for side in (pairs.left, pairs.right))
    return {name: 100 * spearman(cosines(left[name], right[name]), pairs.gold) for name in made}


def table(results: Mapping[str, Mapping[str, float]]) -> str:
    """A row per layer; for each model, the three means."""
    places = list(dict.fromkeys(name.split(" ", 1)[0] for found in results.values() for name in found))
    places.sort(key=lambda place: (place == "output", int(place) if place.isdigit() else 0))
    rows = [["layer", *results]]
    for place in places:
        cells = [[found.get(f"{place} {way}") for way in WAYS] for found in results.values()]
        rows.append([place, *(" / ".join(f"{c:.1f}" for c in of_model if c is not None) for of_model in cells)])
    return aligned(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", action="append", required=True)
    parser.add_argument("--pairs", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("runs/sink"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    results = {}
    for model in args.model:
        file = args.out / f"{Path(model).name}.json"
        if not file.exists():
            file.write_text(json.dumps(scores(model, args.pairs), indent=1))
        results[Path(model).name] = json.loads(file.read_text())
    print(table(results))


if __name__ == "__main__":
    main()
