"""Every benchmark, one after the other, and the table of all of them.

python benchmarks/everything.py           (--quick: only to see that they run)
"""

import subprocess
import sys
import time
from pathlib import Path

from measure import options
from table import ORDER, tables


def run() -> None:
    chosen, start = options(), time.perf_counter()
    for name in ORDER:
        print(f"{name} ...", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, str(Path(__file__).with_name(f"{name}.py")), *sys.argv[1:]], check=True)
    print(tables(chosen.out))
    print(f"\n{time.perf_counter() - start:.0f} seconds in all", file=sys.stderr)


if __name__ == "__main__":
    run()
