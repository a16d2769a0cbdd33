"""`make demo` tells its story in under 60 lines, and what it says of its figures is true."""

import importlib.util
import re
import shlex
from pathlib import Path
from types import ModuleType

import pytest

from afterword.backbone.named_models import NAMED, installed
from afterword.cli import main

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not installed("smollm2"), reason=f"{NAMED['smollm2'].packages[0]} is not installed"),
]


@pytest.fixture(scope="module")
def demo(root: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("demo", root / "examples" / "demo.py")
    assert spec is not None and spec.loader is not None
    spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
    return module


def test_the_demo(demo: ModuleType, root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    demo.main()
    lines = capsys.readouterr().out.splitlines()
    end = lines.index("Try these:")
    assert len(lines) < 60 and max(map(len, lines[:end])) <= 110

    for query in demo.QUERIES:
        first = lines[lines.index(f"   {query}") + 1]
        assert not words(query) & words(first), f"{query!r} and {first!r}"

    cosines = [float(match[1]) for line in lines if (match := re.match(r"   \w+ +#+ +(\d\.\d\d)$", line))]
    assert cosines == pytest.approx([1.00, 0.87, 0.82], abs=0.011)

    answers = lines[lines.index("   By its answer to a prompt:") :]
    first = {query: answers[answers.index(f"   {query}") + 1] for query in demo.HARDER}
    assert "gluten" in first["food allergy"] and "louder" in first["too loud to sleep"]

    similar, tune, methods = (shlex.split(line)[1:] for line in lines[end + 1 :])
    assert tune[0] == "tune" and (root / tune[tune.index("--dev") + 1]).is_file()
    monkeypatch.chdir(root)
    assert main(similar) == main(methods) == 0


def words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]+", text.lower()))
