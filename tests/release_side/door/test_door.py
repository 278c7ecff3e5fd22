"""The door: for every table and every neighbour, exact integer sums differ by at most the claimed sensitivity.

Record and replay: the noise is replaced by a recorder, so that the exact sums and the sensitivity the noise
was asked for can be compared in Python's own integers.
"""

from __future__ import annotations

import importlib
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import refusals
from contracts import FEATURE_MAPS, KERNELS, FeatureCase, close_together
from door_cases import (
    COORDINATE,
    HOSTILE,
    Claimed,
    Recorder,
    assert_integers_fit,
    every_map,
    exact_delta,
    recorded,
    squared_distance,
    unread,  # noqa: F401  (refusals.txt)
)
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import chi2

from kmeanalyst.kernels import Gaussian
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import table_kernel
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Date, Integer, Real
from kmeanalyst.releases.measurement import GRID, SHRINK, Measurement, feature_mean, mean_unit
from kmeanalyst.releases.statement import GAUSSIAN, PrivacyStatement, StatementError, gaussian_delta
from release_side.door.mechanism import GaussianNoise, check_int64_range
from release_side.door.private_mean import integer_features, private_mean

door = importlib.import_module("release_side.door.private_mean")  # the package's own name is the function's


def assert_neighbours_are_within_the_sensitivity(table: Array, neighbour: Array, feature_map: FeatureMap) -> None:
    one, other = recorded(table, feature_map), recorded(neighbour, feature_map)
    assert one.sensitivity == other.sensitivity
    assert squared_distance(one.exact_sum, other.exact_sum) <= Fraction(one.sensitivity) ** 2


@every_map
def test_the_sensitivity_is_the_diameter_not_twice_the_diameter(maps: list[FeatureCase]):
    """Replace-one removes one row and adds another: the sum moves by φ(x) − φ(x′), at most the diameter."""
    for case in maps:
        feature_map = case.build(8)
        recorder = recorded(case.case.rows(np.random.default_rng(0), 5), feature_map)
        assert recorder.sensitivity == pytest.approx(feature_map.diameter / feature_map.norm_bound * GRID, rel=1e-15)
        assert recorder.sensitivity == pytest.approx((np.sqrt(2) if close_together(feature_map) else 2) * GRID, rel=1e-15)


def test_the_sensitivity_is_reached():
    """Two rows with opposite features: a smaller claim than 2 · GRID would be false."""
    feature_map = RandomFourier(Gaussian(1.0), np.array([[1.0]]))
    one, other = (recorded(np.array([[x]]), feature_map) for x in (0.0, np.pi))
    reached = np.sqrt(float(squared_distance(one.exact_sum, other.exact_sum)))
    assert (1 - 1e-5) * one.sensitivity < reached <= one.sensitivity


@every_map
def test_a_hostile_neighbour_stays_within_the_sensitivity(maps: list[FeatureCase]):
    """One row of the table replaced by anything a float64 can be, in one cell or in all of them."""
    for case in maps:
        for size in [2, 40]:
            feature_map = case.build(size)
            rng = np.random.default_rng(1)
            table = case.case.rows(rng, 30)
            for value in HOSTILE:
                neighbour = table.copy()
                neighbour[7] = value
                assert_neighbours_are_within_the_sensitivity(table, neighbour, feature_map)
                neighbour = table.copy()
                neighbour[0, rng.integers(table.shape[1])] = value
                assert_neighbours_are_within_the_sensitivity(table, neighbour, feature_map)


def small_domain() -> Domain:
    return Domain((
        Integer(name="age", lower=0, upper=120), Real(name="income", lower=1, upper=1e6, scale="log", missing=True),
        Categorical(name="city", levels=("A", "B", "C")), Boolean(name="flag"),
        Date(name="day", lower="2000-01-01", upper="2030-01-01"),
    ))  # fmt: skip


