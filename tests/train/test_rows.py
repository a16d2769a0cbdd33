"""Rows: every format is read, errors name the line, and each loss gets the rows that it learns from."""

import math
import warnings
from pathlib import Path

import pytest
import torch
from tests.train.conftest import DEV, ROWS

from afterword import Encoder, classical
from afterword.errors import AfterwordError, BadRow, DataError, MissingDataset
from afterword.st import sentence_transformer
from afterword.train.losses import RankingByClass, check_rows, make_loss
from afterword.train.rows import TrainingRows, contrasted
from afterword.train.settings import Settings

TRIPLETS = [{"anchor": "a", "positive": "b", "negative": "c"}, {"anchor": "d,e", "positive": 'f"g', "negative": "ü"}]
SCORED = [{"sentence1": "an anchor", "sentence2": "b", "score": 0.5}, {"sentence1": "c", "sentence2": "d", "score": 5}]
CSTS = [{"sentence1": "a", "sentence2": "b", "condition": "c", "label": 3}]


def test_columns_by_form():
    assert TrainingRows.read(TRIPLETS).columns == {
        "anchor": ["a", "d,e"],
        "positive": ["b", 'f"g'],
        "negative": ["c", "ü"],
    }
    assert TrainingRows.read([{"anchor": "a", "positive": "b"}]).form == "pairs"
    scored = TrainingRows.read(SCORED)
    assert scored.scored and scored.columns["score"] == [0.5, 5.0] and not scored.conditioned
    assert TrainingRows.read(CSTS).columns == {"sentence1": [["a", "c"]], "sentence2": [["b", "c"]], "score": [3.0]}
    assert TrainingRows.read(TRIPLETS).digest != TrainingRows.read(TRIPLETS[::-1]).digest


