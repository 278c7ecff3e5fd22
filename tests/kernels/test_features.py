"""Feature maps: their norm bound is proven, attacked here; a row's features depend on that row alone, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from contracts import FAMILIES, FEATURE_MAPS, KERNELS, SOME_MAPS, FeatureCase, KernelCase, close_together, every
from feature_cases import hoeffding, largest_error, worst_rows
from hypothesis import given
from hypothesis import strategies as st

from kmeanalyst.kernels import Gaussian, Indicator, MultiScale, Scaled, SoftenedProduct, margins
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features import binning, certified, composed, fourier, maclaurin, nystroem, pivots
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.features.certified import CertifiedNystroem
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.kernels.features.nystroem import ExactProduct, Nystroem
from kmeanalyst.kernels.features.pivots import STRETCH, Pivots

every_map, every_kernel = every(FEATURE_MAPS, SOME_MAPS), every(KERNELS)
RANDOM = [case for case in FEATURE_MAPS if case.family == "random-fourier" or case.make is FAMILIES["sum"]]


def rounding_of(feature_map: FeatureMap) -> float:
    """How far a feature vector may be from its exact value, in norm: a bound from the proof of `ExactProduct`.

    Each factor is cut to 2^-41 of its scale (at most twice the largest entry), so a coordinate is off by at most
    2^-40 · bound · (Σ|B| + m · max|B|); the inverse factor itself is off by about m · 2^-52 · ‖L⁻¹‖² (backward error).
    """
    if not isinstance(feature_map, Nystroem):
        return feature_map.norm_bound * 1e-13
    inverse = np.abs(np.linalg.inv(feature_map._factor))
    m = len(inverse)
    cut = 2.0**-40 * feature_map.kernel.bound**2 * (inverse.sum(axis=1) + m * inverse.max(axis=1))
    return float(np.linalg.norm(cut)) + m * 2.0**-52 * feature_map.kernel.bound**2 * float((inverse**2).sum())


@every(RANDOM, SOME_MAPS)
def test_random_features_approximate_their_kernel_and_not_nine_tenths_of_it(case: FeatureCase):
    """With missing cells too. False alarms: 1e-9 for each kernel (the frequencies are drawn from a fixed seed)."""
    rows, kernel = case.case.rows(np.random.default_rng(0), 14), case.case.kernel
    feature_map = case.build(40_000, seed=1)
    allowed = kernel.bound**2 * hoeffding(2.0, terms=20_000, pairs=105)
    assert largest_error(feature_map, rows, kernel) <= allowed
    assert largest_error(feature_map, rows, Scaled(0.9, kernel)) > allowed


def test_a_missing_cell_is_orthogonal_to_every_number_where_the_column_has_levels_too():
    kernel = 0.5 * Gaussian(1.0) + 0.5 * Indicator(3)
    rows = np.array([[0.0], [1.0], [np.nan]])
    feature_map = RandomFourier.draw(kernel, n_columns=1, dimension=40_000, missing_columns=[0], rng=0)
    assert largest_error(feature_map, rows) <= hoeffding(2.0, terms=20_000, pairs=6)


@every_kernel
def test_nystroem_reproduces_the_kernel_on_its_points(case: KernelCase):
    feature_map = FAMILIES["nystroem"](case, 40, np.random.default_rng(2))
    rounding = rounding_of(feature_map)
    assert largest_error(feature_map, feature_map.points) <= 3 * case.kernel.bound * rounding
    assert rounding < 1e-3 * case.kernel.bound  # else the line above would say nothing


@every_kernel
def test_nystroem_coordinates_are_those_of_the_projection(case: KernelCase):
    """For any row x: ⟨φ(z), φ(x)⟩ = k(z, x) at the points, Lβ the function's values, L⁻ᵀβ its weights."""
    rng = np.random.default_rng(3)
    feature_map = FAMILIES["nystroem"](case, 30, rng)
    rows = case.rows(rng, 8)
    values = case.kernel.gram(feature_map.points, rows)
    slack = 1e-6 * case.kernel.bound**2
    factor = feature_map.basis_features(np.arange(len(feature_map.points)))
    for coordinates, column in zip(feature_map(rows), values.T, strict=True):
        np.testing.assert_allclose(factor @ coordinates, column, atol=slack)
        weights = feature_map.coefficients(coordinates)
        K = case.kernel.gram(feature_map.points, feature_map.points)
        np.testing.assert_allclose(K @ weights, column, atol=slack)


