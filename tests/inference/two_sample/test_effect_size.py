"""The size of a difference: intervals that hold the truth, distances that are found as often as they say."""

from __future__ import annotations

import numpy as np
import pytest
from simulated_releases import DOMAIN, MAPS, NOISE_SCALE, L, N, noisy, population

import kmeanalyst as ka
from kmeanalyst.inference.two_sample.noise_aware import direction_weights, size_of_difference
from kmeanalyst.inference.two_sample.sides import directions_of
from kmeanalyst.inference.weighted_chi_squared import NormalQuadraticForm
from kmeanalyst.releases.memo import memo

VARIANCES = np.array([4.0, 1.0, 0.5, 0.25])


@pytest.mark.parametrize("length", [0.0, 1.0, 6.0])
@pytest.mark.parametrize("at", [0, 3])
@pytest.mark.levels
def test_an_interval_misses_the_distance_no_more_often_than_it_claims(length, at):
    """300 draws: 5 % of misses are 15, more than 29 come with probability 3e-4."""
    rng = np.random.default_rng(0)
    shift = length * np.eye(4)[at]
    missed = 0
    for _ in range(300):
        low, high = NormalQuadraticForm(VARIANCES).interval(shift + np.sqrt(VARIANCES) * rng.normal(size=4))
        missed += not low <= length <= high
    assert missed <= 29


def test_a_length_below_pure_noise_still_gives_an_interval_with_room():
    low, high = NormalQuadraticForm(np.diag(VARIANCES)).interval(np.full(4, 5e-4))
    assert low == 0.0 and high > 1.0


def test_the_detectable_distance_is_found_four_times_in_five():
    """2,000 draws: standard error .009."""
    rng = np.random.default_rng(1)
    weights, signal = np.array([1.0, 0.5, 2.0, 1.0]), np.array([2.0, 1.0, 1.0, 0.5])
    distance = NormalQuadraticForm(np.diag(VARIANCES), weights).detectable(signal)
    null = (rng.normal(size=(100_000, 4)) ** 2 * VARIANCES) @ weights
    signs = rng.choice([-1, 1], size=(2000, 4))
    shifted = signs * distance * np.sqrt(signal / signal.sum()) + np.sqrt(VARIANCES) * rng.normal(size=(2000, 4))
    power = (shifted**2 @ weights > np.quantile(null, 0.95)).mean()
    assert power == pytest.approx(0.8, abs=0.04)


@pytest.mark.parametrize("name", sorted(MAPS))
@pytest.mark.parametrize("shift", [0.0, 0.5])
@pytest.mark.levels(but="0.0-subspace")
def test_a_test_of_a_release_has_an_interval_that_holds_the_distance_of_the_populations(name, shift):
    """20 draws: 5 % of misses are 1, more than 5 come with probability 3e-4."""
    feature_map, rng, directions = MAPS[name], np.random.default_rng(2), None
    means = [feature_map(population(50_000, rng, s)).mean(axis=0) for s in (0.0, shift)]
    truth = float(np.linalg.norm(means[0] - means[1])) if shift else 0.0
    missed = 0
    for _ in range(20):
        release = noisy(feature_map, feature_map(population(N, rng)).mean(axis=0), NOISE_SCALE[1.0], rng)
        directions = memo(release).setdefault(
            "directions", directions or directions_of(release, release.measurement.feature_map)
        )
        low, high = ka.mmd_test(release, DOMAIN.decode(population(L, rng, shift))).mmd_interval
        missed += not low <= truth <= high
    assert missed <= 5


def test_of_rows_that_hardly_vary_the_detectable_distance_is_that_of_the_noise():
    feature_map, rng, shrink = MAPS["random-features"], np.random.default_rng(4), 1e-3
    release = noisy(feature_map, feature_map(population(N, rng)).mean(axis=0), NOISE_SCALE[0.1], rng)
    directions, measurements = directions_of(release, feature_map), [release.measurement]
    still = 1e-12 * np.diag(directions.variances)
    found = size_of_difference(release.measurement.vector, directions, still, 1e-12, shrink, measurements, 0.05)
    weights = direction_weights(directions, shrink, measurements)
    alone = NormalQuadraticForm(np.full(len(weights), release.measurement.noise_scale**2), weights)
    assert found["detectable_mmd"] == pytest.approx(alone.detectable(directions.variances, level=0.05), rel=1e-6)


def test_the_noise_floor_is_the_size_of_the_difference_that_one_population_shows():
    feature_map, rng = MAPS["random-features"], np.random.default_rng(3)
    squares = []
    for _ in range(40):
        release = noisy(feature_map, feature_map(population(N, rng)).mean(axis=0), NOISE_SCALE[0.1], rng)
        rows = population(L, rng)
        squares.append(np.sum((release.measurement.vector - feature_map(rows).mean(axis=0)) ** 2))
    floor = ka.mmd_test(release, rows).noise_floor
    assert floor == pytest.approx(np.sqrt(np.mean(squares)), rel=0.05)
