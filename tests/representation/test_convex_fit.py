"""Weights of least squares over a convex set: projections, and optima certified by the duality gap."""

from __future__ import annotations

import numpy as np
import pytest
from every import every
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from kmeanalyst.kernels import Gaussian
from kmeanalyst.kernels.base import Array
from kmeanalyst.representation.weights import convex_fit

SETS = {
    "probability": convex_fit.PROBABILITIES, "bounded": convex_fit.ConvexSet(1.0, signed=True),
    "loosely bounded": convex_fit.ConvexSet(2.5, signed=True),
}  # fmt: skip


@given(v=arrays(np.float64, st.integers(1, 12), elements=st.floats(-1e6, 1e6)))
def test_the_projection_to_the_simplex_satisfies_its_optimality_conditions(v):
    """KKT: w ≥ 0, Σ w = 1, and one threshold t with w = max(v − t, 0)."""
    w = convex_fit.project_to_simplex(v)
    scale = max(1.0, np.abs(v).max())
    assert w.min() >= 0 and w.sum() == pytest.approx(1, abs=1e-12 * scale)
    thresholds = (v - w)[w > 0]
    assert np.ptp(thresholds) <= 1e-12 * scale
    assert (v[w == 0] <= thresholds.max() + 1e-12 * scale).all()


def test_projections_worked_by_hand():
    np.testing.assert_allclose(convex_fit.project_to_simplex(np.array([1e17, 0.0])), [1, 0])
    np.testing.assert_allclose(convex_fit.project_to_ball(np.array([3.0, -1.0, 0.5]), 2.0), [2.0, 0, 0])
    np.testing.assert_allclose(convex_fit.project_to_ball(np.array([1.5, -1.5]), 2.0), [1.0, -1.0])
    inside = np.array([0.3, -0.2])
    np.testing.assert_array_equal(convex_fit.project_to_ball(inside, 1.0), inside)


@given(v=arrays(np.float64, st.integers(1, 12), elements=st.floats(-1e3, 1e3)), bound=st.floats(0.1, 10))
def test_the_projection_to_the_ball_agrees_with_a_bisection(v, bound):
    """The slow reference: soften by the threshold at which Σ|w| meets the bound."""
    low, high = 0.0, float(np.abs(v).max())
    for _ in range(200):
        middle = (low + high) / 2
        if np.maximum(np.abs(v) - middle, 0).sum() > bound:
            low = middle
        else:
            high = middle
    expected = v if np.abs(v).sum() <= bound else np.sign(v) * np.maximum(np.abs(v) - high, 0)
    np.testing.assert_allclose(convex_fit.project_to_ball(v, bound), expected, atol=1e-9)


@every("scale", [1e-8, 1.0, 1e8])
@every("rank", [2, 8, 60])
def test_the_solver_stays_in_the_set_and_stops_at_the_duality_gap_it_was_given(scale: float, rank: int):
    """The gap by hand, over the corners of the set; it bounds the distance of the objective to its minimum."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(40, rank))
    G, b = scale * A @ A.T, scale * A @ rng.normal(size=rank)
    for tolerance in (1e-2 * scale, 1e-8 * scale):
        for allowed in (convex_fit.PROBABILITIES, convex_fit.ConvexSet(3.0, signed=True)):
            w = convex_fit.minimise_quadratic(G, b, allowed, tolerance=tolerance)
            assert np.abs(w).sum() <= allowed.total + 1e-12
            assert allowed.signed or (w.min() >= 0 and w.sum() == pytest.approx(1, abs=1e-12))
            corners = allowed.total * (np.vstack([np.eye(40), -np.eye(40)]) if allowed.signed else np.eye(40))
            gradient = G @ w - b
            assert gradient @ w - (corners @ gradient).min() <= tolerance


def nearly_singular() -> tuple[Array, Array]:
    """A wide kernel on 150 points, of condition beyond 1e15, and a noisy target that no weights can fit."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(150, 2))
    G = Gaussian(2.0).gram(points, points)
    target = Gaussian(2.0).gram(points, rng.normal(size=(50, 2)) * 0.7 + 0.5).mean(axis=1)
    return G, target + G @ rng.normal(size=150) / 99


@every("name", SETS)
def test_the_gap_is_reached_where_projected_gradients_alone_give_up(name: str):
    """5000 gradient steps leave a gap a hundred times too large; about twenty factorisations do not.

    Points that do not help get weight zero.
    """
    (G, b), allowed, tolerance = nearly_singular(), SETS[name], 1e-11
    assert (
        convex_fit.duality_gap(G, b, allowed, convex_fit.minimise_quadratic(G, b, allowed, tolerance=tolerance)) > 100 * tolerance
    )
    w = convex_fit.solve_quadratic(G, b, allowed, tolerance=tolerance)
    assert convex_fit.duality_gap(G, b, allowed, w) <= tolerance
    assert np.abs(allowed.project(w) - w).max() < 1e-12  # w lies in the set
    if name == "probability":
        assert 0 < (w > 0).sum() < 40