@every_kernel
def test_fit_keeps_the_points_that_span_the_rest(case: KernelCase):
    """Duplicates go, and what is left out is within √tolerance of the span."""
    distinct = np.unique(case.rows(np.random.default_rng(4), 30), axis=0)
    doubled = np.vstack([distinct, distinct[::-1]])
    feature_map = Nystroem.fit(case.kernel, doubled, tolerance=1e-6)
    left_out = case.kernel.diagonal(doubled) - (feature_map(doubled) ** 2).sum(axis=1)
    assert feature_map.dimension <= len(distinct)
    assert left_out.max() <= 1e-6 * case.kernel.bound**2 + 3 * rounding_of(feature_map) * case.kernel.bound


def test_a_near_duplicate_is_left_out_and_a_distinct_point_kept():
    """k(0, 1e-6) = 1 − 5e-13: the squared distance 1e-12 is below the tolerance 1e-10; 0.1 is far enough."""
    feature_map = Nystroem.fit(Gaussian(1.0), np.array([[0.0], [1e-6], [0.1], [0.0]]))
    assert sorted(np.round(feature_map.points[:, 0], 3)) == [0.0, 0.1]


def test_points_that_are_not_a_basis_are_refused():
    for points in (np.array([[1.0], [1.0]]), np.zeros((0, 1))):
        with pytest.raises(ValueError, match=r"not linearly independent.*no basis\. Use Nystroem\.fit"):
            Nystroem(Gaussian(1.0), points)


def worst(feature_map: FeatureMap, numbers: list[int], start: Array, value: Callable[[Array], float]) -> float:
    return worst_rows(start, numbers, lambda rows: value(feature_map(rows)), tries=120)[1]


def largest_norm(features: Array) -> float:
    return float(np.sqrt((features**2).sum(axis=1).max()))


def distance(features: Array) -> float:
    return float(np.linalg.norm(features[0] - features[1]))


@every_map
def test_an_optimiser_finds_no_row_beyond_the_norm_bound_and_no_pair_beyond_the_diameter(case: FeatureCase):
    for feature_map in (case.build(2), case.build(24)):
        rng, rounding, numbers = np.random.default_rng(5), rounding_of(feature_map), case.case.number_columns
        allowed = feature_map.norm_bound + rounding
        assert worst(feature_map, numbers, case.case.rows(rng, 1), largest_norm) <= allowed
        assert worst(feature_map, numbers, case.case.rows(rng, 2), distance) <= feature_map.diameter + 2 * rounding
        assert largest_norm(feature_map(case.case.rows(rng, 3000))) <= allowed


@every_map
def test_the_norm_bound_is_reached(case: FeatureCase):
    """A bound that is too large would buy too much noise: some row has (nearly) this norm."""
    feature_map = case.build(24)
    rows = feature_map.points if isinstance(feature_map, Nystroem) else case.case.rows(np.random.default_rng(7), 60)
    assert largest_norm(feature_map(rows)) >= feature_map.kernel.bound * (1 - 1e-6)


class OffsetFourier(RandomFourier):
    """The other common form, √(2/R) cos(ωᵀx + b), for which the papers' code claims the bound 1."""

    def __call__(self, X: Array) -> Array:
        return np.sqrt(2 / self.n_frequencies) * np.cos(self.phases(X) + 1.0)


def test_the_attack_breaks_the_bound_that_the_papers_code_claims():
    """The power of the attack: offset cosines exceed norm 1."""
    drawn = RandomFourier.draw(Gaussian(1.0), n_columns=2, dimension=6, rng=0)
    wrong = OffsetFourier(drawn.kernel, drawn.linear)
    starts = np.random.default_rng(0).normal(size=(4, 1, 2))
    assert max(worst(wrong, [0, 1], start, largest_norm) for start in starts) > 1.2


@every_map
def test_the_diameter_follows_from_the_norm_bound(case: FeatureCase):
    feature_map = case.build(10)
    factor = np.sqrt(2) if close_together(feature_map) else 2.0
    assert feature_map.diameter == pytest.approx(factor * feature_map.norm_bound, rel=1e-15)
    room = 1 + STRETCH if isinstance(feature_map, Pivots | CertifiedNystroem) else 1  # whose bound allows for rounding
    assert feature_map.norm_bound == feature_map.kernel.bound * room == case.case.kernel.bound * room


