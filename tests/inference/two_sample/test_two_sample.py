"""Two-sample testing: distances against published numbers, null distributions against exact ones, level and power."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import kstest
from simulated_releases import DOMAIN, KERNEL, MAPS, NOISE_SCALE, L, N, measurement_of, noisy, population

import kmeanalyst as ka
from kmeanalyst.inference.two_sample import noise_aware, sides
from kmeanalyst.inference.weighted_chi_squared import weighted_chi_squared_sf
from kmeanalyst.kernels import Gaussian, KernelMean
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.kernels.features.principal import Directions
from kmeanalyst.releases.memo import memo

# pinned by the test suite of Shogun (QuadraticTimeMMD_unittest.cc; n·m/(n + m) · MMD² = 4 MMD²), re-computed from the definition
SHOGUN_X, SHOGUN_Y = np.arange(24.0).reshape(8, 3) / 23, np.arange(24.0, 48.0).reshape(8, 3) / 47
SHOGUN = {"biased": 0.17882546486779649, "unbiased": 0.13440094336133723}


@pytest.fixture(params=sorted(MAPS))
def feature_map(request: pytest.FixtureRequest) -> FeatureMap:
    return MAPS[request.param]


def test_squared_distances_are_those_other_projects_pin():
    for estimator in sorted(SHOGUN):
        ours = 4 * ka.mmd_squared(SHOGUN_X, SHOGUN_Y, Gaussian(2.0), estimator=estimator)
        assert ours == pytest.approx(SHOGUN[estimator], abs=1e-10)


def test_signed_weights_follow_the_definition():
    rng = np.random.default_rng(0)
    x, y, u, v = rng.normal(size=(9, 2)), rng.normal(size=(6, 2)), rng.normal(size=9), rng.normal(size=6)
    both, signed = np.vstack([x, y]), np.concatenate([u, -v])
    dense = np.sqrt(signed @ np.exp(-((both[:, None] - both[None]) ** 2).sum(-1) / 2) @ signed)
    assert ka.mmd((x, u), (y, v), Gaussian(1.0)) == pytest.approx(dense, abs=1e-10)


def test_a_release_is_at_distance_zero_from_itself_and_measured_in_its_own_kernel(mixed_release):
    assert ka.mmd(mixed_release, mixed_release) == 0.0
    frame = mixed_release.to_frame().drop(columns="weight")
    expected = mixed_release.embedding.distance(KernelMean(mixed_release.kernel, mixed_release.encoded_points))
    assert ka.mmd(mixed_release, frame) == pytest.approx(expected, abs=1e-12)


def directions_of(release):
    """Prepared once for a feature map: they depend on public facts alone."""
    return sides.directions_of(release, release.measurement.feature_map)


def pvalues(feature_map, noise_scale, repetitions, *, shift=0.0, claimed=None):
    """p-values over fresh tables, noise and samples; `claimed` is the noise scale that the test is given."""
    rng = np.random.default_rng(4)
    out, directions = [], None
    for _ in range(repetitions):
        release = noisy(feature_map, feature_map(population(N, rng)).mean(axis=0), noise_scale, rng)
        if claimed is not None:
            release.measurement = replace(release.measurement, noise_scale=claimed)
        directions = memo(release).setdefault("directions", directions or directions_of(release))
        out.append(ka.mmd_test(release, DOMAIN.decode(population(L, rng, shift))).pvalue)
    return np.array(out)


@pytest.mark.parametrize("epsilon", [1.0, 0.1])
@pytest.mark.levels
def test_p_values_are_uniform_when_both_sides_come_from_one_population(feature_map, epsilon):
    # false-alarm rate 1e-4 each; the seeds are fixed, so a pass stays a pass
    p = pvalues(feature_map, NOISE_SCALE[epsilon], 200)
    assert kstest(p, "uniform").pvalue > 1e-4
    assert (p <= 0.05).mean() <= 0.11


@pytest.mark.levels(but="subspace")
def test_a_test_that_leaves_the_noise_out_rejects_true_hypotheses(feature_map):
    too_little = pvalues(feature_map, NOISE_SCALE[0.1], 16, claimed=NOISE_SCALE[0.1] / 10)
    assert (too_little <= 0.05).mean() > 0.5


@pytest.mark.levels(but="subspace")
def test_a_shifted_sample_is_found(feature_map):
    assert (pvalues(feature_map, NOISE_SCALE[1.0], 16, shift=0.5) <= 0.05).mean() > 0.7


def test_the_statistic_does_not_look_at_the_released_points(feature_map):
    """They were fitted to the noise: a test along directions of theirs rejects true hypotheses (.35 at ε = 0.1)."""
    rng = np.random.default_rng(12)
    release = noisy(feature_map, feature_map(population(N, rng)).mean(axis=0), NOISE_SCALE[0.1], rng)
    moved = release.replaced(points=DOMAIN.decode(DOMAIN.draw(40, 9)))
    sample = DOMAIN.decode(population(L, rng))
    first, again = ka.mmd_test(release, sample), ka.mmd_test(moved, sample)
    assert first.statistic == pytest.approx(again.statistic, rel=1e-12)
    assert first.pvalue != again.pvalue  # its distribution does


@pytest.mark.levels
def test_a_population_that_fills_little_of_its_domain_is_in_sight():
    """A ball of a hundredth of the domain's width: a shift that even directions alone hardly show."""
    tight = RandomFourier.draw(Gaussian(0.1), n_columns=2, dimension=300, rng=3)
    rng, found, blind = np.random.default_rng(13), [], []
    for _ in range(12):
        table, sample = rng.normal(size=(N, 2)) * 0.1, rng.normal(size=(L, 2)) * 0.1 + [0.05, 0]
        release = noisy(tight, tight(table).mean(axis=0), NOISE_SCALE[1.0], rng)
        found.append(ka.mmd_test(release, DOMAIN.decode(sample)).pvalue)
        even = sides.directions_of(release, release.measurement.feature_map)
        moments = sides.sample_side(sides.measured_side(release), even, [sample])
        null = (even, moments.draws.of_a_row, 1 / N + 1 / L, release.measurement)
        blind.append(noise_aware.noise_aware_test(release.measurement.vector - moments.mean, *null)[1])
    assert np.median(found) < 0.4 * np.median(blind)


