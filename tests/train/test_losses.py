"""What each loss can learn from; their values and gradients are in tests/oracle."""

import math

import pytest
import torch
from sentence_transformers.sentence_transformer import losses as theirs
from tests.train.conftest import DEV, ROWS

from afterword import Encoder, classical
from afterword.errors import DataError, InputError
from afterword.st import sentence_transformer
from afterword.train.losses import RankingByClass, check_rows, make_loss
from afterword.train.rows import TrainingRows
from afterword.train.settings import Settings

PAIRS = TrainingRows.read(ROWS)
TRIPLETS = TrainingRows.read([{**row, "negative": "n"} for row in ROWS])
CLASSES = TrainingRows.read([{"text": row["anchor"], "label": i % 2} for i, row in enumerate(ROWS)])
BINARY, SCORED = TrainingRows.read(DEV), TrainingRows.read([{**row, "score": i} for i, row in enumerate(DEV)])


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
    forms = {"pairs": PAIRS, "triplets": TRIPLETS, "binary": BINARY, "scored": SCORED, "classes": CLASSES}
    for name, rows in forms.items():
        if name in takes:
            check_rows(Settings(loss=loss), rows)
        else:
            with pytest.raises(DataError, match=f"row holds .*{loss}.*: use "):
                check_rows(Settings(loss=loss), rows)


def test_they_are_the_librarys_own(models):
    model = sentence_transformer(Encoder.load(models / "llama", classical()))
    ranking = make_loss(model, Settings(temperature=0.1), gather=True)
    assert type(ranking) is theirs.MultipleNegativesRankingLoss
    assert ranking.scale == pytest.approx(10) and ranking.gather_across_devices
    cached = make_loss(model, Settings(loss="cached_ranking", mini_batch=7, matryoshka=(64, 8)))
    assert type(cached) is theirs.MatryoshkaLoss and type(cached.loss) is theirs.CachedMultipleNegativesRankingLoss
    assert cached.loss.mini_batch_size == 7 and list(cached.matryoshka_dims) == [64, 8]
    assert type(make_loss(model, Settings(loss="angle"))) is theirs.AnglELoss
    assert type(make_loss(model, Settings(loss="cosent"))) is theirs.CoSENTLoss
    with pytest.raises(InputError, match="matryoshka=65: the model's vectors have 64 components"):
        make_loss(model, Settings(matryoshka=(8, 65)))


def test_negatives_are_of_other_classes(models):
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