def bits(features: Array) -> Array:
    return np.ascontiguousarray(features).view(np.int64)


def hard_rows(case: KernelCase, n: int, seed: int) -> Array:
    """Rows with missing cells and, in the columns of numbers, magnitudes that take other paths through cos and exp."""
    rng = np.random.default_rng(seed)
    rows = case.rows(rng, n)
    for j in case.number_columns:
        special = rng.random(n) < 0.1
        rows[special, j] = rng.choice([0.0, -0.0, 5e-324, 1e-160, 1e5, -1e8, 1e22, 1e150, -1e200], special.sum())
    return rows


@every_map
@pytest.mark.parametrize("size", [2, 66])
def test_features_do_not_depend_on_the_batch_bit_for_bit(case: FeatureCase, size: int):
    """Thousands of rows, so that the tails of vectorised loops fall everywhere; few and many features."""
    feature_map, rng = case.build(size), np.random.default_rng(8)
    rows = hard_rows(case.case, 2000, 9)
    with np.errstate(all="ignore"):
        whole = bits(feature_map(rows))
        np.testing.assert_array_equal(bits(feature_map(rows[::-1])), whole[::-1])
        np.testing.assert_array_equal(bits(feature_map(np.asfortranarray(rows))), whole)
        np.testing.assert_array_equal(bits(feature_map(rows[3::7])), whole[3::7])
        shuffled = rng.permutation(len(rows))
        np.testing.assert_array_equal(bits(feature_map(rows[shuffled])), whole[shuffled])
        cuts = np.sort(rng.integers(0, len(rows), 25))
        pieces = [feature_map(piece) for piece in np.split(rows, cuts) if len(piece)]
        np.testing.assert_array_equal(bits(np.vstack(pieces)), whole)
        for i in rng.choice(len(rows), 15, replace=False):
            np.testing.assert_array_equal(bits(feature_map(rows[i : i + 1])), whole[i : i + 1])


@pytest.mark.parametrize("width", [1, 3, 17, 40])
def test_features_of_wide_rows_do_not_depend_on_the_batch(width: int):
    kernel = SoftenedProduct(tuple(Gaussian(1.0) for _ in range(width)), min(1.0, 3 / width))
    rows = np.random.default_rng(0).normal(size=(1200, width))
    maps = [RandomFourier.draw(kernel, n_columns=width, dimension=202, rng=1), Nystroem.fit(kernel, rows[:60])]
    for feature_map in maps:
        whole = bits(feature_map(rows))
        for step in (1, 7, 1024):
            part = rows[: 20 * step]
            pieces = [feature_map(part[i : i + step]) for i in range(0, len(part), step)]
            np.testing.assert_array_equal(bits(np.vstack(pieces)), whole[: len(part)])


def exactly_rounded_product(A: Array, B: Array, bound: float) -> Array:
    """`ExactProduct` in Python's own integers: every sum exact, one rounding where float64 has one."""
    scale_a = Fraction(2) ** int(np.ceil(np.log2(bound)))
    out = np.empty((len(A), B.shape[1]))
    for f in range(B.shape[1]):
        scale_b = Fraction(2) ** int(np.ceil(np.log2(max(np.abs(B[:, f]).max(), 2.0**-1000))))
        for i in range(len(A)):
            total = Fraction(0)
            for start in range(0, len(B), 4096):
                a = [_cut(Fraction(float(v)) / scale_a) for v in A[i, start : start + 4096]]
                b = [_cut(Fraction(float(v)) / scale_b) for v in B[start : start + 4096, f]]
                high = sum(x[0] * y[0] for x, y in zip(a, b, strict=True))
                cross = sum(x[0] * y[1] + x[1] * y[0] for x, y in zip(a, b, strict=True))
                assert max(abs(high), abs(cross)) < 2**53
                total = Fraction(float(total + high))
                total = Fraction(float(total + Fraction(cross, 2**20)))
            out[i, f] = float(total * scale_a * scale_b / 2**40)
    return out


def _cut(value: Fraction) -> tuple[int, int]:
    scaled = value * 2**20
    high = round(scaled)  # to even, as numpy's rint
    return high, round((scaled - high) * 2**20)


