"""Write the verbs in docs/cli.md from the command line itself: python scripts/generate_cli_help.py [--check]."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import typer

from afterword.cli import app

PAGE = Path(__file__).parent.parent / "docs" / "cli.md"
BLOCK = re.compile(r"(<!-- verbs -->\n).*?(<!-- end -->)", flags=re.S)


def verbs() -> Iterator[tuple[str, str]]:
    """Each verb and the first sentence of its help; those of a group follow it."""
    context = typer.Context(typer.main.get_command(app))
    for name in context.command.list_commands(context):
        command = context.command.get_command(context, name)
        yield name, _sentence(command.help)
        for inner, one in getattr(command, "commands", {}).items():
            yield f"{name} {inner}", _sentence(one.help)


def _sentence(text: str) -> str:
    return re.split(r"(?<=\.)\s", " ".join(text.split()), maxsplit=1)[0]


def renewed(page: str) -> str:
    """The page with the verbs as they are now."""
    table = "| verb | what it does |\n|---|---|\n" + "".join(f"| `{name}` | {text} |\n" for name, text in verbs())
    return BLOCK.sub(lambda match: match[1] + table + match[2], page)


if __name__ == "__main__":
    before = PAGE.read_text("utf-8")
    now = renewed(before)
    if "--check" in sys.argv:
        sys.exit(f"{PAGE.name} is out of date: run scripts/generate_cli_help.py" if now != before else 0)
    PAGE.write_text(now, "utf-8")
