"""A covariance of few rows gives a null distribution with too heavy a tail; shrunk towards a public one, it keeps the level."""

from __future__ import annotations

import numpy as np
import pytest

from kmeanalyst.inference.two_sample.sides import Side
from kmeanalyst.inference.weighted_chi_squared import weighted_chi_squared_sf

K, L = 60, 20
SPECTRUM = np.linspace(1.0, 0.5, K)
WEIGHTS = np.linspace(1.0, 2.0, K)
REFERENCE = np.linspace(2.0, 0.3, K)  # not quite the population's


def moments_of(rows: np.ndarray) -> Side:
    return Side(None, None, mean=rows.mean(axis=0), covariance=np.cov(rows.T), n_rows=len(rows), rows=rows)


def drawn(rng: np.random.Generator, n: int = L) -> np.ndarray:
    """Skewed rows: the estimate assumes no normal distribution."""
    return np.sqrt(SPECTRUM) * (rng.exponential(size=(n, K)) - 1)


def coefficients(covariance: np.ndarray) -> np.ndarray:
    root = np.sqrt(WEIGHTS)
    return np.maximum(np.linalg.eigvalsh(root[:, None] * covariance * root), 0.0)


def test_the_size_of_the_weighted_square_is_estimated_without_bias():
    rng = np.random.default_rng(0)
    truth = float(((WEIGHTS * SPECTRUM) ** 2).sum())
    found = [moments_of(drawn(rng))._square_size(np.sqrt(WEIGHTS)) for _ in range(2000)]
    assert np.mean(found) == pytest.approx(truth, abs=4 * np.std(found) / np.sqrt(2000))
    plain = [(coefficients(np.cov(drawn(rng).T)) ** 2).sum() for _ in range(50)]
    assert np.mean(plain) > 2 * truth  # what it stands in for


def test_few_rows_keep_the_level_that_their_own_covariance_loses():
    """300 draws of the mean of other rows: standard errors .013 at 5 %, .006 at 1 %."""
    rng = np.random.default_rng(1)
    shrunk, plain = [], []
    for _ in range(300):
        moments = moments_of(drawn(rng))
        statistic = float(WEIGHTS @ (np.sqrt(SPECTRUM) * rng.normal(size=K)) ** 2)
        for found, covariance in ((shrunk, moments.shrunk_covariance(WEIGHTS, REFERENCE)), (plain, moments.covariance)):
            found.append(weighted_chi_squared_sf(statistic, coefficients(covariance)))
    assert (np.array(plain) <= 0.05).mean() < 0.025
    assert (np.array(shrunk) <= 0.05).mean() == pytest.approx(0.05, abs=0.035)


def test_the_trace_stays_and_many_rows_are_hardly_changed():
    rng = np.random.default_rng(2)
    for n in (2, 3, 5, 40):
        moments = moments_of(drawn(rng, n))
        shrunk = moments.shrunk_covariance(WEIGHTS, REFERENCE)
        assert WEIGHTS @ np.diag(shrunk) == pytest.approx(WEIGHTS @ np.diag(moments.covariance), rel=1e-9)
    many = moments_of(drawn(rng, 4000))
    gap = np.linalg.norm(many.shrunk_covariance(WEIGHTS, REFERENCE) - many.covariance)
    assert gap < 0.15 * np.linalg.norm(many.covariance)