@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(1, 12), st.integers(1, 4), st.integers(-300, 300))
def test_the_exact_product_agrees_with_integers_and_with_numpy(seed, n, m, f, exponent):
    rng = np.random.default_rng(seed)
    bound = float(rng.choice([1.0, 0.3, 2.5]))
    A = rng.uniform(-bound, bound, (n, m)) * rng.choice([1.0, 1e-9, 0.0], (n, m))
    A[0, 0] = bound  # the extreme value
    B = rng.normal(size=(m, f)) * 2.0**exponent
    product = ExactProduct(B, bound=bound)(A)
    np.testing.assert_array_equal(product, exactly_rounded_product(A, B, bound))
    allowed = 2.0**-40 * bound * (np.abs(B).sum(axis=0) + m * np.abs(B).max(axis=0)) + 1e-13 * np.abs(A) @ np.abs(B)
    assert (np.abs(product - A @ B) <= allowed).all()


def test_the_exact_product_stays_exact_at_the_largest_sums():
    """All entries at the bound, and all of one sign, over more than one block of 4096."""
    m = 5000
    for a, b in ((1.0, 1.0), (1.0, -1.0), (1 - 2.0**-21, 1 - 2.0**-21), (1 - 2.0**-53, 1.0)):
        A, B = np.full((1, m), a), np.full((m, 1), b)
        np.testing.assert_array_equal(ExactProduct(B, bound=1.0)(A), exactly_rounded_product(A, B, 1.0))


def test_a_wide_exact_product_does_not_depend_on_the_batch():
    rng = np.random.default_rng(0)
    A, B = rng.uniform(-1, 1, (70, 5000)), rng.normal(size=(5000, 9)) * 10.0 ** rng.uniform(-9, 9, 9)
    whole = ExactProduct(B, bound=1.0)(A)
    for piece in (slice(0, 1), slice(69, 70), slice(3, 50), slice(None, None, -1)):
        np.testing.assert_array_equal(bits(ExactProduct(B, bound=1.0)(A[piece])), bits(whole[piece]))
    np.testing.assert_array_equal(bits(ExactProduct(B, bound=1.0)(np.asfortranarray(A))), bits(whole))


def test_the_columns_that_a_frequency_looks_at_are_those_that_change_its_phase():
    kernel = SoftenedProduct((MultiScale((1.0,)), Indicator(3), Gaussian(1.0)), 0.3)
    feature_map = RandomFourier.draw(kernel, n_columns=3, dimension=200, missing_columns=[0], rng=0)
    base = np.array([[0.5, 1.0, -0.5]])
    for j, other in enumerate((2.5, 2.0, 3.5)):
        moved = base.copy()
        moved[0, j] = other
        changed = np.flatnonzero(feature_map.phases(moved)[0] != feature_map.phases(base)[0])
        np.testing.assert_array_equal(changed, feature_map.looks_at(j))
        part = feature_map.column_phases(j, base[:, j], feature_map.looks_at(j))
        np.testing.assert_array_equal(part, feature_map.column_phases(j, base[:, j])[:, feature_map.looks_at(j)])


def test_a_code_out_of_range_is_no_error():
    """The door must not raise by a row's value: codes are clipped to those there are."""
    feature_map = RandomFourier.draw(Indicator(3), n_columns=1, dimension=8, rng=0)
    with np.errstate(all="ignore"):
        features = feature_map(np.array([[-1.0], [7.0], [np.inf], [-np.inf], [1e308], [0.0]]))
    np.testing.assert_array_equal(features[0], features[5])  # the lowest code; of infinities NaN, which the door zeroes
    assert largest_norm(features[np.isfinite(features).all(axis=1)]) <= 1 + 1e-15


@every_map
def test_a_weighted_mean_is_that_of_the_rows(case: FeatureCase):
    """Counted or summed in blocks, part by part or whole."""
    rng, features = np.random.default_rng(3), case.build(12)
    rows, weights = case.case.rows(rng, 70), rng.normal(size=70)
    np.testing.assert_allclose(features.mean(rows, weights), weights @ features(rows), atol=1e-13)


def test_every_family_of_feature_maps_is_in_the_contract_list():
    modules = (binning, certified, composed, fourier, maclaurin, margins, nystroem, pivots)
    members = {m.name for module in modules for m in vars(module).values() if _is_member(m)}
    assert members == set(FAMILIES)
    assert all(isinstance(case.build(4), FeatureMap) for case in FEATURE_MAPS)


def _is_member(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, FeatureMap) and "name" in vars(value)