def test_hostile_cells_go_through_the_domain_and_the_door_without_a_trace():
    for cell in ["", "nan", "inf", "-inf", "1e999", "-0.0", "\ud800", "x" * 99, "9" * 400, None, np.nan, b"1", []]:
        domain = small_domain()
        feature_map = RandomFourier.draw(
            table_kernel(domain), n_columns=5, dimension=64, missing_columns=domain.missing_columns, rng=0
        )
        table = {name: list(values) for name, values in domain.decode(domain.draw(20, 0)).astype(object).items()}
        neighbour = {name: [cell, *values[1:]] for name, values in table.items()}
        assert_neighbours_are_within_the_sensitivity(domain.encode(table), domain.encode(neighbour), feature_map)


@given(
    features=st.integers(1, 20).flatmap(lambda f: arrays(np.float64, (3, f), elements=COORDINATE)),
    bound=st.sampled_from([1.0, 0.5, np.sqrt(2.5), 1e-3, 1e6]),
    nonnegative=st.booleans(),
)
def test_any_features_whatever_become_integers_within_the_bound(features, bound, nonnegative):
    claimed = Claimed(features, norm_bound=bound, nonnegative=nonnegative)
    assert_integers_fit(integer_features(claimed.all_rows, claimed), nonnegative=nonnegative)


@given(
    seed=st.integers(0, 2**32),
    dimension=st.sampled_from([1, 2, 3, 16, 17, 257, 5000]),
    excess=st.sampled_from(
        [-(2.0**-18), -(2.0**-40), 0.0, 2.0**-52, 2.0**-40, 2.0**-19, 2.0**-18, 1.001 * 2.0**-18, 2.0**-10, 1.0]
    ),
)
def test_a_norm_slightly_over_the_bound_is_brought_within_it(seed, dimension, excess):
    direction = np.random.default_rng(seed).normal(size=(2, dimension))
    features = direction / np.linalg.norm(direction, axis=1, keepdims=True) * (1 + excess)
    assert_integers_fit(integer_features(Claimed(features).all_rows, Claimed(features)))


def test_coordinates_at_the_bound_do_not_wrap():
    """256 coordinates of 2^28: the sum of squares is 2^64, which is 0 in 64-bit integers."""
    for value in [1.0, -1.0, 1 / SHRINK, 2.0, 2.0**33]:
        for dimension in [1, 4, 255, 256, 257, 1024]:
            claimed = Claimed(np.full((1, dimension), value))
            assert_integers_fit(integer_features(claimed.all_rows, claimed))


def test_the_checks_above_see_a_sum_of_squares_that_wraps(monkeypatch: pytest.MonkeyPatch):
    """Their power: with the norm taken in 64-bit integers, or not taken at all, they fail."""
    wraps = lambda z, nonnegative: (z.astype(np.int64) ** 2).sum(axis=1) <= GRID**2  # noqa: E731
    claimed = Claimed(np.full((1, 256), 1 / SHRINK))
    for mutant in (wraps, lambda z, nonnegative: np.ones(len(z), dtype=bool)):
        monkeypatch.setattr(door, "within_norm", mutant)
        with pytest.raises(AssertionError):
            assert_integers_fit(integer_features(claimed.all_rows, claimed))


def test_a_row_within_the_bound_is_only_rounded():
    """Enforcing the bound must not change honest rows: z = rint(φ/B · GRID · SHRINK)."""
    case = FEATURE_MAPS[22]  # a subspace of a scaled kernel, B = √2.5: cosines have whole numbers of their own
    feature_map = case.build(50)
    rows = case.case.rows(np.random.default_rng(0), 200)
    expected = np.rint(feature_map(rows) * (GRID * SHRINK / feature_map.norm_bound))
    np.testing.assert_array_equal(integer_features(rows, feature_map), expected)


