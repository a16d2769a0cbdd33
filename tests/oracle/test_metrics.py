"""Whitening, alignment, uniformity and average cosine against the authors' own code (metrics.npz)."""

from pathlib import Path

import numpy as np
import pytest
import torch

from afterword.papers.isotropy import alignment, average_cosine, uniformity
from afterword.post import Moments, Normalise, Whiten


@pytest.fixture(scope="module")
def arrays(oracle: Path) -> dict[str, np.ndarray]:
    return dict(np.load(oracle / "metrics.npz"))


def test_geometry(arrays: dict[str, np.ndarray]):
    x, rated = arrays["x"], arrays["gs"] > 4  # 100 pairs: a sentence, and 100 rows on its partner
    assert average_cosine(x) == pytest.approx(float(arrays["avg_cosine_offdiag"]), abs=1e-14)
    assert uniformity(x) == pytest.approx(float(arrays["uniform_t2"]), abs=1e-13)
    assert alignment(x[:100][rated], x[100:][rated]) == pytest.approx(float(arrays["align_gs_gt4"]), abs=1e-14)


def test_whitening(arrays: dict[str, np.ndarray]):
    """bojone/BERT-whitening: vectors of length 1 after whitening, all dimensions; 8 dimensions, up to signs."""
    x = torch.from_numpy(arrays["x"])
    full = Normalise()(Whiten().fit(x)(x)).numpy()
    np.testing.assert_allclose(full @ full.T, arrays["whiten_full_gram"], rtol=0, atol=1e-6)
    np.testing.assert_allclose(Whiten(8).fit(x)(x).abs(), arrays["whiten_k8_abs"], rtol=0, atol=1e-6)


def test_whitening_in_float64(arrays: dict[str, np.ndarray]):
    x = torch.from_numpy(arrays["x"])
    moments = Moments().add(x)
    np.testing.assert_allclose(moments.mean[None], arrays["whiten_mu"], rtol=0, atol=1e-14)
    values, rows = moments.principal()
    whitened = (x - moments.mean) @ (rows / values[:, None].sqrt()).T
    np.testing.assert_allclose(whitened[:, :8].abs(), arrays["whiten_k8_abs"], rtol=0, atol=1e-11)
