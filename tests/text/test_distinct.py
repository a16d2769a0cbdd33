"""Equal texts stand for each other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterword.errors import InputError
from afterword.text.distinct import Distinct

TEXTS = st.lists(st.sampled_from(["a", "b", "A", (97,), (97, 98)]), max_size=12)


@given(TEXTS, st.booleans(), st.data())
def test_every_row_is_kept_with_its_text(texts, conditioned, data) -> None:
    conditions = [data.draw(st.sampled_from("xy")) for _ in texts] if conditioned else None
    found = Distinct.from_texts([t if isinstance(t, str) else list(t) for t in texts], conditions)
    assert sorted(found.where(range(len(found.texts)))) == list(range(len(texts))) and found.total == len(texts)
    pairs = list(zip(texts, conditions or [None] * len(texts), strict=True))
    for i, rows in enumerate(found.rows):
        condition = None if found.conditions is None else found.conditions[i]
        text = found.texts[i] if isinstance(found.texts[i], str) else tuple(found.texts[i])
        assert {pairs[row] for row in rows} == {(text, condition)} and rows == sorted(rows)
    assert len(found.texts) == len(set(pairs)) and [rows[0] for rows in found.rows] == sorted(r[0] for r in found.rows)


def test_a_condition_each() -> None:
    with pytest.raises(InputError, match="1 conditions for 3 texts"):
        Distinct.from_texts(["a", "a", "a"], ["x"])
