"""Write the tree of src/afterword in CONTRIBUTING.md anew: a line per file, from the first line of its docstring.

python scripts/generate_tree.py [--check]
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "CONTRIBUTING.md"
SOURCE = ROOT / "src" / "afterword"
BLOCK = re.compile(r"(```text\nsrc/afterword\n).*?(```)", flags=re.S)
CORE = ("text", "backbone", "methods", "post", "encode", "files")
WINGS = ("jobs", "groups", "index", "tasks", "tune", "analysis", "plots", "train", "adapters", "cli")
"""Folders in the order in which they are best read."""


def first_line(path: Path) -> str:
    """What a module says of itself."""
    said = ast.get_docstring(ast.parse(path.read_text("utf-8")))
    if not said:
        raise SystemExit(f"{path.relative_to(ROOT)} has no docstring: say in its first line what it holds")
    return said.splitlines()[0]


def tree() -> Iterator[str]:
    """The files at the root, then each folder with its files."""
    for path in sorted(SOURCE.glob("*.py")):
        yield f"  {path.name:<18} {first_line(path)}"
    folders = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    if odd := folders ^ {*CORE, *WINGS}:
        raise SystemExit(f"{', '.join(sorted(odd))}: name the folder in scripts/generate_tree.py, or take it out there")
    for folder in (*CORE, *WINGS):
        yield f"  {folder + '/':<18} {first_line(SOURCE / folder / '__init__.py')}"
        for path in sorted((SOURCE / folder).glob("*.py")):
            if path.name != "__init__.py":
                yield f"    {path.name:<32} {first_line(path)}"


def renewed(page: str) -> str:
    """The page with the tree as it is now."""
    if not BLOCK.search(page):
        raise SystemExit(f"{PAGE.name} has no block that begins with ```text and src/afterword")
    return BLOCK.sub(lambda block: block[1] + "".join(line + "\n" for line in tree()) + block[2], page)


if __name__ == "__main__":
    before = PAGE.read_text("utf-8")
    now = renewed(before)
    if "--check" in sys.argv:
        sys.exit(f"{PAGE.name} is out of date: run scripts/generate_tree.py" if now != before else 0)
    PAGE.write_text(now, "utf-8")
