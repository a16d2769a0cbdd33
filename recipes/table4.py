"""BeLLM's Table 4 on a small model: how many layers see both ways, how, with which pool, LoRA or every weight.

    python recipes/table4.py --data ../shared/data --out runs/table4 --page docs/train.md

Every row is trained anew, in a process of its own, with the same triplets, seeds and steps, and scored on the seven STS
sets. Rows differ in what Table 4 varies, and LoRA from every weight in the learning rate. What is finished lies in
<out>/*.json and is not run again. --page has the table written between its marks. Another decoder:

    python recipes/table4.py --data ../shared/data --out runs/table4-tok361 \\
        --model ../shared/data/models/babyllama-tok361 --max-length 160
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import shutil
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from bellm_mini import triplets
from results import replaced

from afterword import Encoder, bellm
from afterword.methods import Method
from afterword.tasks.pairs import SETS, sts
from afterword.tasks.results import aligned
from afterword.tasks.scores import published_mean
from afterword.tasks.task import Folder
from afterword.train import train

POOLS = ("last", "mean")
LORA_RATE, FULL_RATE = 1e-3, 3e-4


@dataclass(frozen=True)
class Row:
    """One row of the table.

    Args:
        name: what it is called.
        last: layers that see both ways; -1 = all.
        couple: as `bellm` takes it.
        settings: of training, where they differ.
        pools: that it is run with.
    """

    name: str
    last: int = 0
    couple: str = "replace"
    settings: dict[str, Any] = field(default_factory=dict)
    pools: tuple[str, ...] = POOLS

    def method(self, pool: str, layers: int) -> Method:
        """What is trained."""
        last = layers if self.last < 0 else self.last
        return bellm(last=last, pool=pool, couple=self.couple)  # type: ignore[arg-type]


FULL = {"rank": 0, "learning_rate": FULL_RATE}
ROWS = (
    Row("no bidirectional layer"),
    Row("last 1", 1),
    Row("last 2", 2),
    Row("last 4", 4),
    Row("all", -1),
    Row("last 2, sum (add)", 2, "add"),
    Row("last 2, sum (angle031)", 2, "angle031", pools=("mean",)),
    Row("1 added, a copy", 1, settings={"added": 1}),
    Row("1 added, fresh", 1, settings={"added": 1, "fresh": True}, pools=("mean",)),
    Row("no bidirectional layer, every weight", settings=FULL, pools=("mean",)),
    Row("last 2, every weight", 2, settings=FULL, pools=("mean",)),
)


@dataclass(frozen=True)
class Job:
    """One training: a row, a pool and a seed."""

    row: Row
    pool: str
    seed: int
    args: argparse.Namespace

    @property
    def path(self) -> Path:
        """Where its result lies."""
        letters = "".join(c if c.isalnum() else "-" for c in f"{self.row.name} {self.pool} {self.seed}")
        return Path(self.args.out) / f"{letters}.json"


def run(job: Job) -> None:
    """Train and score. Memory is what training takes at its peak above the model's own process."""
    args, place = job.args, job.path.with_suffix("")
    torch.set_num_threads(1)
    encoder = Encoder.load(args.model, "classical", dtype="float32")
    method = job.row.method(job.pool, encoder.backbone.facts.layers)
    settings = {"learning_rate": LORA_RATE, **job.row.settings}
    shutil.rmtree(place, ignore_errors=True)  # of a run that was ended
    before, start = _peak(), time.process_time()
    encoder = train(
        encoder, args.out / "some.jsonl", place, method=method, seed=job.seed, batch_size=args.batch_size,
        steps=args.steps, max_length=args.max_length, precision="bfloat16", **settings,
    )  # fmt: skip
    took, memory = time.process_time() - start, _peak() - before
    scores = {name: 100 * sts(name).run(encoder, Folder(args.data)).main for name in SETS}
    losses = [json.loads(line) for line in (place / "loss.jsonl").read_text().splitlines()]
    found = {
        "row": job.row.name, "pool": job.pool, "seed": job.seed, "scores": scores,
        "average": published_mean(list(scores.values())), "seconds": took, "memory": memory,
        "loss": [row["loss"] for row in losses if "loss" in row], "settings": {**asdict(job.row), "steps": args.steps},
    }  # fmt: skip
    job.path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    shutil.rmtree(place)
    print(f"{job.row.name}, {job.pool}, seed {job.seed}: {found['average']:.2f} in {took:.0f} s", flush=True)


def _peak() -> float:
    """MiB that this process has ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def table(found: list[dict[str, Any]]) -> str:
    """Mean and standard deviation over seeds, by row and pool."""
    cells = [["", *(f"{p}, STS avg." for p in POOLS), "CPU seconds", "memory, MiB"]]
    for row in ROWS:
        line = [row.name]
        for pool in POOLS:
            scores = [r["average"] for r in found if (r["row"], r["pool"]) == (row.name, pool)]
            spread = f" ± {statistics.stdev(scores):.2f}" if len(scores) > 1 else ""
            line.append(f"{statistics.mean(scores):.2f}{spread}" if scores else "-")
        mine = [r for r in found if r["row"] == row.name]
        line += [f"{statistics.median(r[k] for r in mine):.0f}" if mine else "-" for k in ("seconds", "memory")]
        cells.append(line)
    return aligned(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder with nli/ and en/")
    parser.add_argument("--model", default="afterword-mini")
    parser.add_argument("--out", type=Path, default=Path("runs/table4"))
    parser.add_argument("--page", type=Path, help="a Markdown page that the table is written into")
    parser.add_argument("--mark", default="table 4", help="of the table on the page")
    parser.add_argument("--steps", type=int, default=50, help="of every training")
    parser.add_argument("--batch-size", type=int, default=64, help="in triplets")
    parser.add_argument("--max-length", type=int, default=64, help="in tokens, for models with small vocabularies")
    parser.add_argument("--seeds", type=int, default=3, help="so many trainings of every row")
    parser.add_argument("--workers", type=int, default=1, help="trainings side by side, a thread each")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    some = args.out / "some.jsonl"
    if not some.exists():
        triplets(args.data, args.out / "all.jsonl")
        rows = (args.out / "all.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
        every = max(len(rows) // ((args.steps + 2) * args.batch_size), 1)  # a batch leaves out texts it holds already
        some.write_text("".join(rows[::every]), encoding="utf-8")
    jobs = [Job(row, pool, seed, args) for seed in range(args.seeds) for row in ROWS for pool in row.pools]
    left = [job for job in jobs if not job.path.exists()]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(args.workers, mp_context=spawn, max_tasks_per_child=1) as pool:
        list(pool.map(run, left))
    made = table([json.loads(job.path.read_text(encoding="utf-8")) for job in jobs])
    print(made)
    if args.page:
        args.page.write_text(replaced(args.page.read_text(encoding="utf-8"), args.mark, made), encoding="utf-8")


if __name__ == "__main__":
    main()
