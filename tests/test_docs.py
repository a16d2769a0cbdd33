"""The pages hold together: every relative link leads somewhere, every Python example parses."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("dev/*.md"), *ROOT.glob("src/**/*.md")])


def title(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def test_the_pages_are_there():
    assert {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "dev/LOG.md"} <= {title(page) for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_links_lead_somewhere(page: Path):
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text("utf-8"), flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"[a-z]+:|#", target):
            assert (page.parent / target.split("#")[0]).exists(), f"{title(page)} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_python_examples_parse(page: Path):
    for code in re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), flags=re.S):
        if ">>>" not in code:
            ast.parse(code)
