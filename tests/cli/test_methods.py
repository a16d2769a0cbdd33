"""``afterword methods``: told from the catalogue, so that it cannot differ from it."""

import inspect
import json

import pytest
from tests.cli.conftest import Run

from afterword import parse_method
from afterword.cli.methods import entry
from afterword.methods import CATALOGUE
from afterword.methods.templates import TEMPLATES


def test_the_page_tells_of_every_method_option_and_template(run: Run):
    ended = run("methods")
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    for name, method in CATALOGUE.items():
        assert name in lines
        for option in inspect.signature(method).parameters:
            assert any(line.startswith(f"    {option}=") for line in lines), option
    assert all(text in ended.out for text in TEMPLATES.values())
    assert max(map(len, lines)) <= 120
    only = run("methods", "ditto").out
    assert only.splitlines()[0] == "ditto" and "reba" not in only.splitlines()


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_option_is_told_and_its_default_is_the_default(name: str):
    found = entry(CATALOGUE[name])
    assert found.summary.endswith(".") and found.source
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
    assert (pool["default"], pool["choices"]) == ("mean", ["mean", "last", "cls"])
