"""Write the tables of docs/benchmarks.md from benchmarks/results.

python scripts/generate_benchmarks.py [--check]
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
BLOCK = re.compile(r"(<!-- figures -->\n).*?(<!-- end -->)", flags=re.S)


def renewed(page: str) -> str:
    """The page with the tables as they are now."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from table import every

    return BLOCK.sub(lambda found: f"{found[1]}{every()}\n{found[2]}", page)


if __name__ == "__main__":
    before = PAGE.read_text("utf-8")
    now = renewed(before)
    if "--check" in sys.argv:
        sys.exit(f"{PAGE.name} is out of date: run scripts/generate_benchmarks.py" if now != before else 0)
    PAGE.write_text(now, "utf-8")
