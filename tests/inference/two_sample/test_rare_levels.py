"""A sample that lacks a rare level of the population is no evidence against it: the release's points say how rare that is."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom
from simulated_releases import measured_release, measurement_of

import kmeanalyst as ka
from kmeanalyst.inference.two_sample.differences import differences_of
from kmeanalyst.inference.two_sample.resampled import Draws, null_tail
from kmeanalyst.inference.two_sample.sides import SampleRows
from kmeanalyst.inference.weighted_chi_squared import NormalQuadraticForm
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import kernel_from_spec
from kmeanalyst.releases.domain.levels import Boolean
from kmeanalyst.releases.domain.numbers import Integer
from kmeanalyst.representation.weights.reweight import tilted_weights

FLAG = Domain((Boolean(name="flag"),))
MIXED = Domain((Integer(name="age", lower=0, upper=99), Boolean(name="flag")))
N = 20_000
MULTIPLIER = {1.0: 4.22, 0.1: 35.0}  # noise in units of the sensitivity, about ε = 1 and 0.1 at δ = 1e-6


def rows(domain: Domain, share: float, n: int, rng: np.random.Generator) -> np.ndarray:
    flag = (rng.random(n) < share).astype(float)
    return flag[:, None] if domain is FLAG else np.column_stack([np.clip(rng.normal(45, 12, n).round(), 0, 99), flag])


def released(domain: Domain, share: float, rng: np.random.Generator, epsilon: float = 1.0) -> ka.Release:
    """The points are those of another sample: a fit that knows the population about as well."""
    features = MarginFeatures(kernel_from_spec("margins", domain))  # type: ignore[arg-type]
    table = rows(domain, share, N, rng)
    scale = MULTIPLIER[epsilon] * features.diameter / N
    vector = features.mean(table, np.full(N, 1 / N)) + scale * rng.normal(size=features.dimension)
    measurement = measurement_of(features, vector, scale, N)
    return measured_release(measurement, domain, rows(domain, share, 4000, rng), epsilon=epsilon)


def rejected(domain: Domain, share: float, n: int, *, releases: int, samples: int, epsilon: float = 1.0) -> np.ndarray:
    """(releases,) the share of samples of the same population that are rejected at 5 %."""
    found = np.zeros((releases, samples))
    for i in range(releases):
        rng = np.random.default_rng([i, n])
        release = released(domain, share, rng, epsilon)
        drawn = [SampleRows(release, rows(domain, share, n, rng)) for _ in range(samples)]
        found[i] = [differences_of(release, sample).pvalue <= 0.05 for sample in drawn]
    return found.mean(axis=1)


def test_samples_of_one_population_are_seldom_rejected_where_a_level_is_rare():
    """60 samples a cell: .05 and 3 standard errors. From the sample's own covariance .98 of two rows are rejected, .55 of 100."""
    for share, n in ((0.02, 2), (0.02, 30), (0.005, 100)):
        assert rejected(FLAG, share, n, releases=5, samples=12).mean() <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 60)


def test_a_level_that_became_frequent_is_found():
    rng = np.random.default_rng(1)
    release = released(FLAG, 0.02, rng)
    assert max(ka.mmd_test(release, rows(FLAG, 0.2, 100, rng)).pvalue for _ in range(5)) < 0.01
    assert ka.mmd_test(release, np.ones((2, 1))).pvalue < 0.01  # 1 sample in 2,500 is like that


@pytest.mark.levels
@pytest.mark.parametrize("epsilon", [1.0, 0.1])
@pytest.mark.parametrize("domain", [FLAG, MIXED], ids=["flag", "mixed"])
def test_levels_hold_over_shares_sizes_and_budgets(domain, epsilon):
    """400 samples a cell, of 40 releases, which are the independent units."""
    for share, n in ((0.005, 2), (0.005, 300), (0.02, 10), (0.02, 1000), (0.1, 30), (0.5, 100)):
        found = rejected(domain, share, n, releases=40, samples=10, epsilon=epsilon)
        error = max(np.sqrt(0.05 * 0.95 / 400), found.std(ddof=1) / np.sqrt(40))
        assert found.mean() <= 0.05 + 3 * error, (share, n)


