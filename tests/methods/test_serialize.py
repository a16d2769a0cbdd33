"""Methods as text."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from afterword import Method, bellm, classical, ditto, echo, prompt, reba
from afterword.errors import MethodError
from afterword.methods.serialize import from_json, parse_method, to_json
from afterword.methods.weights import WEIGHTINGS, Plain

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
    classical("weighted"),
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
        ("reba:copies=2,copies=3", "twice"),
        ("@nowhere.json", "cannot be read"),
        ('prompt:template="{text}', "name=value|double quotes"),
        ("ecco", r"no method 'ecco' \(did you mean 'echo'\?\): there are classical, "),
        ("cot", r"no method 'cot' \(did you mean 'prompt:template=cot'\?\): there are classical"),
        ("prompt:template=foo", "no template 'foo': there are eol, promptbert, .*; or write one, with {text}"),
    ],
)
def test_a_mistake_is_named(text: str, words: str) -> None:
    with pytest.raises(MethodError, match=words) as caught:
        parse_method(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "read",
    [
        [],
        {"colour": 1},
        {"weigh": {"layer": "x", "kind": "self_attention"}},
    ],
)
def test_json_of_another_kind(read) -> None:
    with pytest.raises(MethodError):
        from_json(read)


@dataclass(frozen=True)
class Last(Plain):
    """Named by files as any other is."""

    kind: ClassVar[str] = "test_last"
    many: tuple[int, ...] = ()
    table: str = "kept"  # a table that was fitted is left out, a field of this name is not


def test_a_weighting_of_ones_own_is_written_and_read() -> None:
    method = Method(weigh=Last("last", many=(1, 2), table="mine"), name="mine")
    written = json.loads(json.dumps(to_json(method)))
    assert written["weigh"]["kind"] == "test_last" and written["weigh"]["class"] == f"{__name__}.Last"
    assert from_json(written) == method and from_json(written).name == "mine"


def test_a_kind_is_a_name_of_one_class() -> None:
    for kind in ("plain", "test_last"):
        with pytest.raises(MethodError, match=f"kind='{kind}' of Other"):
            type("Other", (Plain,), {"kind": kind})
    for kind in ("", "two words", 3):
        with pytest.raises(MethodError, match="give a name of letters, digits and _"):
            type("Other", (Plain,), {"kind": kind})
    again = type("Last", (Plain,), {"kind": "test_last", "__module__": __name__})  # as a cell that is run again does
    assert WEIGHTINGS["test_last"] is again
    WEIGHTINGS["test_last"] = Last


@pytest.mark.parametrize(
    ("where", "words"),
    [
        (None, "choose one of plain, table1"),
        ("my.rooms.Own", r"the class Own of my.rooms, .*\(import my.rooms\).*--method @my/rooms.py:NAME"),
        ("__main__.Own", "the class Own of a script or a notebook: define that class, or import it, and load again"),
    ],
)
def test_an_unknown_kind_says_what_to_import(where: str | None, words: str) -> None:
    with pytest.raises(MethodError, match=f"weigh kind 'own': .*{words}"):
        from_json({"weigh": {"kind": "own"} | ({} if where is None else {"class": where})})