def test_rounding_a_million_features_shortens_no_image_at_the_bound():
    """Nearly all coordinates are rounded up by almost a half, √F/2 = 500 in norm: SHRINK leaves 1024 steps."""
    each = GRID * SHRINK / 1000  # F = 10^6 equal coordinates of a unit vector
    features = np.full((1, 10**6), np.ceil(each - 0.5) + 0.5001)
    features[:, int((each - features[0, 0] + 1) * 10**6) - 100 :] -= 1
    claimed = Claimed(features / (GRID * SHRINK))
    assert 1 - 1e-9 < np.linalg.norm(claimed.features) <= 1
    z = integer_features(claimed.all_rows, claimed)
    np.testing.assert_array_equal(z, np.rint(features))
    assert np.linalg.norm(z) > GRID * SHRINK + 490


def test_a_non_finite_image_counts_as_zero():
    claimed = Claimed(np.array([[0.5, 0.1], [np.nan, 0.1], [np.inf, 0.0]]))
    z = integer_features(claimed.all_rows, claimed)
    assert (z[0] != 0).all()
    np.testing.assert_array_equal(z[1:], 0)


def test_a_finite_image_beyond_the_bound_is_shortened_not_lost():
    """Its squares may overflow; it still counts with (almost) the longest length there is."""
    for size in [1.0001, 2.0, 1e160, 1e290]:
        for nonnegative in [False, True]:
            claimed = Claimed(size * np.array([[0.6, 0.8, -0.0]]), nonnegative=nonnegative)
            z = integer_features(claimed.all_rows, claimed)
            assert_integers_fit(z, nonnegative=nonnegative)
            assert np.linalg.norm(z) >= (1 - 2.0**-18 - 1e-8) * GRID


class ClaimedOfPairs(Claimed):
    """Of the distance of two images as they are: one that is shortened may be farther from another."""

    pairwise = True


def test_an_image_beyond_the_bound_of_a_map_of_pairs_counts_as_zero():
    features = np.array([[0.6, 0.8], [0.61, 0.81]])
    z = integer_features(ClaimedOfPairs(features).all_rows, ClaimedOfPairs(features))
    assert np.abs(z[0]).min() > 0 and not z[1].any()


@given(features=arrays(np.float64, (6, 4), elements=COORDINATE), nonnegative=st.booleans())
def test_the_distance_of_any_two_tables_is_within_the_sensitivity(features, nonnegative):
    """√2 for non-negative features, 2 else; its last bit is covered by the factor 1 + 1e-9 on the noise."""
    claimed = Claimed(features, nonnegative=nonnegative)
    one, other = recorded(claimed.all_rows[[0, 1, 2]], claimed), recorded(claimed.all_rows[[0, 1, 3]], claimed)
    assert one.sensitivity == pytest.approx((np.sqrt(2) if nonnegative else 2) * GRID, rel=1e-15)
    assert squared_distance(one.exact_sum, other.exact_sum) <= Fraction(one.sensitivity * (1 + 1e-9)) ** 2


@every_map
def test_the_sum_does_not_depend_on_pieces_order_or_workers(maps: list[FeatureCase], monkeypatch: pytest.MonkeyPatch):
    """It is the sum of each row's own integers, to the last bit."""
    for case in maps:
        feature_map, rng = case.build(30), np.random.default_rng(2)
        rows = case.case.rows(rng, 50)
        rows[:3] = [[np.inf], [1e308], [-0.0]]
        exact = sum(integer_features(row[None], feature_map)[0].astype(int).astype(object) for row in rows)
        assert recorded(rows, feature_map).exact_sum.tolist() == list(exact)
        pieces = np.split(rows, np.sort(rng.integers(0, len(rows), 9)))
        orders = [[rows[::-1]], [rows[rng.permutation(len(rows))]], pieces, [*pieces[::-1], rows[:0]]]
        for entries, variant, workers in zip((377, 377, 1, 377), orders, (1, 2, 3, 8), strict=True):
            monkeypatch.setattr(door, "_BLOCK_ENTRIES", entries)
            found = recorded(rows, feature_map, pieces=variant, workers=workers).exact_sum
            assert found.tolist() == list(exact)