@pytest.mark.levels
def test_small_shifts_are_found_that_the_squared_length_of_the_difference_does_not_show():
    feature_map, shrink, tau = MAPS["random-features"], 1 / N + 1 / L, NOISE_SCALE[1.0]
    rng, found, by_length = np.random.default_rng(5), 0, 0
    for _ in range(40):
        features = feature_map(sample := population(L, rng, 0.3))
        release = noisy(feature_map, feature_map(population(N, rng)).mean(axis=0), tau, rng)
        found += ka.mmd_test(release, DOMAIN.decode(sample)).pvalue <= 0.05
        squared = np.sum((release.measurement.vector - features.mean(axis=0)) ** 2)
        null = shrink * np.cov(features.T) + tau**2 * np.eye(features.shape[1])
        by_length += weighted_chi_squared_sf(squared, np.linalg.eigvalsh(null)) <= 0.05
    assert found >= 1.5 * by_length >= 6


def test_weights_are_damped_by_the_noise_or_where_rows_are_few():
    """The ridge leaves a fifth as many effective directions as rows, 150 at most; the noise takes its place if it is more."""
    for noise_scale, rows, wanted in [(1e-9, 100, 20), (1e-9, 40, 8), (1e-9, 10_000, 150), (0.3, 100, 0)]:
        directions = Directions(np.eye(400), 1 / np.arange(1, 401))
        weights = noise_aware.direction_weights(directions, 1 / rows, noise_scale**2)
        sampled = directions.variances / rows
        ridge = np.sqrt(sampled / weights) - sampled
        np.testing.assert_allclose(ridge, ridge[0], rtol=1e-6)
        if wanted:
            assert (sampled / (sampled + ridge)).sum() == pytest.approx(wanted)
        else:
            assert ridge[0] == pytest.approx(noise_scale**2)
            assert ridge[0] > sampled.max()


@pytest.mark.levels
def test_the_unbiased_estimate_averages_to_the_squared_distance_of_the_populations(feature_map):
    rng = np.random.default_rng(8)
    truth = feature_map(population(50_000, rng)).mean(axis=0) - feature_map(population(50_000, rng, 0.4)).mean(axis=0)
    estimates, directions = [], None
    for _ in range(120):
        release = noisy(feature_map, feature_map(population(N, rng)).mean(axis=0), NOISE_SCALE[1.0], rng)
        directions = memo(release).setdefault("directions", directions or directions_of(release))
        estimates.append(ka.mmd_test(release, population(L, rng, 0.4)).mmd_squared)
    tolerance = 4 * np.std(estimates) / np.sqrt(len(estimates)) + 1e-4  # 4 standard errors
    assert np.mean(estimates) == pytest.approx(truth @ truth, abs=tolerance)
    naive = np.mean(estimates) + len(truth) * NOISE_SCALE[1.0] ** 2  # the noise's square left in
    assert abs(naive - truth @ truth) > tolerance


