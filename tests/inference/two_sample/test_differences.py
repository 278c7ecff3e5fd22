"""Release against release, and tables against a sample: what each side measured, its noise and what it leaves open."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import cauchy, norm
from simulated_releases import DOMAIN, KERNEL, MAPS, NOISE_SCALE, L, N, measured_release, measurement_of, noisy, population

import kmeanalyst as ka
from kmeanalyst.inference.two_sample import column_functions, differences
from kmeanalyst.inference.two_sample.differences import differences_of
from kmeanalyst.inference.two_sample.noise_aware import direction_weights, size_of_difference
from kmeanalyst.inference.two_sample.sides import SampleRows, directions_of
from kmeanalyst.inference.weighted_chi_squared import NormalQuadraticForm
from kmeanalyst.kernels import Gaussian
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.kernels.margins import ChosenMargins, MarginFeatures
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Real
from kmeanalyst.releases.memo import memo

OTHER_MAPS = {
    "other frequencies": RandomFourier.draw(KERNEL, n_columns=2, dimension=300, rng=2),
    "another lengthscale": RandomFourier.draw(Gaussian(2.5), n_columns=2, dimension=300, rng=3),
    "a subspace": MAPS["subspace"],
}
TABLES = Domain(
    (Real(name="x", lower=-3, upper=3), Categorical(name="c", levels=("a", "b")), Categorical(name="e", levels=("a", "b")))
)
COARSE, FINE = (0.0,), (-1.0, 0.0, 1.0)


@pytest.fixture
def few_reference_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quicker; the levels hold with any."""
    monkeypatch.setattr(column_functions, "_ROWS", 100)


def tables(edges: tuple[float, ...], chosen: tuple[tuple[int, ...], ...], heights: tuple[float, ...]) -> MarginFeatures:
    """Tables of x in ranges, of c, of e, and of chosen sets, with these squared heights in all."""
    squares: Any = (heights[:3], heights[3:], ())
    cells, shares = ((edges, (0.5,), (0.5,)), ((),) * 3, (False,) * 3), (sum(heights[:3]), sum(heights[3:]), 0.0)
    return MarginFeatures(ChosenMargins(*cells, shares, chosen=chosen, squares=squares))


FINELY = tables(FINE, ((0, 1), (1, 2)), (0.2, 0.2, 0.2, 0.2, 0.2))
COARSELY = tables(COARSE, ((0, 1), (0, 2)), (0.1, 0.3, 0.2, 0.3, 0.1))


def people(n: int, rng: np.random.Generator, shift: float = 0.0, tie: float = 0.8) -> np.ndarray:
    """x shifts together with c, and with probability `tie` c is whether x is large; e is noise."""
    x = rng.normal(size=n)
    c = np.where(rng.random(n) < tie, x > 0.3, rng.random(n) < 0.4)
    c = np.where(rng.random(n) < shift, 1, c)
    return np.column_stack([np.clip(x + shift, -3, 3), c, rng.random(n) < 0.5]).astype(float)


def measured(
    features: MarginFeatures, rows: np.ndarray, tau: float, rng: np.random.Generator, law: str = "discrete gaussian"
) -> ka.Release:
    """Around the rows' own tables; the points are the rows."""
    vector = features(rows).mean(axis=0) + tau * rng.normal(size=features.dimension)
    return measured_release(measurement_of(features, vector, tau, len(rows), law), TABLES, rows)


@pytest.mark.levels
def test_tables_hold_their_level_for_each_test_and_all_together():
    """200 pairs: 5 % are 10, more than 22 come with probability 3e-4, and as many for each test; of none, fewer than 1."""
    rng, found, single = np.random.default_rng(0), [], []
    for _ in range(200):
        a, b = measured(FINELY, people(500, rng), 0.01, rng), measured(COARSELY, people(800, rng), 0.02, rng)
        differences = differences_of(a, b)
        found.append(differences.result(a).pvalue)
        single.append([each.pvalue for each in (differences.together, *differences.sets.values())])
    assert (np.array(found) <= 0.05).sum() <= 22
    rejected = (np.array(single) <= 0.05).sum(axis=0)
    assert len(rejected) == 5 and rejected.max() <= 22 and rejected.min() >= 1


