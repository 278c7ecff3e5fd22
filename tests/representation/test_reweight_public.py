"""Public rows: the step of Bayes towards their uniform mean, and convex fits that reach their optimum."""

from __future__ import annotations

import numpy as np
import pytest

from kmeanalyst.kernels import Gaussian
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.nystroem import Nystroem
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.representation.weights import convex_fit
from kmeanalyst.representation.weights.convex_fit import (
    bounded_set,
    duality_gap,
    minimise_quadratic,
    probability_set,
    solve_quadratic,
)
from kmeanalyst.representation.weights.public_prior import posterior_mean, ridge_to_uniform
from kmeanalyst.representation.weights.reweight import WEIGHT_VIEWS, fit_weights, public_weights, weights_for

SETS = {"probability": probability_set(), "bounded": bounded_set(1.0), "loosely bounded": bounded_set(2.5)}


# ---------------------------------------------------------------- the solver that goes to the end


def nearly_singular() -> tuple[Array, Array]:
    """A wide kernel on 150 points, condition beyond 1e15, and a target with noise that no weights can follow."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(150, 2))
    G = Gaussian(2.0).gram(points, points)
    return G, Gaussian(2.0).gram(points, rng.normal(size=(50, 2)) * 0.7 + 0.5).mean(axis=1) + G @ rng.normal(
        size=150
    ) / 99


@pytest.mark.parametrize("name", SETS)
def test_the_gap_is_reached_where_projected_gradients_alone_give_up(name: str):
    """5000 gradient steps leave a gap a hundred times too large; some twenty factorisations do not."""
    (G, b), allowed, tolerance = nearly_singular(), SETS[name], 1e-11
    assert duality_gap(G, b, allowed, minimise_quadratic(G, b, allowed, tolerance=tolerance)) > 100 * tolerance
    w = solve_quadratic(G, b, allowed, tolerance=tolerance)
    assert duality_gap(G, b, allowed, w) <= tolerance
    assert np.abs(allowed.project(w) - w).max() < 1e-12  # and w lies in the set


@pytest.mark.parametrize("seed", range(5))
def test_the_interior_point_agrees_with_the_threshold_of_a_diagonal_problem(seed: int):
    """With G = diag(g) the optimum is w = max((b − t)/g, 0), t such that Σ w = 1; signed: soften |b| by t ≥ 0."""
    rng = np.random.default_rng(seed)
    g, b = 10.0 ** rng.uniform(-3, 3, 30), rng.normal(size=30)

    def softened(b: Array, low: float) -> Array:
        high = float(b.max())
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if (np.maximum(b - middle, 0) / g).sum() > 1 else (low, middle)
        return np.maximum(b - high, 0) / g

    expected = {"probability": softened(b, float(b.min()) - 2e3), "bounded": np.sign(b) * softened(np.abs(b), 0.0)}
    for name, w in expected.items():
        found = convex_fit._interior_point(np.diag(g), b, SETS[name], 1e-12)
        np.testing.assert_allclose(found, w, atol=1e-6)


def test_points_that_do_not_help_get_weight_zero():
    G, b = nearly_singular()
    w = solve_quadratic(G, b, probability_set(), tolerance=1e-11)
    assert 0 < (w > 0).sum() < 40


# ---------------------------------------------------------------- the step of Bayes


class Population:
    """Rows of a normal population (moved by `shift` for the public ones), known through a subspace of public rows."""

    def __init__(self, m: int, *, shift: float = 0.0, d: int = 2, lengthscale: float = 1.0, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.rows, self.points = rng.normal(size=(20_000, d)), rng.normal(size=(m, d))
        self.points[:, 0] += shift
        self.map = Nystroem.fit(Gaussian(lengthscale), self.points)
        self.features = self.map(self.points)
        self.baseline = self.features.mean(axis=0)
        self.truth = np.zeros(self.map.dimension)
        for block in np.split(self.rows, 10):
            self.truth += self.map(block).sum(axis=0) / len(self.rows)

    def measured(self, noise_scale: float, seed: int) -> Measurement:
        """The mean features of the rows, plus noise from a seed. No promise attaches to it."""
        noisy = self.truth + noise_scale * np.random.default_rng(seed).standard_normal(len(self.truth))
        return Measurement(
            vector=noisy, noise_scale=noise_scale, noise_law="discrete gaussian", n_rows=len(self.rows),
            feature_map=self.map, noisy_sum=np.zeros(len(noisy), dtype=np.int64),
        )  # fmt: skip

    def step(self, noise_scale: float, seed: int) -> Array:
        measurement = self.measured(noise_scale, seed)
        return posterior_mean(self.features, measurement.vector, noise_scale, n_rows=len(self.rows))

    def distance(self, coordinates: Array) -> float:
        """To the truth, within the subspace."""
        return float(np.linalg.norm(coordinates - self.truth))

    def errors(self, noise_scale: float, draws: int = 15) -> tuple[float, float, float]:
        """Root mean square error of (step, raw, baseline)."""
        steps = [self.distance(self.step(noise_scale, seed)) for seed in range(draws)]
        raws = [self.distance(self.measured(noise_scale, seed).vector) for seed in range(draws)]
        return np.sqrt(np.mean(np.square(steps))), np.sqrt(np.mean(np.square(raws))), self.distance(self.baseline)


@pytest.mark.parametrize("m", [1, 2, 3, 5, 12, 40, 150])
@pytest.mark.parametrize("noise_scale", [1e-5, 1e-3, 1e-2, 1e-1])
@pytest.mark.slow(but="0.001-40")
def test_the_step_is_nowhere_worse_than_the_noisy_mean_or_the_public_mean(m: int, noise_scale: float):
    """From one public row, whose own covariance is zero, to many: 15 draws have a root mean square good to 10 %."""
    step, raw, baseline = Population(m).errors(noise_scale)
    assert step < 1.1 * min(raw, baseline)


@pytest.mark.parametrize("shift", [0.3, 1.0])
@pytest.mark.parametrize(("noise_scale", "gain"), [(4e-4, 1.0), (4e-3, 0.65)])
def test_a_biased_public_sample_costs_nothing_and_still_helps(shift: float, noise_scale: float, gain: float):
    """Public rows moved by up to one standard deviation; the noise of 20 000 rows at ε = 1 and 0.1."""
    step, raw, baseline = Population(300, shift=shift, d=5, lengthscale=2.0).errors(noise_scale, draws=4)
    assert step < gain * raw
    assert step < baseline


def test_rows_of_the_same_population_are_believed():
    """Near what the central limit theorem alone would do, though the size of the prior was not given: within 3 %."""
    excess = []
    for seed in range(20):
        case, noise_scale = Population(60, seed=seed), 0.05
        covariance = np.cov(case.features.T) * (1 / 60 + 1 / len(case.rows))
        gain = covariance @ np.linalg.inv(covariance + noise_scale**2 * np.eye(len(covariance)))
        plain = case.baseline + gain @ (case.measured(noise_scale, seed).vector - case.baseline)
        excess.append(np.log(case.distance(case.step(noise_scale, seed)) / case.distance(plain)))
    assert np.mean(excess) < 0.03


def test_a_prior_that_is_too_narrow_is_inflated():
    """μ − b thirty times as variable as the rows foretell: within 5.5 % of the step that knows the thirty."""
    case, excess = Population(60), []
    n, noise_scale, seeds = len(case.rows), 0.05, np.random.default_rng(0)
    covariance = 30 * np.cov(case.features.T) * (1 / 60 + 1 / n)
    knowing = covariance @ np.linalg.inv(covariance + noise_scale**2 * np.eye(len(covariance)))
    for _ in range(40):
        moved = seeds.multivariate_normal(np.zeros(len(covariance)), covariance, method="eigh")
        noisy = moved + noise_scale * seeds.standard_normal(len(moved))
        step = posterior_mean(case.features, case.baseline + noisy, noise_scale, n_rows=n) - case.baseline
        excess.append(np.log(np.linalg.norm(step - moved) / np.linalg.norm(knowing @ noisy - moved)))
    assert np.mean(excess) < 0.055


def test_the_step_does_not_depend_on_the_basis():
    """An orthogonal change of coordinates changes the answer with it."""
    case = Population(20)
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(len(case.truth),) * 2))[0]
    noisy = case.measured(0.02, 0).vector
    turned = posterior_mean(case.features @ rotation, noisy @ rotation, 0.02, n_rows=20_000)
    np.testing.assert_allclose(
        turned @ rotation.T, posterior_mean(case.features, noisy, 0.02, n_rows=20_000), atol=1e-9
    )


# ---------------------------------------------------------------- weights on public rows


@pytest.mark.parametrize("noise_scale", [1e-3, 0.02])
def test_signed_weights_carry_the_step_to_a_fifth_of_the_noise(noise_scale: float):
    case = Population(100)
    measurement = case.measured(noise_scale, 0)
    weights = weights_for("signed", case.points, measurement, n_public=100)
    assert np.linalg.norm(case.features.T @ weights - case.step(noise_scale, 0)) <= 0.2001 * noise_scale


def test_no_weights_as_close_are_nearer_to_uniform():
    """Optimality by hand: w − 1/M = Φx, along the residual, and moves within the tolerated ball only lead away."""
    case = Population(60)
    target = case.step(0.02, 0)
    weights, _ = ridge_to_uniform(case.features, target, 0.02)
    rng, size = np.random.default_rng(0), ((weights - 1 / 60) ** 2).sum()
    tried = 0
    for _ in range(2000):
        other = weights + rng.normal(size=60) * 10.0 ** rng.uniform(-6, -2)
        if np.linalg.norm(case.features.T @ other - target) <= np.linalg.norm(case.features.T @ weights - target):
            tried += 1
            assert ((other - 1 / 60) ** 2).sum() >= size
    assert tried > 50
    solved = case.map.coefficients(target)
    assert (weights**2).sum() < 0.1 * (solved**2).sum()  # an effective sample size ten times that of L⁻ᵀβ


def test_equal_public_rows_get_equal_weights():
    rng = np.random.default_rng(0)
    points = np.repeat(rng.normal(size=(10, 2)), 3, axis=0)
    case = Population(1)
    case.map, case.truth = Nystroem.fit(Gaussian(1.0), points), np.zeros(10)
    weights = weights_for("signed", points, case.measured(0.1, 0), n_public=30)
    np.testing.assert_allclose(weights.reshape(10, 3), np.repeat(weights[::3, None], 3, axis=1), rtol=1e-9)


@pytest.mark.parametrize("view", ["probability", "bounded"])
def test_confined_weights_on_public_rows_beat_the_uniform_ones_and_the_fit_that_ignores_them(view: str):
    case, noise_scale, uniform = Population(150), 0.02, np.full(150, 1 / 150)
    errors = {"public": [], "ignored": [], "uniform": []}
    for seed in range(8):
        measurement = case.measured(noise_scale, seed)
        weights = weights_for(view, case.points, measurement, n_public=150)
        assert np.abs(weights).sum() <= 1 + 1e-12
        assert view == "bounded" or (weights.min() >= 0 and weights.sum() == pytest.approx(1, abs=1e-12))
        ignored = weights_for(view, case.points, measurement)
        for name, w in (("public", weights), ("ignored", ignored), ("uniform", uniform)):
            errors[name].append(case.distance(case.features.T @ w))
    assert np.mean(errors["public"]) < 0.8 * np.mean(errors["ignored"])
    assert np.mean(errors["public"]) < 0.8 * np.mean(errors["uniform"])


def test_where_the_free_weights_are_probabilities_every_view_is_the_same():
    case = Population(200)
    measurement = case.measured(0.05, 1)
    free = public_weights(case.features, measurement, None)
    inside = 1.5 * np.abs(free).sum()
    np.testing.assert_allclose(public_weights(case.features, measurement, bounded_set(inside)), free, atol=1e-9)


@pytest.mark.parametrize("view", [view for view in WEIGHT_VIEWS if view != "published"])
def test_points_that_are_not_all_public_rows_are_not_drawn_to_their_mean(view: str):
    case = Population(30)
    measurement = case.measured(0.05, 0)
    some, none = (weights_for(view, case.points, measurement, n_public=n) for n in (29, 0))
    np.testing.assert_array_equal(some, none)
    assert np.abs(none - weights_for(view, case.points, measurement, n_public=30)).max() > 1e-3


@pytest.mark.parametrize("name", SETS)
def test_a_fit_is_solved_to_a_hundredth_of_the_noise_on_one_coordinate(name: str):
    case = Population(80)
    measurement = case.measured(1e-4, 0)
    w = fit_weights(case.features, measurement, SETS[name])
    gap = duality_gap(case.features @ case.features.T, case.features @ measurement.vector, SETS[name], w)
    assert gap <= 0.01 * 1e-4**2
