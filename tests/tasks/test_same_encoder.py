"""Which results are of one encoder: identities, fingerprints of old results, texts that were fitted on."""

from typing import Any

from afterword.tasks.results import Result
from afterword.tasks.same_encoder import by_encoder, differences, encoder_of, told_apart


def of(**about: Any) -> Result:
    return Result("t", "g", "m", (), "k", "r", {}, about)


def test_the_texts_that_are_fitted_on_count():
    assert encoder_of({"identity": "a", "fit": None}) != encoder_of({"identity": "a", "fit": "target"})
    groups = by_encoder([of(identity="a", fit="x1"), of(identity="a", fit="x2"), of(identity="a", fit="x1")])
    assert [len(g) for g in groups] == [2, 1]
    assert told_apart(groups)[0] == ["encoder a, fit x1", "encoder a, fit x2"]


def test_what_differs_is_named():
    a = {"identity": "a", "settings": {"max_length": 6, "prompt": None}, "fit": "target"}
    b = {"identity": "b", "settings": {"max_length": 6, "prompt": "query: "}, "fit": "0123456789"}
    assert differences(a, b) == {"prompt": ("None", "query: "), "fit": ("target", "01234567")}
    assert differences(a, {"identity": "b"}) == {} and differences(a, {"settings": "hostile"}) == {}
    assert told_apart([[of(**a)], [of(**b)]]) == (
        ["prompt None, fit target", "prompt query: , fit 01234567"],
        "prompt and fit",
    )
    assert told_apart([[of(**a)]]) == ([""], "")
