"""A job of MiniLM is killed ten times at random moments, and ends with the bytes of an unbroken one.

python benchmarks/killed.py [ROWS [KILLS]]
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from jobs import wikipedia
from models import minilm_folder


def command(source: Path, out: Path) -> list[str]:
    return [sys.executable, "-m", "afterword", "embed", "-m", str(minilm_folder()), "-i", str(source), "-o", str(out)]


def done(out: Path) -> int:
    """The number of finished shards."""
    return len(list(out.with_name(f".{out.name}.job").glob("shards/*.parquet")))


def main(rows: int, kills: int) -> None:
    """Print the times of both runs, the moments of the kills, and whether the files are equal."""
    with TemporaryDirectory() as name:
        source, unbroken, killed = (Path(name) / file for file in ("in.txt", "unbroken.npy", "killed.npy"))
        source.write_text("".join(f"{text}\n" for text in wikipedia(rows)), "utf-8")
        began = time.perf_counter()
        subprocess.run(command(source, unbroken), check=True, capture_output=True)
        seconds = time.perf_counter() - began
        print(f"unbroken: {rows:,} rows in {seconds:.0f} s", flush=True)
        chance, spent = Random(0), 0.0
        for kill in range(kills):
            run = subprocess.Popen(command(source, killed), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            wait = chance.uniform(0, seconds / 4)
            time.sleep(wait)
            run.kill()
            run.wait()
            spent += wait
            print(f"kill {kill + 1} after {wait:.1f} s: {done(killed)} shards are finished", flush=True)
        began = time.perf_counter()
        subprocess.run(command(source, killed), check=not killed.exists(), capture_output=True)
        spent += time.perf_counter() - began
        print(f"killed {kills} times: {spent:.0f} s in all; the bytes are", end=" ")
        print("equal" if killed.read_bytes() == unbroken.read_bytes() else "DIFFERENT")


if __name__ == "__main__":
    main(*(int(word) for word in [*sys.argv[1:], *("20000", "10")[len(sys.argv) - 1 :]]))
