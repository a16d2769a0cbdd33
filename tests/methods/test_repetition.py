"""Repetition: options that another one decides."""

import pytest

from afterword import echo, reba
from afterword.errors import MethodError


@pytest.mark.parametrize(
    ("make", "options", "name"),
    [
        (reba, {"columns": "content"}, "columns"),
        (reba, {"pool_special_tokens": True}, "pool_special_tokens"),
        (echo, {"tail": True}, "tail"),
        (echo, {"variant": "table1", "pool": "last"}, "pool has no effect"),
        (echo, {"copies": 1, "separator": " "}, "separator"),
        (reba, {"variant": "paper", "chunk": 4, "truncate": "after"}, "truncate"),
    ],
)
def test_an_option_that_nothing_reads_is_refused_by_its_name(make, options: dict, name: str) -> None:
    with pytest.raises(MethodError, match=name):
        make(**{"variant": "released", **options})
