"""Random binning and Maclaurin features: their theorems.

What every feature map promises (norm, diameter, one row alone) is tested over the contract lists in test_features.py and
test_door.py; here is what is particular: what kernel they stand for, how fast the error falls, who is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import refusals
from contracts import DOT_PRODUCTS, HATS, KernelCase, bounds_of, every
from feature_cases import hoeffding, largest_error

from kmeanalyst import kernels
from kmeanalyst.kernels import Gaussian, Laplacian, Polynomial, Scaled
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.features.binning import RandomBinning
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.kernels.features.maclaurin import RandomMaclaurin

UNIT = np.array([[-1.0, 1.0]] * 2)
ROWS = np.random.default_rng(0).uniform(-1, 1, (40, 2))


def root_mean_square_error(draw: Callable[[int], FeatureMap], rows: Array, *, seeds: int) -> float:
    maps = [draw(seed) for seed in range(seeds)]
    K = maps[0].kernel.gram(rows, rows)
    return float(np.sqrt(np.mean([np.mean((each.gram(rows, rows) - K) ** 2) for each in maps])))


def fourier(F: int, seed: int) -> FeatureMap:
    return RandomFourier.draw(Gaussian(0.7), n_columns=2, dimension=F, rng=seed)


def binned(F: int, seed: int) -> FeatureMap:
    return RandomBinning.draw(Laplacian(1.5), bounds=UNIT, dimension=F, most_cells=10_000, rng=seed)


def expanded(law: str, F: int, seed: int) -> FeatureMap:
    return RandomMaclaurin.draw(Polynomial(3, 1.0, (-1.0, -1.0), (1.0, 1.0)), dimension=F, law=law, rng=seed)


@every([
    (fourier, 64, 12, -0.6, -0.4), (binned, 200, 12, -0.62, -0.38), (partial(expanded, "coordinates"), 100, 24, -0.62, -0.38),
    (partial(expanded, "signs"), 100, 24, -0.62, -0.38),
], of="draw, smallest, seeds, low, high")  # fmt: skip
def test_the_error_falls_as_the_root_of_the_number_of_features(
    draw: Callable[[int, int], FeatureMap], smallest: int, seeds: int, low: float, high: float
):
    """The slope in logarithms is −½."""
    sizes = [smallest * 4**i for i in range(4)]
    errors = [root_mean_square_error(partial(draw, F), ROWS, seeds=seeds) for F in sizes]
    assert low < np.polyfit(np.log(sizes), np.log(errors), 1)[0] < high


def test_widths_of_the_laplacian_kernel_mix_hats_to_it():
    """Mean of max(0, 1 − δ/w) over drawn widths is exp(−δ/ℓ) (Hoeffding, 1e-9); at ℓ 10 % off it is not."""
    widths = Laplacian(2.0).draw_widths(np.random.default_rng(0), 1, 200_000)[0]
    delta = np.array([0.0, 0.5, 1.0, 2.0, 5.0])
    hats = np.maximum(0, 1 - delta[:, None] / widths).mean(axis=1)
    allowed = hoeffding(1.0, terms=200_000, pairs=5)
    assert np.abs(hats - np.exp(-delta / 2)).max() <= allowed
    assert np.abs(hats - np.exp(-delta / 2.2)).max() > allowed


def test_binning_features_of_grids_that_hold_all_bins_approximate_their_kernel():
    """Two rows share a cell of each grid with probability k, independently: Hoeffding, 1e-9. Missing cells too."""
    kernel, rows = Laplacian(1.5), ROWS.copy()
    rows[:6, 0], rows[4:9, 1] = np.nan, np.nan
    feature_map = RandomBinning.draw(kernel, bounds=UNIT, dimension=400_000, most_cells=2**20, missing_columns=(0, 1), rng=1)
    allowed = hoeffding(1.0, terms=len(feature_map.cells), pairs=820)
    assert largest_error(feature_map, rows) <= allowed < largest_error(feature_map, rows, Scaled(0.9, kernel))


def test_folded_grids_stand_for_the_kernel_up_to_one_in_as_many_as_they_have_cells():
    """Bins far more than cells: the mean product is k + (1 − k)/cells."""
    kernel, rows = Laplacian(0.05), ROWS[:20]
    feature_map = RandomBinning.draw(kernel, bounds=UNIT, dimension=7 * 20_000, most_cells=7, rng=1)
    assert (feature_map.cells == 7).mean() > 0.99
    K = kernel.gram(rows, rows)
    error = np.abs(feature_map.gram(rows, rows) - (K + (1 - K) / 7)).max()
    assert error <= hoeffding(1.0, terms=20_000, pairs=210)


@every(HATS)
def test_a_row_is_in_one_cell_of_each_grid_and_no_row_is_nearer_to_the_diameter_than_root_two(case: KernelCase):
    """Non-negative, of norm B to rounding: rows that share no cell are at distance √2·B, which is reached."""
    rng, missing = np.random.default_rng(3), range(len(case.columns))
    draw = partial(RandomBinning.draw, case.kernel, bounds=bounds_of(case), missing_columns=missing)
    feature_map = draw(dimension=3000, rng=0)
    features = feature_map(case.rows(rng, 200) * 100)
    assert (features >= 0).all()
    np.testing.assert_array_equal((features > 0).sum(axis=1), len(feature_map.cells))
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), case.kernel.bound, rtol=1e-13)
    assert feature_map.diameter == pytest.approx(2**0.5 * case.kernel.bound, rel=1e-15)
    one = draw(dimension=4, rng=2)
    f = one(case.rows(rng, 500))
    largest = np.sqrt(((f[:, None] - f[None]) ** 2).sum(axis=2).max())
    assert largest == pytest.approx(one.diameter, rel=1e-12)


@every(DOT_PRODUCTS)
@pytest.mark.parametrize("law", ["coordinates", "signs"])
def test_maclaurin_features_approximate_their_kernel(case: KernelCase, law: str):
    """With missing cells. Means of F products of range 2B² by coordinates (Hoeffding); by signs a product of degree n is
    as large as d^n and rows are shortened: six standard errors, the variance of degree n being 3^n at most."""
    assert isinstance(case.kernel, Polynomial)
    rows, F = case.rows(np.random.default_rng(0), 12), 60_000
    feature_map = RandomMaclaurin.draw(case.kernel, dimension=F, law=law, rng=1)
    square = case.kernel.bound**2
    allowed = square * hoeffding(2.0, terms=F, pairs=78)
    if law == "signs":
        degrees = case.kernel.draw_degrees(np.random.default_rng(2), 10_000)
        allowed = 6 * square * float(np.sqrt((3.0**degrees).mean() / F))
    assert largest_error(feature_map, rows) <= allowed
    assert largest_error(feature_map, rows, Scaled(0.8, case.kernel)) > allowed


def test_features_of_signs_are_shortened_where_their_norm_would_exceed_the_bound():
    """The paper's bound holds in expectation only: without the shortening some row of some draw is beyond it by a fifth."""
    kernel, corners = Polynomial(3, 0.5, (-1.0,) * 4, (1.0,) * 4), np.random.default_rng(0).choice([-1.0, 1.0], (64, 4))
    feature_map = RandomMaclaurin.draw(kernel, dimension=50, law="signs", rng=0)
    norms = np.linalg.norm(feature_map(corners), axis=1)
    assert norms.max() <= kernel.bound * (1 + 1e-14)
    loose = 2 * kernel.bound / np.sqrt(50)  # the largest norm, had nothing been shortened: recomputed by hand
    first = np.concatenate([[0], np.cumsum(feature_map.degrees)[:-1]]).astype(int)
    products = [
        np.prod(corners @ feature_map.projections[start : start + int(n)].T, axis=1)
        for start, n in zip(first, feature_map.degrees, strict=True)
    ]
    assert np.linalg.norm(products, axis=0).max() * loose / 2 > 1.2 * kernel.bound


