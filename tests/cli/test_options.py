"""docs/cli.md tells what ``--help`` tells."""

import re
from importlib.metadata import version
from pathlib import Path

import pytest
from scripts.generate_cli_help import BLOCK, renewed
from tests.cli.conftest import Run

VERBS = (
    "embed", "words", "similar", "duplicates", "cluster", "methods", "inspect", "train", "evaluate", "compare", "tune",
    "index", "search", "job", "job status", "job verify", "job join",
    "analyse", "analyse turning-point", "analyse dependency", "analyse words", "analyse impact",
    "analyse heads", "analyse isotropy", "analyse lengths", "analyse attention", "analyse gains",
)  # fmt: skip


@pytest.fixture(scope="module")
def page(root: Path) -> str:
    return (root / "docs" / "cli.md").read_text("utf-8")


@pytest.fixture
def pinned_typer(root: Path) -> None:
    """The page shows the help as the pinned typer lays it out; another lays it out differently."""
    pinned = re.search(r"^typer==(.+)$", (root / "constraints.txt").read_text(), flags=re.M)
    if pinned is None or version("typer") != pinned[1]:
        pytest.skip(f"typer {version('typer')} lays help out otherwise than the pinned one")


def test_every_verb_is_in_the_docs(page: str, run: Run):
    shown = {block[1] for block in BLOCK.findall(page)}
    assert shown == {"afterword --help", *(f"afterword {verb} --help" for verb in VERBS)}
    told = re.findall(r"^  ([a-z-]+)  ", run("--help").out.partition("Commands:")[2], flags=re.M)
    assert set(told) == {verb for verb in VERBS if " " not in verb}


@pytest.mark.usefixtures("pinned_typer")
def test_the_docs_are_the_help(page: str):
    assert renewed(page) == page, "docs/cli.md is out of date: run scripts/generate_cli_help.py"
