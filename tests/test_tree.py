"""The tree in CONTRIBUTING.md is that of the disk."""

import re
from pathlib import Path

from scripts.generate_tree import BLOCK, PAGE, SOURCE, renewed


def test_the_page_shows_the_tree_as_it_is():
    page = PAGE.read_text("utf-8")
    assert renewed(page) == page, "CONTRIBUTING.md is out of date: run scripts/generate_tree.py"
    block = BLOCK.search(page)
    assert block is not None
    shown = re.findall(r"^ +(\w+\.py) ", block[0], flags=re.M)
    there = [path.name for path in SOURCE.rglob("*.py") if path.name != "__init__.py" or path.parent == SOURCE]
    assert sorted(shown) == sorted(there)


def test_every_file_that_the_page_names_is_there():
    page = BLOCK.sub("", PAGE.read_text("utf-8"))
    named = re.findall(r"`([a-z_]+/[a-z_/]+(?:\.py)?)`", page)
    assert len(named) > 20
    for name in named:
        assert any((root / name).exists() for root in (SOURCE, PAGE.parent)), f"{name} does not exist"
    for page_name in re.findall(r"\]\(([\w./-]+)\)", page):
        assert Path(PAGE.parent / page_name).exists(), f"{page_name} does not exist"
