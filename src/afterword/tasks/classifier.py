"""Logistic regression on sentence vectors, with the regularisation strength chosen on held-out rows, as in SentEval.

Source: facebookresearch/SentEval@102d319, senteval/tools/validation.py, the branch that uses scikit-learn: the same
folds (stratified, shuffled, seed 1111), the same grids of C, and the mean accuracy rounded to two decimals of a percent
before the best C is chosen, the smaller of equals. Differences:

- The optimum is found by L-BFGS in float32, and the intercept is not penalised. SentEval's scikit-learn used
  liblinear, which penalises the intercept too; and its shuffles drew other folds from the same seed (before 0.22).
- Vectors are centred and scaled by one number, and C with them. The optimum stays the same (the intercept makes up for
  the mean, C for the scale), but one tolerance suits every model, and most of the iterations are saved.
- The values of C are tried in ascending order; each fit starts from the previous one's solution.
- One thread: the matrices are small, more threads are slower, and the number of threads changes no score.

MiniLM's seven sets (MR, CR, SUBJ, MPQA, SST-2, TREC, MRPC) take 48 s: 76.56 82.57 92.30 87.62 81.49 89.80 71.65.
To convergence in float64 (tolerance 1e-8) they take 303 s: 76.62 82.57 92.35 87.59 81.49 90.00 71.65.

SimCSE, Ditto and BeLLM run SentEval's other branch (usepytorch=True, nhid=0): the same model by Adam (learning rate
1e-3, batches of 64) with weight decay 1e-5, 1e-4, 1e-3 or 1e-2, up to 200 epochs, stopped early when the accuracy on
the held-out fold, or on 5 % of the training rows, has not risen in five evaluations four epochs apart. There early
stopping regularises, here C alone. On MiniLM's vectors that branch gives SST-2 81.44, TREC 90.00 and MRPC 72.12.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import MissingExtra, plural

Array = NDArray[np.floating[Any]]
Classes = NDArray[np.integer[Any]]

SEED = 1111
"""SentEval's random seed."""
TOLERANCE = 1e-4
"""Of each component of the gradient, for vectors scaled so that their components have size 1 or so."""
ITERATIONS = 1000

NESTED = tuple(2.0**t for t in range(-2, 4))
SPLIT = NESTED
FOLDS = tuple(2.0**t for t in range(-1, 6))
"""The grids of C of the three protocols."""


@contextmanager
def one_thread() -> Iterator[None]:
    """A context in which matrix products run on one thread.

    Raises:
        MissingExtra: threadpoolctl, which comes with scikit-learn, is not installed.
    """
    try:
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
    except ImportError:
        raise MissingExtra("scikit-learn", "evaluate") from None
    with threadpool_limits(1):
        yield


def nested(x: Array, y: Classes, folds: int = 10, seed: int = 0, one_vs_rest: bool = False) -> tuple[Classes, float]:
    """Nested cross-validation: every row is predicted by a classifier not trained on it, with C chosen by inner folds.

    Args:
        x: vectors (n, D).
        y: classes (n,), each at least `folds` times.
        folds: number of outer folds, and of inner folds.
        seed: added to SentEval's own.
        one_vs_rest: one model per class, instead of one multinomial model.

    Returns:
        Predictions (n,); the mean accuracy of the chosen C on inner folds.
    """
    x, factor = well_scaled(x)
    predicted, chosen = np.empty_like(y), []
    for train, test in _folds(y, folds, seed):
        c, accuracy = _best(x[train], y[train], [c * factor for c in NESTED], folds, seed, one_vs_rest)
        predicted[test] = next(_fits(x[train], y[train], [c], one_vs_rest)).predict(x[test])
        chosen.append(accuracy)
    return predicted, float(np.mean(chosen))


def by_folds(x: Array, y: Classes, folds: int = 10, seed: int = 0, one_vs_rest: bool = False) -> tuple[Classes, float]:
    """Predict the test rows, with C chosen by cross-validation on the training rows.

    Args:
        x: vectors (n, D), those of the training rows first.
        y: classes of the training rows (m,).
        folds: number of folds.
        seed: added to SentEval's own.
        one_vs_rest: one model per class, instead of one multinomial model.

    Returns:
        Predictions (n - m,); the mean accuracy of the chosen C on folds.
    """
    x, factor = well_scaled(x)
    c, accuracy = _best(x[: len(y)], y, [c * factor for c in FOLDS], folds, seed, one_vs_rest)
    return next(_fits(x[: len(y)], y, [c], one_vs_rest)).predict(x[len(y) :]), accuracy