GOOD = '{"anchor": "a", "positive": "b", "negative": "c"}\n'


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (GOOD + '{"anchor": "a", "positive": "b"}\n', 2, "has no field 'negative'"),
        (GOOD + '{"anchor": "a", "positive": " ", "negative": "c"}\n', 2, "'positive' is empty"),
        (GOOD + '{"anchor": 5, "positive": "b", "negative": "c"}\n', 2, "'anchor'"),
        ('{"text": "a", "label": 0.5}\n', 1, "'label'"),
        (GOOD + "{broken\n", 2, "is not JSON"),
        ('{"anchor": "a", "positive": "b"}\n' + GOOD, 2, "'negative'"),
        ('{"sentence1": "a", "sentence2": "b", "score": "high"}\n', 1, "'score' is 'high'"),
        ('{"sentence1": "a", "sentence2": "b", "score": NaN}\n', 1, "'score' is nan"),
        ('{"sentence1": "a", "sentence2": "b", "condition": "c", "label": -1}\n', 1, "'label' is -1"),
    ],
)
def test_a_bad_row_is_named_by_its_line(text: str, line: int, said: str, tmp_path: Path):
    path = tmp_path / "a.jsonl"
    path.write_text(text)
    with pytest.raises(BadRow, match=said) as found:
        TrainingRows.read(path)
    assert str(found.value).startswith(f"{path}:{line}: ") and "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("name", "content", "error", "value"),
    [
        ("a.txt", b"a", DataError, r"a\.txt"),
        ("a.jsonl", b"", DataError, r"a\.jsonl"),
        ("a.csv", b"question,answer\na,b\n", DataError, "question, answer"),
        ("a.csv", b'anchor,positive\n"two\nlines",b\nc,\n', BadRow, r"a\.csv:4: 'positive'"),
    ],
)
def test_an_unusable_file_is_named(name: str, content: bytes, error: type[AfterwordError], value: str, tmp_path: Path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(error, match=value):
        TrainingRows.read(tmp_path / name)
    with pytest.raises(MissingDataset, match="none"):
        TrainingRows.read(tmp_path / "none.jsonl")


def csts(*rows: tuple[str, str, str, float]) -> TrainingRows:
    return TrainingRows.read(
        [dict(zip(("sentence1", "sentence2", "condition", "label"), r, strict=True)) for r in rows]
    )


def labelled(**classes: str) -> TrainingRows:
    return TrainingRows.read([{"text": text, "label": name} for name, texts in classes.items() for text in texts])


def test_triplets_of_a_similar_and_a_dissimilar_condition():
    rows = csts(("a", "b", "size", 5), ("c", "d", "age", 1), ("a", "b", "animal", 2), ("c", "d", "name", 4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # every row is used
        made = contrasted(rows)
    pairs = TrainingRows.read(ROWS)
    assert made.columns == {
        "anchor": [["a", "size"], ["c", "name"]],
        "positive": [["b", "size"], ["d", "name"]],
        "negative": [["b", "animal"], ["d", "age"]],
    }
    assert made.conditioned and not made.scored and contrasted(pairs) is pairs
    several = csts(("a", "b", "x", 5), ("a", "b", "y", 4), ("a", "b", "z", 1))
    assert contrasted(several).columns["negative"] == [["b", "z"], ["b", "z"]]


def test_rows_that_are_not_used_are_counted():
    rows = csts(("a", "b", "size", 5), ("a", "b", "animal", 2), ("a", "b", "age", 3), ("c", "d", "x", 5))
    with pytest.warns(UserWarning, match="row: 2 of 4 rows"):
        assert len(contrasted(rows)) == 1
    for alike in (csts(("a", "b", "x", 5), ("a", "b", "y", 4)), csts(("a", "b", "x", 1), ("b", "a", "y", 5))):
        with pytest.raises(DataError, match="row has no sentence pair"):
            contrasted(alike)


def test_texts_of_a_class():
    made = contrasted(labelled(x="abca", y="de"))
    assert made.columns == {"anchor": [*"abcde"], "positive": [*"bcaed"], "label": [0, 0, 0, 1, 1]}
    numbered = TrainingRows.read([{"text": t, "label": int(t > "b")} for t in "abcd"])
    assert contrasted(numbered).columns["label"] == [0, 0, 1, 1]
    with pytest.raises(DataError, match="the label 'x'"):
        contrasted(labelled(x="ab"))
    with pytest.raises(DataError, match="the label 'y'"):
        contrasted(labelled(x="ab", y="cc"))


@pytest.mark.parametrize(
    ("loss", "takes"),
    [
        ("ranking", {"pairs", "triplets", "classes"}),
        ("cached_ranking", {"pairs", "triplets"}),
        ("angle", {"triplets", "binary", "scored"}),
        ("cosent", {"binary", "scored"}),
        ("released", {"triplets", "binary"}),
    ],
)
def test_which_rows_a_loss_takes(loss: str, takes: set[str]):
    forms = {
        "pairs": TrainingRows.read(ROWS),
        "triplets": TrainingRows.read([{**row, "negative": "n"} for row in ROWS]),
        "binary": TrainingRows.read(DEV),
        "scored": TrainingRows.read([{**row, "score": i} for i, row in enumerate(DEV)]),
        "classes": contrasted(labelled(x="abca", y="de")),
    }
    for name, rows in forms.items():
        if name in takes:
            check_rows(Settings(loss=loss), rows)
        else:
            with pytest.raises(DataError, match=f"row (contains|has) .*{loss}"):
                check_rows(Settings(loss=loss), rows)


def test_negatives_are_of_different_classes(models):
    model = sentence_transformer(Encoder.load(models / "llama", classical()))
    loss = make_loss(model, Settings(temperature=0.1), classes=True)
    assert isinstance(loss, RankingByClass)
    anchor, positive = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    classes, terms = [0, 1, 0, 2, 1], []
    for i, a in enumerate(anchor):
        cosines = {j: torch.cosine_similarity(a, p, 0).item() / 0.1 for j, p in enumerate(positive)}
        below = [cosines[j] for j in cosines if j == i or classes[j] != classes[i]]
        terms.append(math.log(sum(map(math.exp, below))) - cosines[i])
    found = loss.compute_loss_from_embeddings([anchor, positive], torch.tensor(classes))
    assert found.item() == pytest.approx(sum(terms) / 5, rel=1e-9)
    one = loss.compute_loss_from_embeddings([anchor, positive], torch.zeros(5, dtype=torch.long))
    assert one.item() == 0  # a batch of one class has no negatives
