"""Write the generated pages anew: `make docs`. With --check, fail where one is not what it would be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> int:
    """Run every generator; the arguments are handed on."""
    generators = sorted(p for p in HERE.glob("generate_*.py") if p.name != Path(__file__).name)
    return max(subprocess.run([sys.executable, str(p), *sys.argv[1:]]).returncode for p in generators)


if __name__ == "__main__":
    sys.exit(main())