def test_features_of_coordinates_need_no_shortening():
    """They are products of numbers in [−1, 1]: B is kept by each row, and reached at every corner."""
    kernel = Polynomial(4, 1.0, (-1.0,) * 3, (1.0,) * 3)
    corners = np.random.default_rng(0).choice([-1.0, 1.0], (50, 3))
    feature_map = RandomMaclaurin.draw(kernel, dimension=77, rng=0)
    np.testing.assert_allclose(np.linalg.norm(feature_map(corners), axis=1), kernel.bound, rtol=1e-14)


def test_degrees_are_distributed_as_the_maclaurin_coefficients():
    """(2 + s)³ = 8 + 12 s + 6 s² + s³: degrees 0, 1, 2, 3 with probabilities 8, 12, 6, 1 in 27 (Hoeffding, 1e-9)."""
    degrees = Polynomial(3, 2.0, (0.0,), (1.0,)).draw_degrees(np.random.default_rng(0), 100_000)
    shares = np.bincount(degrees, minlength=4) / 100_000
    assert np.abs(shares - np.array([8, 12, 6, 1]) / 27).max() <= hoeffding(1.0, terms=100_000, pairs=4)


G, P = Gaussian(1.0), Polynomial(2, 1.0, (0.0,), (1.0,))
ONE = np.ones((1, 1))


def binning(**changes: Array) -> RandomBinning:
    arrays = {"widths": ONE, "shifts": 0 * ONE, "missing": 3 * ONE, "strides": ONE, "cells": np.array([3.0])}
    return RandomBinning(Laplacian(1.0), **(arrays | changes))


def maclaurin(degrees=(1.0,), projections=ONE, signs=ONE, kernel=P) -> RandomMaclaurin:
    return RandomMaclaurin(kernel, np.array(degrees), projections, signs)


def test_a_wrong_value_is_refused_with_what_why_and_hint():
    refusals.check(Path(__file__).parent / "refusals_families.txt", lambda text: eval(text, vars(kernels) | globals()))
