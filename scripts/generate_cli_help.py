"""Write the help texts in docs/cli.md anew from the command line itself.

python scripts/generate_cli_help.py [--check]
"""

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "cli.md"
BLOCK = re.compile(r"(```console\n\$ (afterword(?: [a-z-]+)* --help)\n).*?(```)", flags=re.S)


def help_of(command: str) -> str:
    """What the command prints, 80 columns wide."""
    words = [sys.executable, "-m", *command.split()]
    env = {**os.environ, "COLUMNS": "80", "PYTHONUTF8": "1"}
    done = subprocess.run(words, env=env, stdout=subprocess.PIPE, text=True, encoding="utf-8", check=True)
    return "".join(line.rstrip() + "\n" for line in done.stdout.splitlines())


def renewed(page: str) -> str:
    """The page with every help text as it is now."""
    return BLOCK.sub(lambda found: found[1] + help_of(found[2]) + found[3], page)


if __name__ == "__main__":
    now, told = renewed(PAGE.read_text("utf-8")), PAGE.read_text("utf-8")
    if "--check" in sys.argv:
        sys.exit(f"{PAGE.name} is out of date: run scripts/generate_cli_help.py" if now != told else 0)
    PAGE.write_text(now, "utf-8")
