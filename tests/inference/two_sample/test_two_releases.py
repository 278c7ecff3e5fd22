"""Release against release: both noises in the null distribution, of one feature map and of different ones."""

from __future__ import annotations

import numpy as np
import pytest
from simulated_releases import DOMAIN, KERNEL, MAPS, NOISE_SCALE, L, N, noisy, population

import kmeanalyst as ka
from kmeanalyst.inference.two_sample import noise_aware
from kmeanalyst.inference.two_sample.noise_aware import direction_weights, size_of_difference
from kmeanalyst.inference.two_sample.sides import covariance_of, directions_of
from kmeanalyst.inference.weighted_chi_squared import NormalQuadraticForm
from kmeanalyst.kernels import Gaussian
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.kernels.features.nystroem import Nystroem
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.numbers import Real
from kmeanalyst.releases.memo import memo

OTHER_MAPS = {
    "other frequencies": RandomFourier.draw(KERNEL, n_columns=2, dimension=300, rng=2),
    "another lengthscale": RandomFourier.draw(Gaussian(2.5), n_columns=2, dimension=300, rng=3),
    "a subspace": MAPS["subspace"],
    "other points": Nystroem.fit(KERNEL, DOMAIN.draw(80, 7)),
}


def pair(first, second, noise_scale, rng, shift=0.0, n_points=400):
    return tuple(
        noisy(m, m(population(N, rng, s)).mean(axis=0), noise_scale, rng, n_points=n_points)
        for m, s in ((first, 0.0), (second, shift))
    )


@pytest.mark.parametrize("name", sorted(MAPS))
@pytest.mark.levels(but="subspace")
def test_two_releases_of_one_map_hold_their_level_and_show_a_difference(name):
    rng, directions = np.random.default_rng(6), None
    same, different = [], []
    for _ in range(14):
        for found, shift in ((same, 0.0), (different, 0.8)):
            a, b = pair(MAPS[name], MAPS[name], NOISE_SCALE[1.0], rng, shift, n_points=40)
            directions = memo(a).setdefault("directions", directions or directions_of(a, a.measurement.feature_map))
            found.append(ka.mmd_test(a, b).pvalue)
    assert np.mean(np.array(same) <= 0.05) <= 0.3  # 14 draws at 5 %: above with probability 5e-4
    assert np.mean(np.array(different) <= 0.05) > 0.8


@pytest.mark.parametrize("name", sorted(OTHER_MAPS))
@pytest.mark.levels(but="a subspace")
def test_releases_of_different_maps_hold_their_level_and_show_a_difference(name, monkeypatch):
    monkeypatch.setattr(noise_aware, "_EVEN_ROWS", 150)
    rng = np.random.default_rng(7)
    same, different = [], []
    for _ in range(8):
        for found, shift in ((same, 0.0), (different, 1.2)):
            found.append(ka.mmd_test(*pair(MAPS["random-features"], OTHER_MAPS[name], NOISE_SCALE[1.0], rng, shift)))
    assert np.mean([r.pvalue <= 0.05 for r in same]) <= 0.4  # 8 draws at 5 %: above with probability 4e-4
    assert np.mean([r.pvalue <= 0.05 for r in different]) > 0.8
    assert np.mean([r.mmd_interval[0] > 0 for r in different]) > 0.4
    assert "different features" in different[0].notes[0] and different[0].noise_aware


def test_what_two_maps_disagree_about_is_not_taken_for_a_difference():
    """Few features and little noise: without the allowance every true hypothesis would be rejected."""
    first, second = (RandomFourier.draw(Gaussian(0.7), n_columns=2, dimension=16, rng=i) for i in (1, 2))
    rng, aware, naive = np.random.default_rng(8), [], []
    for _ in range(4):
        a, b = pair(first, second, 1e-5, rng)
        aware.append(ka.mmd_test(a, b).pvalue)
        fitted, fresh = noise_aware._reference(a, b)
        shared = noise_aware._shared_functions(a.measurement, b.measurement, fitted)
        x, y = first(fresh.ours) @ shared.ours, second(fresh.theirs) @ shared.theirs
        null = (covariance_of(x, fresh.weights) + covariance_of(y, fresh.weights)) / N
        d = shared.ours.T @ a.measurement.vector - shared.theirs.T @ b.measurement.vector
        weights = shared.variances / np.diag(null)
        naive.append(NormalQuadraticForm(null, weights).sf(float(weights @ d**2)))
    assert max(naive) < 0.05
    assert min(aware) > 0.05


def test_the_functions_compared_do_not_know_the_released_points():
    """The points were fitted to the noise: functions chosen by them would follow it."""
    rng = np.random.default_rng(12)
    a, b = pair(MAPS["random-features"], OTHER_MAPS["other frequencies"], NOISE_SCALE[0.1], rng)
    moved = a.replaced(points=DOMAIN.decode(DOMAIN.draw(400, 9)))
    chosen, again = noise_aware._reference(a, b)[0], noise_aware._reference(moved, b)[0]
    np.testing.assert_array_equal(chosen.ours, again.ours)
    np.testing.assert_array_equal(chosen.theirs, again.theirs)


def test_the_order_of_two_releases_does_not_matter():
    a, b = pair(
        MAPS["random-features"], OTHER_MAPS["other frequencies"], NOISE_SCALE[1.0], np.random.default_rng(9), 0.6
    )
    forth, back = ka.mmd_test(a, b), ka.mmd_test(b, a)
    assert forth.pvalue == pytest.approx(back.pvalue, rel=0.3)  # the even rows are drawn in another order
    assert forth.n_sample_rows == back.n_sample_rows == N


def test_domains_of_different_bounds_are_compared_in_natural_units():
    wide = Domain(tuple(Real(name=f"x{j}", lower=-8, upper=8) for j in range(2)))
    rng = np.random.default_rng(10)
    a, b = pair(MAPS["random-features"], OTHER_MAPS["other frequencies"], NOISE_SCALE[1.0], rng)
    assert ka.mmd_test(a, b.replaced(domain=wide)).pvalue > 1e-3


# ------------------------ The size of a difference: intervals that hold the truth, distances that are found as often as they say.


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
