from dataclasses import dataclass

import pytest

from afterword.errors import MethodError
from afterword.spelling import build, did_you_mean, read_spelling


@dataclass(frozen=True)
class Cut:
    width: int = 2
    side: str | None = None
    exact: bool = True


def test_a_spelling_is_a_name_and_values_of_several_types():
    assert read_spelling("cut") == ("cut", {})
    name, options = read_spelling('cut:width=3,side="a, b",exact=false')
    assert (name, options) == ("cut", {"width": 3, "side": "a, b", "exact": False})
    assert build(Cut, options) == Cut(3, "a, b", False)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"depth": 1}, "cut has no option 'depth': it has width, side, exact"),
        ({"widht": 1}, r"no option 'widht' \(did you mean 'width'\?\): it has"),
        ({"width": "2 exact=1"}, "give a whole number; separate options by commas"),
        ({"width": "3"}, "cut: width='3' does not fit: give a whole number"),
        ({"exact": 1}, "cut: exact=1 does not fit"),
    ],
)
def test_an_option_that_is_not_there_or_of_another_type_is_named(options: dict, words: str) -> None:
    with pytest.raises(MethodError, match=words):
        build(Cut, options, "cut")


def test_a_name_that_is_nearly_known_is_suggested():
    assert did_you_mean("REBA", ["echo", "reba"]) == " (did you mean 'reba'?)"
    assert did_you_mean("sst", ["STS12", "sts", "MR"]) == " (did you mean 'sts'?)"
    assert did_you_mean("afterword-mni", ["afterword-mini"]) and did_you_mean("", ["a"]) == ""
    assert did_you_mean("whatever", []) == ""
