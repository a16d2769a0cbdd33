"""Write docs/first.md and its pictures from examples/first.ipynb: python scripts/generate_notebook_page.py [--check].

The outputs are those stored in the notebook; ``python scripts/generate_notebook_page.py --run`` runs it anew first.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
STYLE = (ROOT / "src" / "afterword" / "explain" / "style.css").read_text("utf-8")
NOTEBOOK, DOCS = ROOT / "examples" / "first.ipynb", ROOT / "docs"
HEAD = "<!-- Written by scripts/generate_notebook_page.py from examples/first.ipynb. -->\n\n"
PICTURE = (
    '<picture><source media="(prefers-color-scheme: dark)" srcset="pictures/{0}-dark.svg">'
    '<img alt="{1}" src="pictures/{0}.svg"></picture>\n'
)


def run() -> None:
    """Run the notebook in its folder, and store the outputs in it."""
    import nbformat
    from nbclient import NotebookClient

    os.environ["PYTHONWARNINGS"] = "ignore::Warning:tqdm.auto"  # that there is no bar for notebooks
    notebook = nbformat.read(NOTEBOOK, 4)
    NotebookClient(notebook, timeout=3600, resources={"metadata": {"path": NOTEBOOK.parent}}).execute()
    for cell in notebook.cells:
        cell.metadata.clear()
    notebook.metadata = {"language_info": {"name": "python"}}
    nbformat.write(notebook, NOTEBOOK)


def written() -> dict[Path, str]:
    """The page and its pictures, by file."""
    files, parts = {}, [HEAD]
    for number, cell in enumerate(json.loads(NOTEBOOK.read_text("utf-8"))["cells"]):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source.replace("](../docs/", "](") + "\n\n")
            continue
        parts.append(f"```py\n{source}\n```\n\n")
        for text, pictures in map(shown, cell["outputs"], [f"first-{number}"] * len(cell["outputs"])):
            parts.append(text + "\n")
            files |= pictures
    return {DOCS / "first.md": "".join(parts).rstrip() + "\n", **files}


def shown(output: dict[str, Any], name: str) -> tuple[str, dict[Path, str]]:
    """An output in Markdown, and the files of its picture, light and dark."""
    parts = output.get("data", {})
    html, text = "".join(parts.get("text/html", "")), "".join(output.get("text", parts.get("text/plain", "")))
    if svg := re.search(r'<svg class="aw wide ".*?</svg>', html, re.S):
        pictures = {DOCS / "pictures" / f"{name}{end}.svg": styled(svg[0], look)
                    for end, look in (("", "light"), ("-dark", "dark"))}  # fmt: skip
        label = re.search(r'aria-label="([^"]*)"', svg[0])
        notes = "\n\n".join(re.findall(r"<p>(.*?)</p>", html))
        return PICTURE.format(name, label[1] if label else "") + (f"\n{notes}\n" if notes else ""), pictures
    if "<table>" in html:
        return "\n".join(table(html)) + "\n", {}
    if "image/png" in parts:
        return "The map is in the [notebook](../examples/first.ipynb).\n", {}
    return f"```text\n{text.rstrip()}\n```\n", {}


def styled(svg: str, look: str) -> str:
    """A picture as a file, in the colours of light or dark pages."""
    return svg.replace("aw wide ", f"aw wide {look}").replace(">", f"><style>{STYLE}</style>", 1) + "\n"


def table(html: str) -> Iterator[str]:
    """The rows of a table in Markdown."""
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", html)]
    rows = rows if rows[0][0] == "" else [[""] * len(rows[0]), *rows]
    for i, row in enumerate(rows):
        yield f"| {' | '.join(row)} |"
        if i == 0:
            yield "|---" * len(row) + "|"


if __name__ == "__main__":
    if "--run" in sys.argv:
        run()
    files = written()
    if "--check" in sys.argv:
        stale = [path.name for path, text in files.items() if not path.exists() or path.read_text("utf-8") != text]
        sys.exit(f"{', '.join(stale)}: out of date: run scripts/generate_notebook_page.py" if stale else 0)
    for path, text in files.items():
        path.write_text(text, "utf-8")
