"""The catalogue: each function gives the value that its docstring promises."""

import warnings

import pytest

from afterword import bellm, classical, ditto, echo, prompt, reba
from afterword.errors import MethodError
from afterword.methods import CATALOGUE, Method, parse_head
from afterword.methods.templates import TEMPLATES


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
    ("head", "expected"), [("1-10", (0, 9)), ("12-1", (11, 0)), ((0, 9), (0, 9)), ([2, 3], (2, 3))]
)
def test_heads_in_both_numberings(head, expected) -> None:
    assert parse_head(head) == expected


@pytest.mark.parametrize(
    "head", ["0-9", "1-0", "10", "a-b", "1--2", "-1-2", "²-1", (0,), (0, -1), (True, 1), ("1", "2")]
)
def test_what_is_no_head(head) -> None:
    with pytest.raises(MethodError, match="head="):
        parse_head(head)


def test_ditto_shows_both_numberings() -> None:
    assert "1-10" in str(ditto("1-10"))
    assert "layer 0, head 9" in str(ditto("1-10"))
    assert ditto("1-10") == ditto((0, 9))


def test_what_changes_nothing_warns() -> None:
    with pytest.warns(UserWarning, match="equals the causal model"):
        bellm(last=1, pool="last")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bellm()
        bellm(last=2, pool="last")
        bellm(last=1, pool="last", couple="add")


@pytest.mark.parametrize(
    "call",
    [
        lambda: classical("max"),  # type: ignore[arg-type]
        lambda: classical(states="layer:x"),
        lambda: echo(0),
        lambda: echo(variant="x"),  # type: ignore[arg-type]
        lambda: reba(pool="cls"),  # type: ignore[arg-type]
        lambda: reba(columns="x"),  # type: ignore[arg-type]
        lambda: reba(normalise="x"),  # type: ignore[arg-type]
        lambda: reba(attention="x"),  # type: ignore[arg-type]
        lambda: reba(triangle="x"),  # type: ignore[arg-type]
        lambda: ditto(pool="last"),  # type: ignore[arg-type]
        lambda: prompt("no place for it"),
        lambda: prompt("eol", "mask"),
        lambda: bellm(last=-1),
        lambda: bellm(last=1, layers=[3]),
        lambda: bellm(couple="x"),  # type: ignore[arg-type]
    ],
)
def test_an_option_that_makes_no_sense(call) -> None:
    with pytest.raises(MethodError) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_every_method_names_its_source_and_options() -> None:
    for name, function in CATALOGUE.items():
        assert isinstance(function(), Method)
        assert function().name
        assert "Source: " in (function.__doc__ or ""), name


def test_templates_have_a_place_for_the_text() -> None:
    assert all("{text}" in t for t in TEMPLATES.values())
    assert prompt("promptbert").weigh.pool == "mask"
    assert prompt("eol").weigh.pool == "last"


@pytest.mark.parametrize(
    ("make", "options", "name"),
    [
        (reba, {"columns": "content"}, "columns"),
        (reba, {"normalise": "token"}, "normalise"),
        (reba, {"triangle": "full"}, "triangle"),
        (reba, {"pool_special_tokens": True}, "pool_special_tokens"),
        (echo, {"tail": True}, "tail"),
        (echo, {"pool_special_tokens": True}, "pool_special_tokens"),
        (echo, {"variant": "table1", "pool": "last"}, "pool has no effect"),
        (echo, {"variant": "table1", "tail": True}, "tail"),
        (echo, {"copies": 1, "separator": " "}, "separator"),
        (echo, {"template": "rewrite", "separator": " "}, "separator"),
        (reba, {"variant": "paper", "chunk": 4, "truncate": "after"}, "truncate"),
    ],
)
def test_an_option_that_nothing_reads_is_refused_by_its_name(make, options: dict, name: str) -> None:
    with pytest.raises(MethodError, match=name):
        make(**{"variant": "released", **options})
