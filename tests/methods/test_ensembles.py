"""Ensembles: what they are made of, and how they are written."""

import json
from pathlib import Path

import pytest

from afterword import classical, echo, ensemble, parse_method, prompt, reba
from afterword.errors import MethodError
from afterword.methods import ENSEMBLES, Ensemble
from afterword.methods.ensembles import METAEOL
from afterword.methods.serialize import from_json, to_json


def test_the_named_ones() -> None:
    ck, metaeol = ensemble("ck"), ensemble("metaeol")
    assert list(ENSEMBLES) == ["ck", "metaeol", "moee"]
    assert ensemble() == ck and (ck.join, ck.weights, ck.normalise) == ("mean", None, False)
    assert ["step by step" in m.layout.template for m in ck.methods] == [True, False]
    assert [m.weigh.pool for m in metaeol.methods] == ["last"] * 8
    moee = ensemble("moee", weights=[1, 0.5])
    assert [m.states.kind for m in moee.methods] == ["last", "router"] and moee.normalise
    assert moee.name == "ensemble moee concat normalised weights 1+0.5"
    assert len(set(METAEOL)) == 8 and all(t.endswith('in one word:"') and t.count('"{text}"') == 1 for t in METAEOL)


def test_options() -> None:
    made = ensemble([echo(), reba()], "concat", [1, 0.5], normalise=True, states="layer:1")
    assert made == Ensemble(
        (echo(states="layer:1"), reba(states="layer:1")), join="concat", weights=(1.0, 0.5), normalise=True
    )
    assert made.name == "ensemble of echo-2 mean, reba-2 last concat normalised weights 1+0.5 layer:1"
    assert made.factors() == [1, 0.5**0.5] and ensemble([echo(), reba()], weights=[1, 3]).factors() == [0.25, 0.75]


@pytest.mark.parametrize(
    ("text", "method"),
    [
        ("ensemble", ensemble("ck")),
        ("ensemble:ck", ensemble("ck")),
        ("ensemble : metaeol , join = concat", ensemble("metaeol", "concat")),
        ("ensemble:echo", ensemble([echo()])),
        (
            'ensemble:methods="echo;reba:pool=mean",weights=1+0.5',
            ensemble([echo(), reba(pool="mean")], weights=[1, 0.5]),
        ),
        ("ensemble:methods=echo;classical,weights=2+3", ensemble([echo(), classical()], weights=[2, 3])),
        (
            r'ensemble:methods="prompt:template=\"a; b, {text}\",pool=mean;echo",normalise=true',
            ensemble([prompt("a; b, {text}", "mean"), echo()], normalise=True),
        ),
    ],
)
def test_an_ensemble_as_text_and_json(text: str, method: Ensemble) -> None:
    parsed = parse_method(text)
    again = from_json(json.loads(json.dumps(to_json(method))))
    assert parsed == method == again and parsed.name == method.name == again.name


def test_files(tmp_path: Path) -> None:
    path, wanted = tmp_path / "e.json", ensemble([echo(), reba(3)], "concat", [1, 2])
    for data in (
        to_json(wanted),
        {"methods": ["echo", {"method": "reba", "copies": 3}], "join": "concat", "weights": [1, 2]},
        {"method": "ensemble", "methods": ["echo", "reba:copies=3"], "join": "concat", "weights": [1, 2]},
        {"method": "ensemble", "methods": "echo;reba:copies=3", "join": "concat", "weights": "1+2"},
    ):
        path.write_text(json.dumps(data))
        assert parse_method(f"@{path}") == wanted
    (tmp_path / "m.json").write_text('{"method": "reba", "copies": 3}')
    (tmp_path / "m.py").write_text("from afterword import echo, ensemble\nboth = ensemble([echo()])\none = echo()\n")
    spelling = f'ensemble:methods="@{tmp_path}/m.py:one;@{tmp_path}/m.json",join=concat,weights=1+2'
    assert parse_method(spelling) == wanted
    assert parse_method(f"@{tmp_path}/m.py:both") == ensemble([echo()])


def test_a_file_runs_no_other_file(tmp_path: Path) -> None:
    """A folder from the Hub must not run code by naming a file: only what the user types may."""
    (tmp_path / "evil.py").write_text("raise SystemExit('run')\n")
    for data in ({"methods": [f"@{tmp_path}/evil.py:x"]}, {"method": "ensemble", "methods": f"@{tmp_path}/evil.py:x"}):
        with pytest.raises(MethodError, match=r"evil\.py"):
            from_json(data)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('ensemble:methods="echo;rebba"', "rebba"),
        ('ensemble:methods="echo;ensemble:ck"', "ensemble ck"),
        ("ensemble:ck,weights=1", "1 weights for 2 methods"),
        ("ensemble:ck,weights=1+-2", "-2.0"),
    ],
)
def test_a_mistake_is_named(text: str, named: str) -> None:
    with pytest.raises(MethodError, match=named) as caught:
        parse_method(text)
    assert "\n" not in str(caught.value)
