"""Is the turning point the right number of layers? BeLLM trained with bidirectional layers after t - 1, t and t + 1.

    python recipes/turning_neighbours.py --data ../shared/data --out runs/neighbours

t is the model's turning point on the dev set of STS-B (`afterword analyse turning-point`), with BeLLM's template and
the mean. Each training has the same triplets and steps; scores are of the test sets of STS-B and SICK-R, averaged, or
of --sets. What is finished lies in <out>/scores.jsonl and is not run again.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
from pathlib import Path

import torch

from afterword import Encoder, bellm
from afterword.papers.turning import degradation, read_pairs
from afterword.tasks.pairs import sts
from afterword.tasks.results import aligned
from afterword.tasks.task import Folder
from afterword.train import train


def trained_score(args: argparse.Namespace, last: int, seed: int) -> float:
    """Train with the last layers bidirectional; the average of the test sets, x 100."""
    place = args.out / f"last{last}-seed{seed}"
    shutil.rmtree(place, ignore_errors=True)  # of a run that was ended
    encoder = train(
        args.model, args.data / "nli/triplets_10k.jsonl.gz", place, method=bellm(last=last), seed=seed,
        batch_size=args.batch_size, steps=args.steps, max_length=64, learning_rate=1e-3, precision=args.precision,
    )  # fmt: skip
    shutil.rmtree(place)
    return 100 * statistics.fmean(sts(name).run(encoder, Folder(args.data)).main for name in args.sets)


def table(scores: dict[tuple[int, int], float], layers: int, kept: int) -> str:
    """A line for each number of bidirectional layers: the mean over seeds, and each seed's gain over none."""
    seeds = sorted({seed for _, seed in scores})
    cells = [["bidirectional layers", "causal ones kept", "score", *(f"gain, seed {seed}" for seed in seeds)]]
    for last in sorted({last for last, _ in scores}, reverse=True):
        found = [scores[last, seed] for seed in seeds]
        spread = f" ± {statistics.stdev(found):.2f}" if len(found) > 1 else ""
        where = {-1: ", t - 1", 0: ", t", 1: ", t + 1"}.get(layers - last - kept, "")
        gains = [f"{scores[last, seed] - scores[0, seed]:+.2f}" if last else "" for seed in seeds]
        cells.append([f"last {last}{where}" if last else "none", str(layers - last),
                      f"{statistics.fmean(found):.2f}{spread}", *gains])  # fmt: skip
    return aligned(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder with nli/ and en/")
    parser.add_argument("--model", default="afterword-mini")
    parser.add_argument("--out", type=Path, default=Path("runs/neighbours"))
    parser.add_argument("--steps", type=int, default=50, help="of every training")
    parser.add_argument("--batch-size", type=int, default=64, help="in triplets")
    parser.add_argument("--seeds", type=int, default=2, help="so many trainings of each")
    parser.add_argument("--sets", nargs="+", default=["STSB", "SICKR"], help="their average is the score")
    parser.add_argument("--precision", default="float32", help="bfloat16 is faster with AMX or AVX512-BF16 only")
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.out.mkdir(parents=True, exist_ok=True)
    encoder = Encoder.load(args.model, bellm())
    (curve,) = degradation(encoder, read_pairs(args.data / "en/sts/stsb.dev.jsonl.gz"), [bellm()])
    if curve.turning is None:
        raise SystemExit(f"{args.model} has no turning point: its curve is undefined")
    layers = encoder.backbone.facts.layers
    kept = layers - curve.turning.last
    print(f"turning point: {kept} of {layers} layers", flush=True)
    done = args.out / "scores.jsonl"
    found = [json.loads(line) for line in done.read_text().splitlines()] if done.exists() else []
    scores = {(row["last"], row["seed"]): row["score"] for row in found}
    for seed in range(args.seeds):
        for last in sorted({0, *(b for b in (layers - kept + step for step in (-1, 0, 1)) if 0 < b <= layers)}):
            if (last, seed) not in scores:
                scores[last, seed] = trained_score(args, last, seed)
                with done.open("a") as file:
                    file.write(json.dumps({"last": last, "seed": seed, "score": scores[last, seed]}) + "\n")
                print(f"last {last}, seed {seed}: {scores[last, seed]:.2f}", flush=True)
    print(table(scores, layers, kept))


if __name__ == "__main__":
    main()
