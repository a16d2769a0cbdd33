"""BeLLM's training, with LoRA, on the triplets of SNLI and CAD: of afterword-mini, or of its distilled sister.

    python recipes/bellm_mini.py --shared ../shared/data --out runs/bellm
    python recipes/bellm_mini.py --shared ../shared/data --base runs/distil/model --out runs/distil-bellm \\
        --epochs 1 --learning-rate 6e-4

The same command again goes on from the last checkpoint. What is trained on is written to <out>/triplets.jsonl: the
rows of which no text stands in an evaluation set; <out>/encoder is the result, LoRA's matrices added to its weights,
<out>/half the same in float16: what the package ships.

The shipped models were trained in bfloat16. On a processor without AMX or AVX512-BF16 that takes ten times as long as
float32: give --precision float32 there.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

import torch
from mini.corpus import normalise
from mini.sentences import free_triplets, measured_texts

from afterword import Encoder, Method, bellm, parse_method
from afterword.train import train


def triplets(shared: Path, path: Path) -> Counter[str]:
    """Write the triplets that may be trained on; how many were dropped, by the evaluation set that has one's text."""
    known, dropped = measured_texts(shared), Counter[str]()
    with path.open("w", encoding="utf-8") as file:
        for row in free_triplets(shared):
            found = next((known[key] for key in map(normalise, row.values()) if key in known), None)
            if found is None:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
            else:
                dropped[found] += 1
    return dropped


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, required=True, help="the folder with nli/, en/ and zh/")
    parser.add_argument("--base", default="afterword-mini")
    parser.add_argument("--out", type=Path, default=Path("runs/bellm"))
    parser.add_argument("--method", type=parse_method, help="otherwise the base's own, or bellm's default")
    parser.add_argument("--epochs", type=float, default=4)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--precision", default="bfloat16", help="float32 is faster without AMX or AVX512-BF16")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--threads", type=int)
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    args.out.mkdir(parents=True, exist_ok=True)
    rows = args.out / "triplets.jsonl"
    if not rows.exists():
        dropped = triplets(args.shared, rows)
        print(f"{dropped.total()} triplets hold an evaluation text and were left out: {dict(dropped)}")
    method: Method | None = args.method or (bellm() if args.base == "afterword-mini" else None)
    train(
        args.base, rows, args.out / "encoder", method=method, dev=args.shared / "en" / "sts" / "stsb.dev.jsonl.gz",
        rank=args.rank, alpha=args.rank, learning_rate=args.learning_rate, epochs=args.epochs,
        batch_size=args.batch_size, precision=args.precision, max_length=96, seed=args.seed, resume=True, device="cpu",
    )  # fmt: skip
    Encoder.load(args.out / "encoder", dtype="float16").save(args.out / "half")


if __name__ == "__main__":
    main()