def test_the_largest_sums_are_exact():
    """2^21 rows at the bound: the sum is 2^51 and stays exact as it grows piece by piece."""
    claimed = Claimed(np.array([[1.0]]))
    piece = np.zeros((2**18, 1))
    one = int(integer_features(piece[:1], claimed)[0, 0])
    assert recorded(piece, claimed, pieces=[piece] * 8).exact_sum[0] == one * 2**21


def test_the_measurement_reads_the_integers_in_units_of_the_mean():
    """Without noise it is the mean feature vector, to the rounding of the grid."""
    for case in FEATURE_MAPS[:10]:
        feature_map, rows = case.build(20), case.case.rows(np.random.default_rng(3), 60)
        measurement = private_mean([rows], feature_map, Recorder(), n_rows=60)  # type: ignore[arg-type]
        np.testing.assert_allclose(measurement.vector, feature_map(rows).mean(axis=0), atol=0.6 * feature_map.norm_bound / GRID)
        np.testing.assert_allclose(feature_mean(measurement.feature_map, rows), feature_map(rows).mean(axis=0), atol=1e-12)
        assert measurement.n_rows == 60 and measurement.feature_map is feature_map


def test_the_noise_multiplier_keeps_its_promise_and_wastes_nothing():
    for epsilon in [0.01, 0.1, 1.0, 10.0]:
        for delta in [1e-6, 1e-9]:
            multiplier = GaussianNoise(epsilon, delta).multiplier()
            assert exact_delta(epsilon, multiplier) <= delta
            assert exact_delta(epsilon, multiplier * (1 - 1e-6)) > delta


def test_the_classical_calibration_of_the_papers_would_not_pass():
    """The power of the test above: √(2 ln(1.25/δ))/ε is too small at ε = 10 and too large at ε = 1."""
    classical = np.sqrt(2 * np.log(1.25 / 1e-6))
    assert exact_delta(10.0, classical / 10) > 1e-6
    assert exact_delta(1.0, classical * (1 - 0.2)) < 1e-6


@given(epsilon=st.floats(1e-3, 50), multiplier=st.floats(0.05, 200))
def test_gaussian_delta_agrees_with_40_digits(epsilon, multiplier):
    """Relative 1e-8: Φ in logarithms is good to about 1e-15 · |log Φ|, and the two terms may nearly cancel."""
    exact = exact_delta(epsilon, multiplier)
    found = gaussian_delta(epsilon=epsilon, noise_multiplier=multiplier)
    assert 0 <= found <= 1
    assert found == pytest.approx(float(exact), rel=1e-8, abs=1e-280)


def test_gaussian_delta_at_its_extremes():
    assert gaussian_delta(epsilon=1.0, noise_multiplier=1e-9) == 1.0
    assert gaussian_delta(epsilon=1.0, noise_multiplier=1e9) == 0.0
    assert gaussian_delta(epsilon=1e4, noise_multiplier=1.0) == 0.0


def test_the_noise_of_a_release_has_the_scale_that_its_statement_says():
    """2000 coordinates: their mean square over the stated variance is χ²/2000, outside its tails once in 10^6 runs."""
    case = KERNELS[0]
    feature_map = RandomFourier.draw(case.kernel, n_columns=3, dimension=2000, rng=0)
    rows = case.rows(np.random.default_rng(0), 50, missing=0.0)
    noise = GaussianNoise(0.7, 1e-6)
    measurement = private_mean([rows], feature_map, noise, n_rows=50)
    error = (measurement.vector - feature_map(rows).mean(axis=0)) / measurement.noise_scale
    assert (error != 0).all()
    low, high = chi2.ppf([5e-7, 1 - 5e-7], 2000) / 2000
    assert low < np.mean(error**2) < high
    assert not low < np.mean((error * 1.25) ** 2) < high  # and a scale off by a quarter is seen


