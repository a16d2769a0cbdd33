"""docs/cli.md lists the verbs that the command line has."""

from pathlib import Path

from scripts.generate_cli_help import renewed


def test_the_docs_list_every_verb(root: Path):
    page = (root / "docs" / "cli.md").read_text("utf-8")
    assert page.count("\n| `") > 20
    assert renewed(page) == page, "docs/cli.md is out of date: run scripts/generate_cli_help.py"
