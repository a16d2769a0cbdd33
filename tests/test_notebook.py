"""The first notebook runs as it stands, with the outputs that are stored in it, and docs/first.md shows the same."""

from pathlib import Path

import pytest
from scripts.generate_notebook_page import NOTEBOOK, written

from afterword.backbone.named_models import NAMED, installed


def kinds(cells: list) -> list[list[str]]:
    """What kinds of output each cell has; what libraries write to stderr differs from machine to machine."""
    outputs = [[o for o in c.get("outputs", []) if o.get("name") != "stderr"] for c in cells]
    return [sorted({kind for o in of_cell for kind in o.get("data", {"stream": 0})}) for of_cell in outputs]


@pytest.mark.real
@pytest.mark.skipif(not installed("smollm2"), reason=f"{NAMED['smollm2'].packages[0]} is not installed")
def test_the_notebook_runs_and_shows_what_is_stored(root: Path) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    stored, ran = (nbformat.read(NOTEBOOK, 4) for _ in range(2))
    nbclient.NotebookClient(ran, timeout=3600, resources={"metadata": {"path": NOTEBOOK.parent}}).execute()
    assert kinds(ran.cells) == kinds(stored.cells)
    images = [o for c in stored.cells for o in c.get("outputs", []) if "image/png" in o.get("data", {})]
    assert len(images) == 1
    stream = next(o["text"] for c in ran.cells for o in c.get("outputs", []) if o.get("name") == "stdout")
    assert stream.splitlines()[0].endswith("I was charged twice for the same purchase.")


def test_the_page_is_that_of_the_notebook() -> None:
    for path, text in written().items():
        assert path.read_text("utf-8") == text, f"{path.name} is out of date: run scripts/generate_notebook_page.py"