def statement(measurement: Measurement, noise: GaussianNoise, **changes) -> PrivacyStatement:
    """The statement of a measurement, from public facts: the sensitivity of the mean is the diameter over SHRINK · N."""
    sensitivity = measurement.feature_map.diameter / (SHRINK * measurement.n_rows)
    facts = dict(
        epsilon=noise.epsilon, delta=noise.delta, neighbouring="replace-one", mechanism=noise.name,
        sensitivity=sensitivity,
        noise_scale=measurement.noise_scale, calibration=noise.calibration,
        rho=sensitivity**2 / (2 * measurement.noise_scale**2), n_rows=measurement.n_rows,
    )  # fmt: skip
    return PrivacyStatement(**(facts | changes))


def test_the_statement_recomputes_from_the_measurement_and_a_better_claim_is_refused():
    feature_map = FEATURE_MAPS[7].build(10)  # B = √2.5
    noise = GaussianNoise(1.0, 1e-6)
    rows = KERNELS[7].rows(np.random.default_rng(0), 20)
    measurement = private_mean([rows], feature_map, noise, n_rows=20)
    honest = statement(measurement, noise)
    honest.check_arithmetic()
    assert honest.noise_multiplier == pytest.approx(noise.multiplier(), rel=1e-12)
    assert measurement.noise_scale == pytest.approx(
        noise.multiplier() * 2 * GRID * mean_unit(n_rows=20, feature_map=feature_map), rel=1e-12
    )
    for better in (
        {"noise_scale": measurement.noise_scale / 2, "rho": 4 * honest.rho},  # half the noise
        {"sensitivity": 2 * honest.sensitivity, "rho": 4 * honest.rho},  # the factor-two trap
        {"epsilon": 0.99}, {"delta": 0.99e-6}, {"delta": 0.0},
    ):  # fmt: skip
        message = r"the file claims δ = .*claim is better than the arithmetic.*do not rely"
        with pytest.raises(StatementError, match=message):
            statement(measurement, noise, **better).check_arithmetic()
    with pytest.raises(StatementError, match=r"claims ρ = .*its noise gives"):
        statement(measurement, noise, rho=honest.rho / 2).check_arithmetic()


GOOD = dict(epsilon=1.0, delta=1e-6, neighbouring="replace-one", mechanism="discrete gaussian", sensitivity=0.1,
            noise_scale=0.5, calibration="analytic", rho=0.02, n_rows=10)  # fmt: skip


HEADER = PrivacyStatement(**GOOD, taken_as_public=("N",), versions={"kmeanalyst": "0"}).to_dict()


def test_a_statement_read_back_is_the_statement_written():
    assert PrivacyStatement.from_dict(HEADER).to_dict() == HEADER


PAIR = Claimed(np.zeros((1, 2)))
NOISE, NOTHING_DRAWN = GaussianNoise(1.0, 1e-6), Recorder()


def reading(vector: Array, scale: float) -> Measurement:
    return Measurement.from_sum(vector, grid_scale=scale, n_rows=1, feature_map=PAIR, noise_law=GAUSSIAN)


def test_what_gives_no_guarantee_is_refused_by_public_facts_alone():
    """Wrong statements and budgets; sums beyond 64 bits, where OpenDP would saturate silently; tables of another length."""
    PrivacyStatement(**GOOD)
    check_int64_range(n_rows=2**34, dimension=10**6, grid=GRID)
    names = vars(importlib.import_module("release_side.door.mechanism")) | globals()
    refusals.check(Path(__file__).parent / "refusals.txt", lambda text: eval(text, names))
    assert NOTHING_DRAWN.exact_sum is None


def test_the_mean_of_features_is_the_same_in_blocks(monkeypatch: pytest.MonkeyPatch):
    feature_map, rows = FEATURE_MAPS[0].build(10), KERNELS[0].rows(np.random.default_rng(0), 40)
    weights = np.random.default_rng(1).normal(size=40)
    expected = weights @ feature_map(rows)
    monkeypatch.setattr("kmeanalyst.kernels.embedding._BLOCK_ENTRIES", 33)
    np.testing.assert_allclose(feature_mean(feature_map, rows, weights), expected, atol=1e-13)