def test_a_broken_relation_is_found_where_both_measured_the_pair_and_a_common_shift_is_none_of_the_pair():
    rng = np.random.default_rng(1)
    a = measured(FINELY, people(4000, rng), 0.005, rng)
    broken, moved = (measured(COARSELY, people(4000, rng, **how), 0.005, rng) for how in ({"tie": 0.3}, {"shift": 0.2}))
    assert [*differences_of(a, broken).sets][3:] == [(0, 1)]  # (1, 2) and (0, 2) were measured by one of them
    assert differences_of(a, broken).sets[0, 1].pvalue < 1e-6
    assert ka.mmd_test(a, broken).pvalue < 1e-5
    shifted = differences_of(a, moved)
    assert shifted.sets[0,].pvalue < 1e-6 < 0.001 < shifted.sets[2,].pvalue
    independent = [measured(COARSELY, people(4000, rng, s, tie=0.0), 0.005, rng) for s in (0.0, 0.2)]
    assert differences_of(*independent).sets[0, 1].pvalue > 0.001 > differences_of(*independent).sets[0,].pvalue


def test_a_function_of_two_cells_has_the_difference_and_the_variance_computed_by_hand():
    """u = (1{x ≥ 0} − m)/s: shares from both tables that hold x, by their precision: h² alone, and h²/2 over the cells of c."""
    rng = np.random.default_rng(2)
    a, b = measured(COARSELY, people(500, rng), 0.02, rng), measured(COARSELY, people(500, rng), 0.03, rng)
    shares, variances = [], []
    for release in (a, b):
        y, tau, h = release.measurement.vector, release.measurement.noise_scale, np.sqrt([0.1, 0.3, 0.1])
        precision = np.array([0.1, 0.3 / 2, 0.1 / 2]) / (2 * tau**2)  # of the contrast (1, -1)/2: its noise is 2 · τ²/4
        own, by_c = y[:2] / h[0], y[6:10].reshape(2, 2).sum(axis=1) / h[1]
        by_e = y[10:].reshape(2, 2).sum(axis=1) / h[2]
        shares.append(np.average([part[1] - part[0] for part in (own, by_c, by_e)], weights=precision))
        x = release.encoded_points[:, 0] >= 0
        variances.append(1 / precision.sum() + 4 * x.mean() * (1 - x.mean()) / 500)
    found = differences_of(a, b).sets[0,]
    z = (shares[0] - shares[1]) / np.sqrt(sum(variances))
    # points get the measured share p, near half: p(1 − p) hardly moves
    assert found.means.shape == (1,) and found.means[0] ** 2 / found.covariance[0, 0] == pytest.approx(z**2, rel=0.01)


def test_the_order_does_not_matter_and_laplace_noise_makes_a_large_statistic_less_surprising():
    rng = np.random.default_rng(3)
    a, b = measured(FINELY, people(500, rng), 0.03, rng), measured(COARSELY, people(500, rng, 0.3), 0.03, rng)
    forth, back = ka.mmd_test(a, b), ka.mmd_test(b, a)
    assert forth.pvalue == pytest.approx(back.pvalue, rel=1e-6) and forth.n_sample_rows == back.n_sample_rows == 500
    known = differences_of(a, b)
    tests = [known.together.pvalue, *(known.sets[j,].pvalue for j in range(3)), known.sets[0, 1].pvalue]
    combined = np.array([1 / 2, *[1 / 12] * 3, 1 / 8]) @ cauchy.isf(np.minimum(tests, 0.99))
    assert forth.pvalue == pytest.approx(cauchy.sf(combined)) and min(tests) < forth.pvalue < 2 * tests[0] < 1
    heavy = a.replaced(measurement=replace(a.measurement, noise_law="discrete laplace"))
    heavier = ka.mmd_test(heavy, b)
    assert heavier.statistic == pytest.approx(forth.statistic) and heavier.pvalue > forth.pvalue


