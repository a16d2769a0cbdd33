"""The catalogue: each function gives the value that its docstring promises."""

import pytest

from afterword import bellm, classical, ditto, echo, prompt, reba
from afterword.errors import MethodError
from afterword.methods import CATALOGUE, Ensemble, Method


def test_the_four_answers() -> None:
    """The table at the head of the design: layout, states, weights, sight."""
    methods = [classical(), echo(), reba(), ditto(), prompt(), bellm()]
    assert [m.layout.total_copies for m in methods] == [1, 2, 2, 1, 1, 1]
    assert [m.layout.template is not None for m in methods] == [False, False, False, False, True, True]
    assert [m.states.kind for m in methods] == ["last", "last", "last", "first_last", "last", "last"]
    assert [type(m.weigh).__name__ for m in methods] == [
        "Plain",
        "Plain",
        "Backward",
        "SelfAttention",
        "Plain",
        "Plain",
    ]
    assert [m.weigh.copy for m in methods] == ["all", "last", "first", "all", "all", "all"]
    assert [m.weigh.pool_special_tokens for m in methods] == [True, False, False, True, False, False]
    assert [bool(m.sight) for m in methods] == [False] * 5 + [True]


def test_a_method_is_a_value() -> None:
    assert reba(copies=3) == reba(3) != reba(2)
    assert len({reba(), reba(), echo()}) == 2
    with pytest.raises(AttributeError):
        reba().states = classical().states  # type: ignore[misc]


@pytest.mark.parametrize(
    "call",
    [
        lambda: classical("max"),  # type: ignore[arg-type]
        lambda: classical(states="layer:x"),
        lambda: echo(0),
        lambda: echo(variant="x"),  # type: ignore[arg-type]
        lambda: reba(pool="cls"),  # type: ignore[arg-type]
        lambda: prompt("no place for it"),
        lambda: prompt("eol", "mask"),
        lambda: bellm(last=-1),
        lambda: bellm(last=1, layers=[3]),
    ],
)
def test_an_option_that_makes_no_sense(call) -> None:
    with pytest.raises(MethodError) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_every_method_names_its_source_and_options() -> None:
    for name, function in CATALOGUE.items():
        assert isinstance(function(), Method | Ensemble)
        assert function().name
        assert "Source: " in (function.__doc__ or ""), name
