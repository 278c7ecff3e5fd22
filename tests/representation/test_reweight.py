"""Weights on given points: each view stays in its set, and comes as near to the measurement as its set allows."""

from __future__ import annotations

import numpy as np
import pytest
from contracts import KERNELS
from every import every
from representation_cases import measured

from kmeanalyst.kernels import Gaussian, KernelMean
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.kernels.features.nystroem import Nystroem
from kmeanalyst.representation.weights.convex_fit import default_set, duality_gap
from kmeanalyst.representation.weights.reweight import fit_weights, nearest_probability_weights, weights_for


def subspace() -> tuple[Nystroem, Array, Array]:
    """A fitted subspace, the points it was fitted on (some twice), and a population."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(2000, 2))
    points = np.vstack([rng.normal(size=(40, 2)), np.zeros((2, 2))])
    return Nystroem.fit(Gaussian(1.0), points), points, rows


@every("noise_scale", [1e-5, 0.02])
def test_weights_stay_in_the_set_they_are_named_after(noise_scale: float):
    feature_map, points, rows = subspace()
    measurement = measured(feature_map, rows, noise_scale=noise_scale)
    fourier = RandomFourier.draw(Gaussian(1.0), n_columns=2, dimension=10, rng=0)
    probability = weights_for("probability", points, measurement)
    assert probability.min() >= 0 and probability.sum() == pytest.approx(1, abs=1e-12)
    for view, default in (("bounded", 1.0), ("signed", 2.0)):
        for bound in (None, 0.4, 3.0):
            weights = weights_for(view, points, measurement, bound=bound)
            assert weights.shape == (len(points),)
            assert np.abs(weights).sum() <= (default if bound is None else bound) + 1e-12
    for view, map_, message in (
        ("best", feature_map, r"must be probability, bounded, signed or published, got 'best'\. Name one"),
        ("published", fourier, r'published weights belong to Algorithm 1: .*Pass weights="probability"'),
    ):
        with pytest.raises(ValueError, match=message):
            weights_for(view, points, measured(map_, rows, noise_scale=noise_scale))


def test_without_noise_the_fitted_embedding_is_the_tables():
    """The distance to the table's own embedding is what 42 points allow: less if weights may be negative."""
    feature_map, points, rows = subspace()
    measurement = measured(feature_map, rows, noise_scale=1e-6)
    table = KernelMean(Gaussian(1.0), rows)
    for view, allowed in {"probability": 0.05, "bounded": 0.05, "signed": 0.02, "published": 0.02}.items():
        weights = weights_for(view, points, measurement)
        assert KernelMean(Gaussian(1.0), points, weights).distance(table) < allowed


def test_published_weights_are_the_coordinates_solved_for_the_basis():
    """L⁻ᵀβ by numpy, on the basis points; zero on points outside the basis."""
    feature_map, points, rows = subspace()
    measurement = measured(feature_map, rows, noise_scale=0.01)
    K = Gaussian(1.0).gram(feature_map.points, feature_map.points)
    expected = np.linalg.solve(np.linalg.cholesky(K).T, measurement.vector)
    weights = weights_for("published", points, measurement)
    on_basis = {tuple(row): weight for row, weight in zip(feature_map.points, expected, strict=True)}
    first = {tuple(row): m for m, row in reversed(list(enumerate(points)))}
    for m, row in enumerate(points):
        own = on_basis.get(tuple(row), 0.0) if first[tuple(row)] == m else 0.0
        assert weights[m] == pytest.approx(own, rel=1e-4, abs=1e-8 * np.abs(expected).max())
    np.testing.assert_allclose(feature_map(points).T @ weights, measurement.vector, atol=1e-4)  # K is nearly singular


@every("view", ["probability", "bounded", "signed"])
def test_a_fit_is_solved_to_a_hundredth_of_the_noise_on_one_coordinate(view: str):
    feature_map, points, rows = subspace()
    measurement, features, allowed = (
        measured(feature_map, rows, noise_scale=1e-4), feature_map(points), default_set(view),
    )  # fmt: skip
    weights = fit_weights(features, measurement, allowed)
    gap = duality_gap(features @ features.T, features @ measurement.vector, allowed, weights)
    assert gap <= 0.01 * 1e-4**2


@every("seed", range(4))
def test_the_probability_view_is_the_nearest_probability(seed: int):
    """No probability weights are nearer in RKHS distance: the duality gap is zero, to the solver's tolerance."""
    case, rng = KERNELS[seed], np.random.default_rng(seed)
    points, weights = case.rows(rng, 10), rng.normal(0.1, 0.4, 10)
    found = nearest_probability_weights(case.kernel, points, weights)
    assert found.min() >= 0 and found.sum() == pytest.approx(1, abs=1e-12)
    gradient = case.kernel.gram(points, points) @ (found - weights)
    assert gradient @ found - gradient.min() <= 1e-9 * case.kernel.bound**2