def test_compare_shows_columns_pairs_and_differences_of_two_releases_and_no_rows():
    rng = np.random.default_rng(4)
    a, b = measured(FINELY, people(4000, rng), 0.005, rng), measured(COARSELY, people(4000, rng, 0.2), 0.005, rng)
    found = ka.compare(a, b)
    assert found.columns["differs"].to_dict() == {"x": True, "c": True, "e": False}
    assert found.overall == ka.mmd_test(a, b)
    assert found.pairs.set_index(["first", "second"])["pvalue"].drop(("x", "c")).eq(1).all()
    first = found.differences.set_index(["column", "quantity"])
    assert first.loc[("c", "b"), "second release"] == pytest.approx(b.probability("c == 'b'").value)
    both = np.hypot(a.mean("x").standard_error, b.mean("x").standard_error)
    assert first.loc[("x", "mean"), "difference"] / first.loc[("x", "mean"), "standard_error"] == pytest.approx(
        (a.mean("x").value - b.mean("x").value) / both
    )
    assert found.to_dict()["differs"] and "seen" not in found.to_text()  # nothing is known of it


def against(release: ka.Release, rows: np.ndarray):
    return differences_of(release, SampleRows(release, rows))


def test_a_sample_is_counted_in_the_tables_and_varies_as_the_points_do():
    """u at the two cells of x, in its one-way table alone: yᵀu/h less the rows' mean of u; τ²uᵀu/h² and Var u (1/N + 1/n)."""
    rng, n = np.random.default_rng(5), 2000
    release, rows = measured(tables(COARSE, (), (0.4, 0.3, 0.3)), people(500, rng), 0.02, rng), people(n, rng)
    found, kernel = against(release, rows).sets[0,], release.measurement.feature_map.kernel
    u = differences._Functions([release], [kernel]).at_cells(kernel)[0][:, 0]
    y, tau, h = release.measurement.vector[:2], release.measurement.noise_scale, np.sqrt(0.4)
    p, share = ((each[:, 0] >= 0).mean() for each in (release.encoded_points, rows))
    variance = tau**2 * u @ u / h**2 + (u[1] - u[0]) ** 2 * p * (1 - p) * (1 / 500 + 1 / n)
    z = (y @ u / h - u[0] - share * (u[1] - u[0])) / np.sqrt(variance)
    seen = found.means[0] / np.sqrt(found.covariance[0, 0])
    assert found.draws is None and abs(seen) == pytest.approx(abs(z), rel=0.01)
    assert found.pvalue == pytest.approx(2 * norm.sf(abs(seen)), rel=1e-6)
    blocks = [TABLES.decode(part) for part in np.array_split(rows, 7)]
    assert ka.mmd_test(release, blocks).pvalue == pytest.approx(against(release, rows).pvalue, rel=1e-9)


@pytest.mark.parametrize("n", [20, 3000])
@pytest.mark.levels(but="20")
def test_samples_hold_the_level_of_each_test_and_of_all_together(n, few_reference_rows):
    """100 pairs: 5 % are 5, more than 13 come with probability 5e-4, and as many for each test."""
    rng, single = np.random.default_rng(6), []
    for _ in range(100):
        found = against(measured(FINELY, people(2000, rng), 0.01, rng), people(n, rng))
        single.append([found.pvalue, *(each.pvalue for each in (found.together, *found.sets.values()))])
    rejected = (np.array(single) <= 0.05).sum(axis=0)
    assert len(rejected) == 7 and rejected.max() <= 13


def test_a_sample_shows_a_broken_relation_and_no_shift_of_both_columns_as_one():
    rng = np.random.default_rng(7)
    release = measured(FINELY, people(4000, rng), 0.005, rng)
    broken, moved = (against(release, people(4000, rng, **how)) for how in ({"tie": 0.3}, {"shift": 0.2}))
    assert broken.sets[0, 1].pvalue < 1e-6 and broken.pvalue < 1e-5
    assert moved.sets[0,].pvalue < 1e-6 < 0.001 < moved.sets[2,].pvalue
    independent = measured(FINELY, people(4000, rng, tie=0.0), 0.005, rng)
    shifted = against(independent, people(4000, rng, 0.2, tie=0.0))
    assert shifted.sets[0, 1].pvalue > 0.001 > shifted.sets[0,].pvalue