def test_points_are_weighted_to_have_the_measured_share():
    """Of points with a level's share .04 where .01 was measured: by hand, (1 + a) .04 = .01 where noise is small."""
    points, even = np.repeat([[0.0], [1.0]], [96, 4], axis=0), np.full(100, 0.01)
    known, unknown = (tilted_weights(points, even, np.array([0.01]), variance) for variance in (1e-9, 1.0))
    assert known @ points[:, 0] == pytest.approx(0.01, rel=1e-3) and known.sum() == pytest.approx(1)
    assert unknown @ points[:, 0] == pytest.approx(0.04, rel=0.01)
    never = tilted_weights(points, even, np.array([-0.02]), 1e-9)
    assert never @ points[:, 0] == 0 and never.min() == 0


def no_noise():
    return iter([np.zeros((1, 1))])


def test_the_tail_of_one_level_is_the_binomial_one():
    """A level of share .02 and 30 rows, without noise: P(K ≥ k) for k = 2, 3, in 999 draws."""
    values, weights = np.array([[0.0], [1.0]]), np.array([0.98, 0.02])
    draws = Draws.of(values, weights, 30, 0)
    a = draws.share
    for k in (2, 3):
        own = (1 - a) * (k / 30) * (1 - k / 30) * 30 / 29 + a * 0.02 * 0.98
        p = null_tail((k / 30 - 0.02) ** 2, np.ones(1), np.array([[own]]), 1 / 30, no_noise, draws)
        assert p == pytest.approx(binom.sf(k - 1, 30, 0.02), abs=4 * np.sqrt(0.12 * 0.88 / 999))


def test_beyond_all_draws_the_tail_falls_and_ends_nowhere():
    draws = Draws.of(np.array([[0.0], [1.0]]), np.array([0.5, 0.5]), 100, 0)
    tails = [null_tail(t, np.ones(1), np.array([[0.25]]), 0.01, no_noise, draws) for t in (0.05, 0.1, 0.2)]
    assert 1e-3 > tails[0] > tails[1] > tails[2] > 0


def test_samples_are_drawn_from_every_population_that_the_noise_leaves_open():
    """Of shares .1 and .3 of a level, each about its own mean; in the test of a flag, of the measured share and the noise."""
    sources = np.array([[0.9, 0.1], [0.7, 0.3]])
    draws = Draws.of(np.array([[0.0], [1.0]]), np.array([0.8, 0.2]), 30, 0, sources)
    for part, own in zip(np.array_split(draws.means, 2), sources, strict=True):
        assert abs(part.mean()) < 0.01 and part.std() == pytest.approx(np.sqrt(own.prod() / 30), rel=0.1)
    rng = np.random.default_rng(0)
    release = released(FLAG, 0.02, rng, 0.1)
    drawn = differences_of(release, SampleRows(release, rows(FLAG, 0.02, 30, rng))).together.draws.sources[:, 1]
    noise = release.measurement.noise_scale * np.sqrt(0.5) / np.sqrt(release.measurement.feature_map.kernel.squared_heights[0][0])
    assert drawn.std() == pytest.approx(noise, rel=0.4)


def test_few_skewed_rows_keep_the_level_that_their_own_covariance_loses():
    """300 samples of 20 rows in 60 coordinates: a standard error of .013. Half of the rows may not be in the covariance."""
    rng, spread, n = np.random.default_rng(1), np.sqrt(np.linspace(1.0, 0.5, 60)), 20
    points = spread * (rng.exponential(size=(3000, 60)) - 1)
    for left_out in (0, 10):
        draws = Draws.of(points, np.full(3000, 1 / 3000), n, left_out)
        found, plain = [], []
        for _ in range(300):
            sample = spread * (rng.exponential(size=(n, 60)) - 1)
            own, statistic = np.cov(sample[left_out:].T), float((sample.mean(axis=0) ** 2).sum())
            covariance = draws.share * draws.covariance + (1 - draws.share) * own
            found.append(null_tail(statistic, np.ones(60), covariance, 1 / n, lambda: iter([np.zeros((60, 60))]), draws))
            plain.append(NormalQuadraticForm(own / n).sf(statistic))
        assert (np.array(plain) <= 0.05).mean() < 0.025
        assert (np.array(found) <= 0.05).mean() == pytest.approx(0.05, abs=0.035)
