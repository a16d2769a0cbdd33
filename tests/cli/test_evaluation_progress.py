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