def by_split(x: Array, y: Classes, train: int, one_vs_rest: bool = False) -> tuple[Classes, float]:
    """Predict the test rows, with C chosen on the dev rows.

    Args:
        x: vectors (n, D): training rows, dev rows, test rows.
        y: classes of the training and dev rows.
        train: number of training rows.
        one_vs_rest: one model per class, instead of one multinomial model.

    Returns:
        Predictions of the test rows; the accuracy of the chosen C on dev.
    """
    x, factor = well_scaled(x)
    fits = list(_fits(x[:train], y[:train], [c * factor for c in SPLIT], one_vs_rest))
    accuracies = [_percent((fit.predict(x[train : len(y)]) == y[train:]).mean()) for fit in fits]
    best = int(np.argmax(accuracies))
    return fits[best].predict(x[len(y) :]), accuracies[best] / 100


def well_scaled(x: Array) -> tuple[Array, float]:
    """Centred vectors in float32 with components of size 1 or so, and the factor that C must be multiplied with.

    >>> x, factor = well_scaled(np.array([[5.0], [9.0]]))
    >>> x.tolist(), factor
    ([[-1.0], [1.0]], 4.0)
    """
    centred = np.asarray(x - x.mean(0, dtype=np.float64), np.float32)
    size = float(np.sqrt(np.square(centred).mean(dtype=np.float64))) or 1.0
    return centred / np.float32(size), size**2


def _best(
    x: Array, y: Classes, cs: Sequence[float], folds: int, seed: int, one_vs_rest: bool = False
) -> tuple[float, float]:
    """The C with the highest mean accuracy over folds, and that accuracy."""
    accuracies = np.array([
        [(fit.predict(x[test]) == y[test]).mean() for fit in _fits(x[train], y[train], cs, one_vs_rest)]
        for train, test in _folds(y, folds, seed)
    ])  # fmt: skip
    means = [_percent(m) for m in accuracies.mean(0)]
    best = int(np.argmax(means))
    return cs[best], means[best] / 100


def _percent(accuracy: float) -> float:
    return round(100 * float(accuracy), 2)


def _folds(y: Classes, folds: int, seed: int) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    from sklearn.model_selection import StratifiedKFold

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The least populated class", UserWarning)  # harmless in an inner fold
        yield from StratifiedKFold(folds, shuffle=True, random_state=SEED + seed).split(y, y)


def _fits(x: Array, y: Classes, cs: Sequence[float], one_vs_rest: bool = False) -> Iterator[Any]:
    """Fitted classifiers, one for each C in order."""
    from sklearn.linear_model import LogisticRegression

    if one_vs_rest and len(classes := np.unique(y)) > 2:
        yield from (OneVsRest(classes, each) for each in zip(*(_fits(x, y == c, cs) for c in classes), strict=True))
        return
    last = None
    for c in cs:
        fit = LogisticRegression(C=c, tol=TOLERANCE, max_iter=ITERATIONS, warm_start=True)
        if last is not None:
            fit.coef_, fit.intercept_ = last.coef_, last.intercept_
        last = fit.fit(x, y)
        yield last


@dataclass(frozen=True)
class OneVsRest:
    """One model per class, as scikit-learn's liblinear fits: the class whose model is surest is predicted.

    Args:
        classes: the classes (k,).
        each: for each class, a model that tells it from the others.
    """

    classes: Classes
    each: tuple[Any, ...]

    def predict(self, x: Array) -> Classes:
        """The class of each row: from (n, D) to (n,)."""
        return np.asarray(self.classes[np.argmax([model.decision_function(x) for model in self.each], axis=0)])


@contextmanager
def noted(notes: list[str]) -> Iterator[None]:
    """A context in which scikit-learn's warnings of fits that did not converge become one note.

    Args:
        notes: gets the note.

    Raises:
        MissingExtra: scikit-learn is not installed.
    """
    try:
        from sklearn.exceptions import ConvergenceWarning
    except ImportError:
        raise MissingExtra("scikit-learn", "evaluate") from None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        yield
    failed = [w for w in caught if issubclass(w.category, ConvergenceWarning)]
    if failed:
        notes.append(f"{plural(len(failed), 'fit')} of the classifier did not converge in {ITERATIONS} iterations")
    for other in caught:
        if other not in failed:
            warnings.warn_explicit(other.message, other.category, other.filename, other.lineno)
