"""The evaluation of MiniLM on the seven STS sets against embedding their unique sentences, nothing else.

    python benchmarks/evaluation.py

The evaluation is `afterword evaluate` without the printing: data read and hashed, scores
by subset and by four similarities, results and their items written. The model is loaded before, for both. Fixed costs
(reading the weights' hash for the key of a result) count.
"""

import gzip
import os
import shutil
import tempfile
from itertools import islice
from pathlib import Path

from measure import Row, in_turns, main, medians, ratio
from models import ROOT, minilm_folder

from afterword import Encoder
from afterword.tasks.pairs import SETS, sts
from afterword.tasks.rows import Folder
from afterword.tasks.runner import Evaluation, TaskRun, candidates

QUICK = "STSB"


def beginnings(data: Folder, root: Path) -> Folder:
    """The first 50 rows of a set."""
    file = sts(QUICK).file
    with gzip.open(data.find(file), "rt", encoding="utf-8") as f:
        rows = list(islice(f, 50))
    path = root / f"{file}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(rows), encoding="utf-8")
    return Folder(root)


def measure(quick: bool) -> list[Row]:
    data = Folder(Path(os.environ.get("AFTERWORD_SHARED") or ROOT.parent / "shared") / "data")
    out = Path(tempfile.mkdtemp())
    if quick:
        data = beginnings(data, out / "data")
    jobs = [TaskRun(sts(name), data) for name in ((QUICK,) if quick else SETS)]
    texts = list(dict.fromkeys(text for job in jobs for text in job.task.load(data).texts()))
    encoder = Encoder.load(minilm_folder(), device="cpu")

    def evaluate() -> None:
        results = out / "results"
        shutil.rmtree(results, ignore_errors=True)
        results.mkdir()
        evaluation = Evaluation(candidates(encoder, {"own": encoder.method}, {"none": ()}), results)
        evaluation.run(jobs)
        assert len(evaluation.results) == len(jobs), evaluation.failures

    seconds = in_turns({"evaluation": evaluate, "embedding": lambda: encoder.encode(texts)}, 1 if quick else 3)
    shutil.rmtree(out)
    return [
        Row(f"MiniLM on {len(jobs)} STS sets: evaluation / embedding {len(texts)} unique sentences, time",
            ratio(seconds["evaluation"], seconds["embedding"]), "<= 1.1", parts=medians(seconds)),
    ]  # fmt: skip


if __name__ == "__main__":
    main("evaluation", measure)
