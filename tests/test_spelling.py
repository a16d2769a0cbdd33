from dataclasses import dataclass

import pytest

from afterword import parse_method
from afterword.errors import MethodError
from afterword.post import parse_post
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
    ("short", "full"),
    [
        ("prompt:eol", "prompt:template=eol"),
        ("prompt:eol,states=last", "prompt:template=eol,states=last"),
        ("bellm:2", "bellm:last=2"),
        ("reba:3", "reba:copies=3"),
        ("reba:mean", "reba:pool=mean"),
        ("ditto:1-10", "ditto:head=1-10"),
        ("sif:0.01", "sif:a=0.01"),
        ("ensemble:ck", "ensemble:methods=ck"),
    ],
)
def test_one_value_without_a_key_is_that_of_the_first_option_that_takes_it(short: str, full: str):
    assert parse_method(short) == parse_method(full)


def test_steps_take_one_value_too():
    assert parse_post("whiten:64+remove_top:2") == parse_post("whiten:dimensions=64+remove_top:k=2")


@pytest.mark.parametrize(
    ("options", "value", "fix"),
    [
        ({"depth": 1}, "'depth'", "width, side, exact"),
        ({"widht": 1}, "'widht'", "'width'"),
        ({"width": "2 exact=1"}, "'2 exact=1'", "commas"),
        ({"width": "3"}, "width='3'", "a whole number"),
        ({"exact": 1}, "exact=1", "true or false"),
    ],
)
def test_a_wrong_option_is_named_with_the_fix(options: dict, value: str, fix: str):
    with pytest.raises(MethodError) as e:
        build(Cut, options, "cut")
    assert value in str(e.value) and fix in str(e.value)


@pytest.mark.parametrize("text", ["cut:3", "reba:copies=2,mean", 'reba:pool="a'])
def test_what_cannot_be_read_is_refused(text: str):
    with pytest.raises(MethodError):
        parse_method(text)


def test_a_name_that_is_nearly_known_is_suggested():
    assert did_you_mean("REBA", ["echo", "reba"]) == " (did you mean 'reba'?)"
    assert did_you_mean("sst", ["STS12", "sts", "MR"]) == " (did you mean 'sts'?)"
    assert did_you_mean("whatever", []) == ""
