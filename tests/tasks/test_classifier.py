"""The protocols of SentEval, written out plainly, against ours."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from afterword.tasks import classifier


@pytest.fixture(autouse=True)
def sharp(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the protocol that is compared here: no row may change sides for want of an iteration."""
    monkeypatch.setattr(classifier, "TOLERANCE", 1e-6)


def blobs(classes: int = 2, n: int = 120, width: int = 6, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Classes that overlap, on a scale and about a centre of their own."""
    random = np.random.default_rng(seed)
    y = np.arange(n) % classes
    x = random.normal(size=(n, width)) + 0.8 * random.normal(size=(classes, width))[y]
    return (0.05 * x + 0.3).astype(np.float32), y


def plain(x: np.ndarray, y: np.ndarray, c: float) -> LogisticRegression:
    """As sharp as can be, on vectors as they are."""
    return LogisticRegression(C=c, tol=1e-10, max_iter=100_000).fit(x.astype(np.float64), y)


def folds(y: np.ndarray, k: int) -> list[tuple[np.ndarray, np.ndarray]]:
    return list(StratifiedKFold(n_splits=k, shuffle=True, random_state=1111).split(np.zeros(len(y)), y))


def searched(x: np.ndarray, y: np.ndarray, regs: list[float], k: int) -> tuple[float, float]:
    """SentEval's search: the first of the best of the rounded means."""
    scores = []
    for reg in regs:
        found = [plain(x[train], y[train], reg).score(x[test], y[test]) for train, test in folds(y, k)]
        scores.append(round(100 * np.mean(found), 2))
    return regs[int(np.argmax(scores))], max(scores) / 100


def test_nested_folds():
    x, y = blobs()
    predicted, dev = classifier.nested(x, y, folds=5)
    expected, devs = np.empty_like(y), []
    for train, test in folds(y, 5):
        reg, score = searched(x[train], y[train], [2**t for t in range(-2, 4)], 5)
        expected[test] = plain(x[train], y[train], reg).predict(x[test])
        devs.append(score)
    assert (predicted == expected).all() and dev == pytest.approx(np.mean(devs))
    assert 0.6 < (predicted == y).mean() < 1


def test_folds_of_train():
    x, y = blobs(classes=3, n=150)
    predicted, dev = classifier.by_folds(x, y[:100], folds=4)
    reg, score = searched(x[:100], y[:100], [2**t for t in range(-1, 6)], 4)
    assert (predicted == plain(x[:100], y[:100], reg).predict(x[100:])).all() and dev == pytest.approx(score)


def test_a_dev_split():
    x, y = blobs(n=160)
    predicted, dev = classifier.by_split(x, y[:120], train=80)
    fits = [plain(x[:80], y[:80], 2.0**t) for t in range(-2, 4)]
    scores = [round(100 * fit.score(x[80:120], y[80:120]), 2) for fit in fits]
    best = fits[int(np.argmax(scores))]
    assert (predicted == best.predict(x[120:])).all() and dev == pytest.approx(max(scores) / 100)


def test_centre_and_scale_leave_the_optimum_where_it_is():
    x, y = blobs(n=200)
    scaled, factor = classifier.well_scaled(x)
    assert (
        scaled.dtype == np.float32 and abs(scaled.mean(0)).max() < 1e-6 and scaled.var() == pytest.approx(1, abs=1e-5)
    )
    for ours, c in zip(classifier._fits(scaled, y, [0.25 * factor, 8 * factor]), (0.25, 8), strict=True):
        assert ours.coef_ * factor**-0.5 == pytest.approx(plain(x, y, c).coef_, rel=2e-3)


def test_of_equal_accuracies_the_strongest_regularisation_is_taken():
    y = np.arange(40) % 2
    x = (y[:, None] * 2.0 - 1) * np.ones((1, 3))
    assert classifier._best(x, y, [0.5, 1, 2], folds=4, seed=0) == (0.5, 1.0)
