"""What an evaluation says: lines without a terminal, a bar with one."""

import pytest

from afterword.cli.evaluation_progress import Shown
from afterword.errors import DataError
from afterword.tasks.results import Result
from afterword.tasks.runner import Failure
from afterword.tasks.task import Scores


def tell(shown: Shown) -> None:
    result = Result("STS12", "sts", "m", (), "k", "r", {0: Scores(0.5, {}, notes=("a note",))}, {})
    with shown:
        shown.task("STS12", 1, 2)
        shown.texts(10)
        shown.done(4)
        shown.scored(result, "echo")
        shown.failed(Failure("STS13", DataError("gone")))
        shown.failed(Failure("STS14", ZeroDivisionError("x"), "reba"))


LINES = [
    "1/2 STS12: echo: 50.00; a note",
    "STS13: error: gone",
    "STS14: reba: bug: ZeroDivisionError: x; afterword --debug shows where",
]


def test_lines(capsys: pytest.CaptureFixture[str]):
    tell(Shown(False))
    assert capsys.readouterr().err.splitlines() == LINES


def test_a_bar_goes_beside_them(capsys: pytest.CaptureFixture[str]):
    tell(Shown(True))
    told = capsys.readouterr().err
    assert all(line in " ".join(told.split()) for line in LINES[:2]) and "10" in told


@pytest.mark.parametrize("bar", [False, True])
def test_a_hostile_name_is_one_line_without_commands(capsys: pytest.CaptureFixture[str], bar: bool):
    name = "x\n\x1b[31m[bold]y"
    result = Result(name, "sts", "m", (), "k", "r", {0: Scores(0.5, {})}, {})
    with Shown(bar) as shown:
        shown.task(name, 1, 1)
        shown.texts(1)
        shown.scored(result, name)
    told = capsys.readouterr().err
    assert "1/1 x \\x1b[31m[bold]y: x \\x1b[31m[bold]y: 50.00" in told and "\x1b[31m[bold]" not in told
