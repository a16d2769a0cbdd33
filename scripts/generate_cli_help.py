"""Write the help texts in docs/cli.md anew from the command line itself.

python scripts/generate_cli_help.py [--check]
"""

import io
import os
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path

from afterword.cli import main

PAGE = Path(__file__).parent.parent / "docs" / "cli.md"
BLOCK = re.compile(r"(```console\n\$ (afterword(?: [a-z-]+)* --help)\n).*?(```)", flags=re.S)


def help_of(command: str) -> str:
    """What the command prints, 80 columns wide."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "80"
    try:
        with redirect_stdout(io.StringIO()) as printed:
            code = main(command.split()[1:])
    finally:
        os.environ.pop("COLUMNS") if before is None else os.environ.update(COLUMNS=before)
    if code:
        raise SystemExit(f"{command} ended with {code}")
    return "".join(line.rstrip() + "\n" for line in printed.getvalue().splitlines())


def renewed(page: str) -> str:
    """The page with every help text as it is now."""
    return BLOCK.sub(lambda found: found[1] + help_of(found[2]) + found[3], page)


if __name__ == "__main__":
    now, told = renewed(PAGE.read_text("utf-8")), PAGE.read_text("utf-8")
    if "--check" in sys.argv:
        sys.exit(f"{PAGE.name} is out of date: run scripts/generate_cli_help.py" if now != told else 0)
    PAGE.write_text(now, "utf-8")