def test_a_difference_in_one_column_of_many_is_found_that_is_hidden_among_all(few_reference_rows):
    """Twelve columns of four levels; in the sample a seventh of the cells of one has the first level."""
    domain = Domain(tuple(Categorical(name=f"c{j}", levels=tuple("abcd")) for j in range(12)))
    kernel = ChosenMargins(((0.5, 1.5, 2.5),) * 12, ((),) * 12, (False,) * 12, (1.0, 0, 0), squares=((1 / 12,) * 12, (), ()))
    features, rng, found, together = MarginFeatures(kernel), np.random.default_rng(1), 0, 0
    for _ in range(24):
        table, rows = (rng.integers(0, 4, (n, 12)).astype(float) for n in (2000, 400))
        rows[:57, 0] = 0
        vector = features(table).mean(axis=0) + 0.002 * rng.normal(size=48)
        known = against(measured_release(measurement_of(features, vector, 0.002, 2000), domain, table), rows)
        found, together = found + (known.pvalue <= 0.05), together + (known.together.pvalue <= 0.025)
    assert found >= 14 and found >= 1.25 * together


def test_laplace_noise_is_no_less_cautious_in_a_small_sample():
    rng = np.random.default_rng(8)
    release, rows = measured(FINELY, people(500, rng), 0.03, rng), people(30, rng, 0.8)
    heavy = release.replaced(measurement=replace(release.measurement, noise_law="discrete laplace"))
    assert against(heavy, rows).pvalue >= against(release, rows).pvalue


def pair(first, second, noise_scale, rng, shift=0.0):
    return tuple(
        noisy(m, m(population(N, rng, s)).mean(axis=0), noise_scale, rng, n_points=60) for m, s in ((first, 0.0), (second, shift))
    )


@pytest.mark.parametrize("name", sorted(OTHER_MAPS))
@pytest.mark.levels(but="other frequencies")
def test_smooth_features_hold_their_level_and_show_a_difference(name, few_reference_rows):
    rng, same, different = np.random.default_rng(7), [], []
    for _ in range(draws := 2 if name == "other frequencies" else 4):
        for found, shift in ((same, 0.0), (different, 0.8)):
            sides = pair(MAPS["random-features"], OTHER_MAPS[name], NOISE_SCALE[1.0], rng, shift)
            found.append(differences_of(*sides))
    # 4 draws at 5 %: above with probability .014, and tests of smooth features are cautious
    assert sum(r.pvalue <= 0.05 for r in same) <= 1
    assert sum(r.pvalue <= 0.05 for r in different) >= 0.75 * draws
    shown = different[-1].result(sides[0])
    assert "in 1 sets of columns" in shown.notes[0] and shown.noise_aware


def test_smooth_features_are_compared_with_tables_and_domains_of_different_bounds_in_natural_units(few_reference_rows):
    wide = Domain(tuple(Real(name=f"x{j}", lower=-8, upper=8) for j in range(2)))
    rng = np.random.default_rng(10)
    a, b = pair(MAPS["random-features"], OTHER_MAPS["other frequencies"], NOISE_SCALE[1.0], rng)
    assert ka.mmd_test(a, b.replaced(domain=wide)).pvalue > 1e-3
    counted = MarginFeatures(ka.kernels.Margins(((-1.0, 0.0, 1.0),) * 2, ((),) * 2, (False,) * 2, (0.5, 0.5, 0.0)))
    near, far = (noisy(counted, counted(population(N, rng, s)).mean(axis=0), 0.005, rng) for s in (0.0, 1.0))
    assert ka.mmd_test(a, near).pvalue > 1e-3 > ka.mmd_test(far, a).pvalue


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
        directions = memo(release).setdefault("directions", directions or directions_of(release, release.measurement.feature_map))
        low, high = ka.mmd_test(release, DOMAIN.decode(population(L, rng, shift))).mmd_interval
        missed += not low <= truth <= high
    assert missed <= 5


def test_of_rows_that_hardly_vary_the_detectable_distance_is_that_of_the_noise():
    feature_map, rng, shrink = MAPS["random-features"], np.random.default_rng(4), 1e-3
    release = noisy(feature_map, feature_map(population(N, rng)).mean(axis=0), NOISE_SCALE[0.1], rng)
    directions, noise = directions_of(release, feature_map), release.measurement
    still = 1e-12 * np.diag(directions.variances)
    found = size_of_difference(release.measurement.vector, directions, still, 1e-12, shrink, noise)
    weights = direction_weights(directions, shrink, noise.noise_scale**2)
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
