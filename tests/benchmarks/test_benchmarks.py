"""Every benchmark runs in its quick form and writes what the table is made of; the figures are for `make bench`."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.scripts import script

from afterword import Encoder, reba

NAMES = (
    "reba_time", "reba_chunked", "reba_memory", "against_paper", "sentences_decoder", "minilm", "template",
    "ditto_time", "methods_cost", "many", "duplicates", "jobs", "training", "serve",
)  # fmt: skip
SHARED = {"minilm", "template", "ditto_time", "methods_cost", "training", "jobs", "serve"}
PROC = {"reba_memory", "against_paper", "training", "jobs"}
SOAK = {"reba_memory", "reba_chunked", "template", "methods_cost", "training", "jobs", "serve"}
ALONE = "reba_memory"
"""It runs as users run it: a pass in a process of its own, and each call of that in another. The others run here."""


def apart(*command: str) -> str:
    """What a script prints, in a process of its own."""
    environment = {k: v for k, v in os.environ.items() if k != "AFTERWORD_PACKED"}
    done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def here(*command: str, environment: Mapping[str, str] | None = None) -> str:
    """The same in this process."""
    with pytest.MonkeyPatch.context() as patch:
        if environment is not None:  # it is the whole of it
            patch.delenv("AFTERWORD_PACKED", raising=False)
        done = script(*command, environment=environment)
    assert done.code == 0, done.err
    return done.out


@pytest.fixture
def benchmarks(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder, from which its files import each other; what they start as a process of its own is run here."""
    folder, before = root / "benchmarks", set(sys.modules)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(
        import_module("measure"), "apart", lambda *command, **given: here(*command, **given).splitlines()[-1]
    )
    yield folder
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "").parent == folder:
            del sys.modules[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.soak] * (n in SOAK)) for n in NAMES])
def test_a_benchmark_runs_and_writes_its_figures(name, benchmarks, tmp_path, request):
    if name in SHARED:
        request.getfixturevalue("data")
    if name in PROC and sys.platform != "linux":
        pytest.skip("the highest resident memory is read from /proc")
    run = apart if name == ALONE else here
    printed = run(f"{benchmarks}/{name}.py", "--quick", "--plain", "--out", str(tmp_path))
    found = json.loads((tmp_path / f"{name}.json").read_text())
    assert found["quick"] and found["threads"] == 1
    assert all(found[key] for key in ("cpu", "torch", "transformers", "date"))
    rows = found["passes"]["plain"]
    assert rows and all(math.isfinite(row["value"]) and row["value"] >= 0 for row in rows)
    assert all(row["what"] in printed for row in rows)
    made = here(f"{benchmarks}/table.py", str(tmp_path))
    assert all(row["what"] in made for row in rows) and "QUICK" in made


def test_the_page_has_the_tables_of_all_processors(benchmarks, root):
    page = (root / "docs" / "benchmarks.md").read_text("utf-8")
    printed = here(f"{benchmarks}/table.py")
    assert f"<!-- figures -->\n{printed}<!-- end -->" in page, "run scripts/generate_benchmarks.py"
    assert printed.count("### ") == len(list((benchmarks / "results").iterdir())) >= 1
    assert import_module("measure").machine() == import_module("measure").options([]).out.name != ""


def test_what_the_paper_way_gives_is_what_we_give(benchmarks):
    """The yardstick is right: `literal.py` and the library agree."""
    models, literal = import_module("models"), import_module("literal")
    encoder, model = Encoder(models.gpt2_backbone(quick=True), reba()), models.gpt2("eager", quick=True)
    texts = models.random_texts([9, 1, 30])
    theirs = torch.stack([literal.reba_last(model, t) for t in texts]).numpy()
    assert np.abs(encoder.encode(texts) - theirs).max() < 2e-6 * np.abs(theirs).max()
