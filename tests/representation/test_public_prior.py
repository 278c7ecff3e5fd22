"""Public rows as a prior: the posterior mean, and weights on public rows with this mean."""

from __future__ import annotations

import numpy as np
import pytest
from every import every
from representation_cases import measured_mean

from kmeanalyst.kernels import Gaussian
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.nystroem import Nystroem
from kmeanalyst.releases.measurement import Measurement, feature_mean
from kmeanalyst.representation.weights.public_prior import posterior_of_public
from kmeanalyst.representation.weights.reweight import weights_for


def posterior_mean(features: Array, vector: Array, noise_scale: float) -> Array:
    """For a measurement of 20 000 rows."""
    return posterior_of_public(features, vector, noise_scale, n_rows=20_000)[0]


class Population:
    """20 000 rows of a normal population, and the subspace of m public rows, which are moved by `shift`."""

    def __init__(self, m: int, *, shift: float = 0.0, d: int = 2, lengthscale: float = 1.0, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.rows, self.points = rng.normal(size=(20_000, d)), rng.normal(size=(m, d))
        self.points[:, 0] += shift
        self.map = Nystroem.fit(Gaussian(lengthscale), self.points)
        self.features = self.map(self.points)
        self.baseline = self.features.mean(axis=0)
        self.truth = feature_mean(self.map, self.rows)

    def measured(self, noise_scale: float, seed: int) -> Measurement:
        return measured_mean(self.map, self.truth, noise_scale=noise_scale, n_rows=len(self.rows), seed=seed)

    def step(self, noise_scale: float, seed: int) -> Array:
        return posterior_mean(self.features, self.measured(noise_scale, seed).vector, noise_scale)

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
    """From one public row, whose own covariance is zero, to many. The root mean square of 15 draws is exact to 10 %."""
    step, raw, baseline = Population(m).errors(noise_scale)
    assert step < 1.1 * min(raw, baseline)


@every(("shift", "noise_scale", "gain"), [(1.0, 4e-4, 1.0), (0.3, 4e-3, 0.65)])
def test_a_biased_public_sample_costs_nothing_and_still_helps(shift: float, noise_scale: float, gain: float):
    """Public rows moved by up to one standard deviation; the noise of 20 000 rows at ε = 1 and 0.1."""
    step, raw, baseline = Population(300, shift=shift, d=5, lengthscale=2.0).errors(noise_scale, draws=2)
    assert step < gain * raw
    assert step < baseline


def test_rows_of_the_same_population_are_believed():
    """Within 3 % of the step that knows the size of the prior, which is that of the central limit theorem."""
    excess = []
    for seed in range(8):
        case, noise_scale = Population(60, seed=seed), 0.05
        covariance = np.cov(case.features.T) * (1 / 60 + 1 / len(case.rows))
        gain = covariance @ np.linalg.inv(covariance + noise_scale**2 * np.eye(len(covariance)))
        plain = case.baseline + gain @ (case.measured(noise_scale, seed).vector - case.baseline)
        excess.append(np.log(case.distance(case.step(noise_scale, seed)) / case.distance(plain)))
    assert np.mean(excess) < 0.03


def test_a_prior_that_is_too_narrow_is_inflated():
    """μ − b has thirty times the variance that the rows predict: within 5.5 % of the step that knows this factor."""
    case, excess = Population(60), []
    noise_scale, seeds = 0.05, np.random.default_rng(0)
    covariance = 30 * np.cov(case.features.T) * (1 / 60 + 1 / len(case.rows))
    knowing = covariance @ np.linalg.inv(covariance + noise_scale**2 * np.eye(len(covariance)))
    for _ in range(15):
        moved = seeds.multivariate_normal(np.zeros(len(covariance)), covariance, method="eigh")
        noisy = moved + noise_scale * seeds.standard_normal(len(moved))
        step = posterior_mean(case.features, case.baseline + noisy, noise_scale) - case.baseline
        excess.append(np.log(np.linalg.norm(step - moved) / np.linalg.norm(knowing @ noisy - moved)))
    assert np.mean(excess) < 0.055


@every("noise_scale", [1e-3, 0.02])
def test_signed_weights_carry_the_step_to_a_fifth_of_the_noise(noise_scale: float):
    case = Population(100)
    measurement = case.measured(noise_scale, 0)
    weights = weights_for("signed", case.points, measurement, n_public=100)
    assert np.linalg.norm(case.features.T @ weights - case.step(noise_scale, 0)) <= 0.2001 * noise_scale
    least = 0.99 * np.abs(weights).sum()
    assert np.abs(weights_for("signed", case.points, measurement, bound=least, n_public=100)).sum() <= least * (1 + 1e-9)


@every("view", ["probability", "bounded"])
def test_confined_weights_on_public_rows_beat_the_uniform_ones_and_the_fit_that_ignores_them(view: str):
    case, noise_scale, uniform = Population(150), 0.02, np.full(150, 1 / 150)
    errors = {"public": [], "ignored": [], "uniform": []}
    for seed in range(4):
        measurement = case.measured(noise_scale, seed)
        weights = weights_for(view, case.points, measurement, n_public=150)
        assert np.abs(weights).sum() <= 1 + 1e-12
        assert view == "bounded" or (weights.min() >= 0 and weights.sum() == pytest.approx(1, abs=1e-12))
        ignored = weights_for(view, case.points, measurement)
        for name, w in (("public", weights), ("ignored", ignored), ("uniform", uniform)):
            errors[name].append(case.distance(case.features.T @ w))
    assert np.mean(errors["public"]) < 0.8 * np.mean(errors["ignored"])
    assert np.mean(errors["public"]) < 0.8 * np.mean(errors["uniform"])
