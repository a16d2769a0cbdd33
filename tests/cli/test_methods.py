"""``afterword methods``: told from the catalogue, so that it cannot differ from it."""

import inspect
import json

import pytest
from tests.cli.conftest import Run

from afterword import parse_method
from afterword.cli.methods import entry
from afterword.methods import CATALOGUE
from afterword.methods.templates import TEMPLATES


@pytest.mark.parametrize("width", [40, 72, 80, 200])
def test_a_table_of_all_methods(run: Run, width: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", str(width))
    ended = run("methods")
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert max(map(len, lines)) <= width
    words = set(ended.out.split())
    for name in CATALOGUE:
        found = entry(CATALOGUE[name])
        assert any(line.split()[:1] == [name] for line in lines)
        assert set(found.cost.rstrip(".").split()) <= words, "a word is broken"
        assert set(found.summary.split(". ")[0].rstrip(".").split()) <= words, "a word is broken"
    assert all(set(text.split()) <= words for text in TEMPLATES.values())


def test_a_method_in_full(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "80")
    for name, method in CATALOGUE.items():
        lines = run("methods", name).out.splitlines()
        assert lines[0] == name and max(map(len, lines)) <= 80
        for option in inspect.signature(method).parameters:
            assert any(line.startswith(f"    {option}=") for line in lines), option
    only = run("methods", "ditto", "echo").out.splitlines()
    assert [line for line in only if line and not line.startswith(" ")] == ["ditto", "echo", "templates"]
    assert run("methods", "dito").err.startswith("error: no method 'dito' (did you mean 'ditto'?): there are classical")


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_option_is_told_and_its_default_is_the_default(name: str):
    found = entry(CATALOGUE[name])
    assert found.summary.endswith(".") and found.source and found.cost
    assert [o["name"] for o in found.options] == list(inspect.signature(CATALOGUE[name]).parameters)
    assert all(o["what"] for o in found.options), found
    if name == "bellm":  # layers=none and last=none together are the default already
        found.options[:] = [o for o in found.options if o["name"] not in ("last", "layers")]
    spelled = ",".join(f"{o['name']}={o['default']}" for o in found.options)
    assert parse_method(f"{name}:{spelled}") == CATALOGUE[name]()
    needs = {("prompt", "mask"): ",template=promptbert", ("bellm", "last"): ",last=2"}
    for option in found.options:
        for choice in option["choices"]:
            parse_method(f"{name}:{option['name']}={choice}{needs.get((name, choice), '')}")


def test_json(run: Run):
    found = json.loads(run("methods", "--json").out)
    assert [m["name"] for m in found["methods"]] == list(CATALOGUE)
    assert found["templates"] == TEMPLATES
    pool = next(o for o in found["methods"][0]["options"] if o["name"] == "pool")
    assert (pool["default"], pool["choices"]) == ("mean", ["mean", "last", "cls", "weighted"])
