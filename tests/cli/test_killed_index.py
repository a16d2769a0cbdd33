"""A command that writes an index, killed anywhere, goes on when it is given again, and gives the unbroken index."""

import json
import re
import shutil
import signal
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.killed import forked_without_lancedb
from tests.tiny import tiny

from afterword.search.index import Index, exists

ROWS = 'n,text\n1,The bank.\nO\'Brien,银行\n3," "\n4,river\n5,sea\n'
LATER = 'n,text\n1,The bank.\n3,A river.\n4,"the river\'s bank"\n5," "\n6,money\n'
STEP = 6  # of the places where `make test` kills


class Build:
    """A command line that builds an index in a folder of its own."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.folder, self.index = folder, folder / "index"
        (folder / "in.csv").write_text(ROWS)
        self.words: list[object] = [
            "index", self.index, "-m", model, "--method", "classical", "-i", folder / "in.csv", "--id", "n",
            "--window", 2,
        ]  # fmt: skip

    def forked(self, at: int | None = None) -> tuple[int, list[str]]:
        return forked_without_lancedb(self.words, self.folder / "log", at, tables=True)

    @property
    def made(self) -> tuple[list[dict], list[int], list[str]]:
        """The rows with their vectors, the lines of rejected rows, and the names of what is in the folder."""
        rows = Index.open(self.index).table.to_arrow().sort_by("id").to_pylist()
        lines = [json.loads(line)["line"] for line in (self.index / "rejects.jsonl").read_text().splitlines()]
        return rows, lines, sorted(path.name for path in self.index.glob("[!.]*"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny("gpt2", tmp_path_factory.mktemp("model") / "gpt2")


@pytest.fixture
def whole(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Build:
    return Build(tmp_path_factory.mktemp("whole"), model)


@pytest.mark.parametrize("every", [STEP, pytest.param(1, marks=pytest.mark.soak)])
def test_a_killed_first_build_goes_on(run: Run, model: Path, whole: Build, tmp_path: Path, every: int):
    """It appears at once, with its text index; rows that were merged are not embedded again."""
    code, calls = whole.forked()
    merges = [i for i, call in enumerate(calls) if call.startswith("_do_merge")]
    published = next(i for i, call in enumerate(calls) if re.fullmatch("replace .*/first_build.lance", call))
    assert code == 1 and len(merges) == 2
    for at in sorted({*range(1, len(calls), every), merges[1], published, published + 1}):
        (tmp_path / str(at)).mkdir()
        build = Build(tmp_path / str(at), model)
        assert build.forked(at)[0] == -signal.SIGKILL
        found = run("search", build.index, "bank")
        assert found.code == (0 if at > published else 2) and exists(build.index) == (at > published), calls[at]
        ended = run(*build.words)
        assert ended.code == 1 and (merges[0] < at <= published) == ("done before" in ended.err), calls[at]
        assert build.made == whole.made, calls[at]


CHANGES: dict[str, tuple[object, ...]] = {
    "update": (),
    "prune": ("--prune",),
}


class Change(Build):
    """A command line that changes a copy of an index."""

    def __init__(self, folder: Path, base: Build, how: str) -> None:
        super().__init__(folder, Path(str(base.words[3])))
        (folder / "in.csv").write_text(LATER)
        self.words += CHANGES[how]
        shutil.copytree(base.index, self.index)

    @property
    def rows(self) -> tuple[list[dict], list[str]]:
        """The rows with their vectors, and the names of what is in the folder."""
        rows = Index.open(self.index).table.to_arrow().sort_by("id").to_pylist()
        return rows, sorted(path.name for path in self.index.glob("[!.]*"))


@pytest.mark.parametrize("how", ["prune", *(pytest.param(how, marks=pytest.mark.soak) for how in CHANGES)])
def test_a_killed_change_goes_on(
    run: Run, request: pytest.FixtureRequest, model: Path, whole: Build, tmp_path: Path, how: str
):
    assert run(*whole.words).code == 1
    unbroken = Change(tmp_path, whole, how)
    code, calls = unbroken.forked()
    assert sum(call.endswith("/table") for call in calls) > 1
    soaking = request.node.get_closest_marker("soak") is not None
    chosen = range(len(calls)) if soaking else [i for i, call in enumerate(calls) if call.startswith("delete")]
    assert chosen
    for at in chosen:
        (tmp_path / str(at)).mkdir()
        change = Change(tmp_path / str(at), whole, how)
        assert change.forked(at)[0] == -signal.SIGKILL
        assert run("search", change.index, "bank").code == 0, calls[at]
        assert run(*change.words).code == code, calls[at]
        assert change.rows == unbroken.rows, calls[at]
