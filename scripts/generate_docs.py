"""Write the generated pages: `make docs`. With --check, fail where one is not what it would be.

docs/models.md is written from docs/models.json; measuring those figures again is `make models`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> int:
    """Run every generator; the arguments are handed on."""
    generators = sorted(p for p in HERE.glob("generate_*.py") if p.name != Path(__file__).name)
    own = {"generate_models_table.py": ["--page"]}
    commands = [[sys.executable, str(p), *own.get(p.name, []), *sys.argv[1:]] for p in generators]
    return max(subprocess.run(command).returncode for command in commands)


if __name__ == "__main__":
    sys.exit(main())