def test_the_result_has_all_that_the_interface_names(mixed_release):
    frame = mixed_release.resample(30, rng=0).assign(extra=1)
    frame.loc[0, "age"] = 200
    result = ka.mmd_test(mixed_release, frame).to_dict()
    named = {"statistic", "pvalue", "mmd_squared", "method", "n_release_rows", "n_release_points", "n_sample_rows"}
    assert named | {"noise_aware", "epsilon", "delta"} <= set(result)
    assert (result["n_release_rows"], result["n_release_points"], result["n_sample_rows"]) == (2000, 60, 30)
    assert result["noise_aware"] is True and result["epsilon"] == 1.0
    notes = " ".join(result["notes"])
    assert '"extra"' in notes and "age: 1 of 30 values were outside the bounds and were clamped" in notes


@pytest.mark.parametrize("left_out", [[], np.arange(0, 70, 2)], ids=["all", "half"])
def test_moments_are_those_of_all_rows_whatever_the_blocks_but_the_covariance_of_those_left_in(feature_map, left_out, monkeypatch):
    release = noisy(feature_map, np.zeros(feature_map.dimension), 1.0, np.random.default_rng(0))
    directions = sides.directions_of(release, release.measurement.feature_map)
    rows = population(70, np.random.default_rng(3))
    features, kept = feature_map(rows), ~np.isin(np.arange(70), left_out)
    for entries in (10**7, 7 * feature_map.dimension):
        monkeypatch.setattr("kmeanalyst.kernels.embedding._BLOCK_ENTRIES", entries)
        moments = sides.sample_side(sides.measured_side(release), directions, [rows[:33], rows[33:]], left_out=np.array(left_out))
        np.testing.assert_allclose(moments.mean, features.mean(axis=0), atol=1e-12)
        along = (features @ directions.vectors)[kept]
        share = 100 / 170  # the points count as 100 rows
        expected = (1 - share) * np.cov(along.T) + share * moments.draws.covariance
        np.testing.assert_allclose(moments.draws.of_a_row, expected, atol=1e-10)
        assert moments.variance >= np.trace(moments.draws.of_a_row) * (1 - 1e-6)
        assert moments.n_rows == 70


@pytest.mark.parametrize(("n", "left_out"), [(300, 150), (90, None)])
def test_rows_that_directions_come_from_are_left_out_of_the_null_where_enough_others_stay(n, left_out, monkeypatch):
    rng, seen = np.random.default_rng(3), []
    moments = sides.sample_side

    def watched(*args, **options):
        seen.append(options["left_out"])
        return moments(*args, **options)

    monkeypatch.setattr(sides, "sample_side", watched)
    release = noisy(MAPS["random-features"], np.zeros(200), NOISE_SCALE[1.0], rng)
    ka.mmd_test(release, population(n, rng))
    assert (None if seen[0] is None else len(seen[0])) == left_out


def pvalue_and_tail(statistic_share: float, noise_law: str, drawn: str) -> tuple[float, float]:
    """(p-value for noise of this name, tail simulated for the noise drawn) of two directions of four features, noise alone."""
    rng = np.random.default_rng(1)
    vectors = np.linalg.qr(rng.normal(size=(4, 2)))[0]
    directions = Directions(vectors, np.array([3.0, 0.5]))
    feature_map = RandomFourier.draw(KERNEL, n_columns=2, dimension=4, rng=1)
    measurement = measurement_of(feature_map, np.zeros(4), 0.2, N, noise_law)
    unit = rng.normal(size=(3 * 10**5, 4)) if drawn == "normal" else rng.laplace(scale=np.sqrt(0.5), size=(3 * 10**5, 4))
    noise = 0.2 * unit
    weights = noise_aware.direction_weights(directions, 1e-3, measurement.noise_scale**2)
    simulated = (noise @ vectors) ** 2 @ weights
    difference = vectors[:, 0] * np.sqrt(np.quantile(simulated, 1 - statistic_share) / weights[0])
    test = noise_aware.noise_aware_test(difference, directions, np.zeros((2, 2)), 1e-3, measurement)
    return test[1], float((simulated > test[0]).mean())


def test_the_p_value_under_noise_is_that_of_a_simulation():
    """512 draws of Laplace noise's variances: a relative error of a tenth at 0.1 %; the saddlepoint's own is some per cent."""
    for name, drawn in [("discrete laplace", "laplace"), ("discrete gaussian", "normal")]:
        for share in [0.3, 0.05, 0.01, 0.001]:
            found, simulated = pvalue_and_tail(share, name, drawn)
            assert found == pytest.approx(simulated, rel=0.2)
    found, simulated = pvalue_and_tail(0.01, "discrete gaussian", "laplace")
    assert found < 0.6 * simulated  # the p-value for Gaussian noise rejects too often under Laplace noise
