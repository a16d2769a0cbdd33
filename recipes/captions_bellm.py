"""Caption retrieval after BeLLM's training, with a bidirectional last layer and without: section 5.4 on a small model.

    python recipes/captions_bellm.py --data ../shared/data --out runs/captions

A pair of models per seed is trained with the same triplets, steps and settings; only the last layer's attention
differs. Both are scored on flickr30k's test captions. Finished results are kept in <out>/*.json and not run again.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
from pathlib import Path
from typing import Any

import torch
from bellm_mini import triplets

from afterword import Encoder, bellm
from afterword.tasks.captions import TASKS as CAPTIONS
from afterword.tasks.results import aligned
from afterword.tasks.task import Folder
from afterword.train import train

METRICS = {"strict_accuracy": "strict accuracy", "recall_at_5": "recall@5"}


def some_triplets(data: Path, out: Path, count: int) -> Path:
    """A file with so many of the triplets that `bellm_mini` may train on, evenly spaced."""
    some = out / "some.jsonl"
    if not some.exists():
        triplets(data, out / "all.jsonl")
        rows = (out / "all.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
        some.write_text("".join(rows[:: max(len(rows) // count, 1)]), encoding="utf-8")
    return some


def run(args: argparse.Namespace, rows: Path, last: int, seed: int) -> dict[str, Any]:
    """Train one model and score it."""
    path = args.out / f"last{last}-seed{seed}.json"
    if path.exists():
        kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return kept
    encoder, place = Encoder.load(args.model, "classical", dtype="float32"), path.with_suffix("")
    shutil.rmtree(place, ignore_errors=True)  # of a run that was ended
    encoder = train(
        encoder, rows, place, method=bellm(last=last, pool="mean"), seed=seed, steps=args.steps,
        batch_size=args.batch_size, max_length=64, learning_rate=1e-3, precision=args.precision,
    )  # fmt: skip
    captions = CAPTIONS[0].run(encoder, Folder(args.data)).metrics
    found = {"last": last, "seed": seed, **{name: 100 * captions[name] for name in METRICS}}
    path.write_text(json.dumps(found) + "\n", encoding="utf-8")
    shutil.rmtree(place)
    print(found, flush=True)
    return found


def table(found: list[dict[str, Any]]) -> str:
    """Mean and standard deviation over seeds, x 100."""
    cells = [["", *METRICS.values()]]
    for last in sorted({r["last"] for r in found}):
        of_last = [r for r in found if r["last"] == last]
        line = [f"last {last}" if last else "no bidirectional layer"]
        for name in METRICS:
            scores = [r[name] for r in of_last]
            spread = f" ± {statistics.stdev(scores):.2f}" if len(scores) > 1 else ""
            line.append(f"{statistics.mean(scores):.2f}{spread}")
        cells.append(line)
    return aligned(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder with nli/ and en/")
    parser.add_argument("--model", default="afterword-mini")
    parser.add_argument("--out", type=Path, default=Path("runs/captions"))
    parser.add_argument("--steps", type=int, default=50, help="of every training")
    parser.add_argument("--batch-size", type=int, default=64, help="in triplets")
    parser.add_argument("--seeds", type=int, default=2, help="so many pairs of trainings")
    parser.add_argument("--precision", default="float32", help="bfloat16 is faster with AMX or AVX512-BF16")
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.out.mkdir(parents=True, exist_ok=True)
    rows = some_triplets(args.data, args.out, (args.steps + 2) * args.batch_size)
    print(table([run(args, rows, last, seed) for seed in range(args.seeds) for last in (0, 1)]))


if __name__ == "__main__":
    main()
