"""What is positive and negative for Equation 6 in C-STS's rows and in labelled texts."""

import warnings

import pytest

from afterword.errors import BadRow, DataError
from afterword.train.rows import TrainingRows, contrasted

PAIRS = TrainingRows.read([{"anchor": "a", "positive": "b"}])


def csts(*rows: tuple[str, str, str, float]) -> TrainingRows:
    return TrainingRows.read(
        [dict(zip(("sentence1", "sentence2", "condition", "label"), r, strict=True)) for r in rows]
    )


def labelled(**classes: str) -> TrainingRows:
    return TrainingRows.read([{"text": text, "label": name} for name, texts in classes.items() for text in texts])


def test_two_sentences_that_are_similar_under_one_condition_alone():
    rows = csts(("a", "b", "size", 5), ("c", "d", "age", 1), ("a", "b", "animal", 2), ("c", "d", "name", 4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is left out
        made = contrasted(rows)
    assert made.columns == {
        "anchor": [["a", "size"], ["c", "name"]],
        "positive": [["b", "size"], ["d", "name"]],
        "negative": [["b", "animal"], ["d", "age"]],
    }
    assert made.conditioned and not made.scored and contrasted(PAIRS) is PAIRS
    several = csts(("a", "b", "x", 5), ("a", "b", "y", 4), ("a", "b", "z", 1))
    assert contrasted(several).columns["negative"] == [["b", "z"], ["b", "z"]]


def test_rows_that_say_nothing_are_counted():
    rows = csts(("a", "b", "size", 5), ("a", "b", "animal", 2), ("a", "b", "age", 3), ("c", "d", "x", 5))
    with pytest.warns(UserWarning, match="row: 2 of 4 rows are left out: .* above 3 .* below 3"):
        assert len(contrasted(rows)) == 1
    for alike in (csts(("a", "b", "x", 5), ("a", "b", "y", 4)), csts(("a", "b", "x", 1), ("b", "a", "y", 5))):
        with pytest.raises(DataError, match="row has no two sentences with a label above 3 under"):
            contrasted(alike)


def test_texts_of_a_class():
    made = contrasted(labelled(x="abca", y="de"))
    assert made.columns == {"anchor": [*"abcde"], "positive": [*"bcaed"], "label": [0, 0, 0, 1, 1]}
    numbered = TrainingRows.read([{"text": t, "label": int(t > "b")} for t in "abcd"])
    assert contrasted(numbered).columns["label"] == [0, 0, 1, 1]
    with pytest.raises(DataError, match="row holds one label, 'x': texts of another one are the negatives"):
        contrasted(labelled(x="ab"))
    with pytest.raises(
        DataError, match="row holds one text with the label 'y': a positive is another text of its class"
    ):
        contrasted(labelled(x="ab", y="cc"))


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"text": "a", "label": " "}, "row:1: 'label' is empty"),
        ({"text": "a", "label": 0.5}, "row:1: 'label' "),
        ({"text": "a", "label": True}, "row:1: 'label' "),
        ({"text": "a", "label": "x", "split": "test"}, "row:1: 'split' is 'test': train on the rows of another split"),
    ],
)
def test_a_bad_labelled_row(row: dict[str, object], said: str):
    with pytest.raises(BadRow, match=said):
        TrainingRows.read([row])
