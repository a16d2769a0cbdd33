"""CONTRIBUTING.md names folders and files that exist, and every folder of the source."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "CONTRIBUTING.md"
SOURCE = ROOT / "src" / "afterword"


def test_the_page_names_every_folder_of_the_source():
    named = re.findall(r"^  (\w+)/ ", PAGE.read_text("utf-8"), flags=re.M)
    assert sorted(named) == sorted(path.parent.name for path in SOURCE.glob("*/__init__.py"))


def test_every_file_that_the_page_names_is_there():
    page = PAGE.read_text("utf-8")
    named = re.findall(r"`([a-z_]+/[a-z_/]+(?:\.py)?)`", page)
    assert len(named) > 10
    for name in named:
        assert any((root / name).exists() for root in (SOURCE, PAGE.parent)), f"{name} does not exist"
    for page_name in re.findall(r"\]\(([\w./-]+)\)", page):
        assert Path(PAGE.parent / page_name).exists(), f"{page_name} does not exist"
