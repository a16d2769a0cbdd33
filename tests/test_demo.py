"""`make demo` tells its story in under 40 lines, and what it says of its figures is so."""

import importlib.util
import re
import shlex
from pathlib import Path
from types import ModuleType

import pytest

from afterword.cli import main


@pytest.fixture(scope="module")
def demo(root: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("demo", root / "examples" / "demo.py")
    assert spec is not None and spec.loader is not None
    spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
    return module


@pytest.mark.slow
def test_the_demo(demo: ModuleType, root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(demo, "ROUNDS", 1)
    race = demo.race
    monkeypatch.setattr(demo, "race", lambda encoder, texts: race(encoder, texts[:40]))
    demo.main()
    lines = capsys.readouterr().out.splitlines()
    end = lines.index("Try these:")
    assert len(lines) < 40 and max(map(len, lines[:end])) <= 100

    for query in demo.QUERIES:
        first = lines[lines.index(f"   {query}") + 1]
        assert not words(query) & words(first), f"{query!r} and {first!r}"

    order = [line.rsplit("|  ", 1)[1] for line in lines if re.match(r"   \| *o *\|  ", line)]
    sides = ["money" if demo.BANKS.index(text) % 2 else "river" for text in order]
    assert sides in (["river"] * 4 + ["money"] * 4, ["money"] * 4 + ["river"] * 4)

    found = next(re.search(r"largest difference is (\S+)\), (\S+) times", line) for line in lines if "times as" in line)
    rates = [float(line.split()[-3]) for line in lines if line.endswith("a second")]
    assert float(found[1]) < 1e-6 and float(found[2]) == pytest.approx(rates[1] / rates[0], abs=0.06)

    similar, tune, methods = (shlex.split(line)[1:] for line in lines[end + 1 :])
    assert tune[0] == "tune" and (root / tune[tune.index("--dev") + 1]).is_file()
    monkeypatch.chdir(root)
    assert main(similar) == main(methods) == 0


def words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]+", text.lower()))
