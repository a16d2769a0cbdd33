"""Methods as text."""

import json
from pathlib import Path

import pytest

from afterword import bellm, classical, ditto, echo, prompt, reba
from afterword.errors import MethodError, UnknownMethod
from afterword.methods.serialize import from_json, make, parse_method, to_json

METHODS = [
    classical("cls", "first_last"),
    echo(3, template=None, variant="table1"),
    echo(template="rewrite"),
    reba(4, "mean", normalise="token", chunk=64),
    reba(variant="released"),
    ditto("2-3", "static"),
    prompt("In a word, {text} is"),
    bellm(layers=[3, 1], couple="replace", template=None),
    bellm("auto", states="normed:3"),
]


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_json_keeps_everything(method) -> None:
    again = from_json(json.loads(json.dumps(to_json(method))))
    assert again == method
    assert again.name == method.name


@pytest.mark.parametrize(
    ("text", "method"),
    [
        ("reba", reba()),
        ("reba:copies=3,pool=mean", reba(3, "mean")),
        (" reba : copies = 3 ", reba(3)),
        ("ditto:head=1-10", ditto("1-10")),
        ("classical:add_special_tokens=false", classical(add_special_tokens=False)),
        ("reba:normalise=none", reba()),
        ("bellm:last=auto,pool=last", bellm("auto", "last")),
        ('prompt:template="one, two: {text}",pool=mean', prompt("one, two: {text}", "mean")),
        ('echo:separator=" "', echo(separator=" ")),
        ("bellm:layers=3+1", bellm(layers=[1, 3])),
        ("bellm:layers=2", bellm(layers=[2])),
    ],
)
def test_a_method_as_a_person_writes_it(text: str, method) -> None:
    assert parse_method(text) == method


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_text(json.dumps({"method": "prompt", "template": "a, b: {text}"}))
    assert parse_method(f"@{path}") == prompt("a, b: {text}")
    path.write_text(json.dumps(to_json(reba(3))))
    assert parse_method(f"@{path}") == reba(3)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rebba", "classical, echo, reba, ditto, prompt, bellm"),
        ("reba:copy=2", "it has copies"),
        ("reba:copies=two", "a whole number"),
        ("reba:pool=max", "last or mean"),
        ("reba:copies", "name=value"),
        ("reba:copies=2,copies=3", "twice"),
        ("reba:copies=2,", "comma"),
        ("ditto:head=0-9", "from 1"),
        ("bellm:layers=a", "3"),
        ("@nowhere.json", "cannot be read"),
        ('prompt:template="{text}', "name=value|double quotes"),
    ],
)
def test_a_mistake_is_named(text: str, words: str) -> None:
    with pytest.raises(MethodError, match=words) as caught:
        parse_method(text)
    assert "\n" not in str(caught.value)


def test_unknown_methods_are_their_own_error() -> None:
    with pytest.raises(UnknownMethod):
        make("word2vec", {})


@pytest.mark.parametrize(
    "read",
    [
        [],
        {"method": []},
        {"weigh": {"kind": []}},
        {"layout": 3},
        {"colour": 1},
        {"sight": {"layers": None}},
        {"weigh": {"layer": "x", "kind": "self_attention"}},
    ],
)
def test_json_of_another_kind(read) -> None:
    with pytest.raises(MethodError):
        from_json(read)


@pytest.mark.parametrize("text", ["", "not json", "[]", "3"])
def test_a_file_of_another_kind(tmp_path: Path, text: str) -> None:
    path = tmp_path / "m.json"
    path.write_text(text)
    with pytest.raises(MethodError, match=r"m\.json"):
        parse_method(f"@{path}")
