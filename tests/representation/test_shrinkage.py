"""Shrinkage: leave-one-out errors in closed form; shrunk means are nearer to the population's."""

from __future__ import annotations

import numpy as np
import pytest
from representation_cases import measured_mean

from kmeanalyst.kernels import Gaussian, KernelMean
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.representation.shrinkage import left_out_error, shrunk_mean, shrunk_vector, simple_shrinkage

KERNEL = Gaussian(1.0)


def normal_rows(n: int, seed: int, dimension: int = 5) -> Array:
    return np.random.default_rng(seed).normal(0, 1, (n, dimension))


def squared_error(mean: KernelMean) -> float:
    """‖mean − μ‖² for the standard normal population, whose embedding is known: (½)^{d/2} exp(−‖x‖²/4)."""
    d = mean.points.shape[1]
    inner = 0.5 ** (d / 2) * np.exp(-(mean.points**2).sum(axis=1) / 4) @ mean.weights
    return mean.squared_norm() - 2 * float(inner) + 3 ** (-d / 2)


# ---------------------------------------------------------------- leaving one row out


def test_the_simple_factor_is_the_best_of_all_when_each_row_is_left_out():
    rows = normal_rows(9, 0, 2)
    K = KERNEL.gram(rows, rows)

    def error(alpha: float) -> float:
        total = 0.0
        for i in range(9):
            v = np.where(np.arange(9) == i, -1.0, (1 - alpha) / 8)
            total += float(v @ K @ v)
        return total

    found = simple_shrinkage(KERNEL, rows)
    grid = np.linspace(0, 1, 2001)
    assert abs(found - grid[np.argmin([error(alpha) for alpha in grid])]) <= 1 / 2000
    assert error(found) < min(error(found + 0.01), error(found - 0.01))


@pytest.mark.parametrize("ridge", [1e-3, 0.3, 50.0])
def test_the_error_of_rows_left_out_is_that_of_leaving_them_out(ridge: float):
    rows = normal_rows(8, 1, 2)
    K = KERNEL.gram(rows, rows)
    total = 0.0
    for i in range(8):
        others = (np.arange(8) != i) / 7
        v = np.linalg.solve(K + ridge * np.eye(8), K @ others) - np.eye(8)[i]
        total += float(v @ K @ v)
    eigenvalues, vectors = np.linalg.eigh(K)
    assert left_out_error(eigenvalues, vectors.sum(axis=0), ridge) == pytest.approx(total / 8, rel=1e-9)


def test_the_simple_factor_worked_by_hand():
    """Two rows with k(x, y) = c: ϱ = 1, ρ = (1 + c)/2, α = (1 − ρ)/½ = 1 − c. Equal rows are not shrunk."""
    for distance in (0.0, 0.5, 2.0):
        c = float(np.exp(-(distance**2) / 2))
        assert simple_shrinkage(KERNEL, np.array([[0.0], [distance]])) == pytest.approx(1 - c, abs=1e-12)
    assert simple_shrinkage(KERNEL, np.zeros((50, 1))) == pytest.approx(0, abs=1e-12)


# ---------------------------------------------------------------- risk


@pytest.mark.parametrize("n", [20, 50])
def test_shrunk_means_are_nearer_to_the_population(n: int):
    """Paired over 60 samples: lower risk, by more than three standard errors of the difference."""
    plain, simple, flexible, zero = (
        np.array([squared_error(mean(normal_rows(n, seed))) for seed in range(60)])
        for mean in (
            lambda rows: KernelMean(KERNEL, rows),
            lambda rows: shrunk_mean(KERNEL, rows, how="simple"),
            lambda rows: shrunk_mean(KERNEL, rows),
            lambda rows: KernelMean(KERNEL, rows, np.zeros(n)),
        )
    )
    for shrunk in (simple, flexible):
        saved = plain - shrunk
        assert saved.mean() > 3 * saved.std() / np.sqrt(60) and saved.mean() > 0.05 * plain.mean()
    assert plain.mean() < zero.mean()  # the power: shrinking all the way to zero is worse


def measured(mean: Array, noise_scale: float, seed: int) -> Measurement:
    """A measurement of this mean, of 200 rows, with noise of this scale."""
    feature_map = RandomFourier.draw(KERNEL, n_columns=2, dimension=len(mean), missing_columns=[], rng=0)
    return measured_mean(feature_map, mean, noise_scale=noise_scale, n_rows=200, seed=seed)


@pytest.mark.parametrize("size", [0.0, 0.02, 0.1, 3.0])
@pytest.mark.parametrize("near", [False, True])
def test_a_shrunk_measurement_has_less_risk_whatever_the_mean(size: float, near: bool):
    """F·τ² is the risk of the noisy mean; James & Stein's is F·τ² − E[(F − 2)²τ⁴/‖y − guess‖²] or less."""
    F, scale, draws = 100, 0.02, 300
    mean = size * np.random.default_rng(5).normal(size=F) / np.sqrt(F)
    guess = mean + 0.01 if near else None
    errors = np.array([
        [((shrunk_vector(y, towards=guess) - mean) ** 2).sum(), ((y.vector - mean) ** 2).sum()]
        for y in (measured(mean, scale, seed) for seed in range(draws))
    ])  # fmt: skip
    saved = errors[:, 1] - errors[:, 0]
    distance = ((mean - (guess if near else 0)) ** 2).sum() + F * scale**2
    expected = (F - 2) ** 2 * scale**4 / distance
    assert saved.mean() > 0.9 * expected - 4 * saved.std() / np.sqrt(draws)
    assert saved.mean() > 0
    if near or size <= 0.02:
        assert errors[:, 0].mean() < 0.6 * errors[:, 1].mean()


def test_a_guess_equal_to_the_measurement_stays_and_two_features_are_not_shrunk():
    y = measured(np.full(100, 0.3), 0.02, 0)
    np.testing.assert_array_equal(shrunk_vector(y, towards=y.vector), y.vector)
    two = measured(np.array([0.3, 0.4]), 0.02, 0)
    np.testing.assert_array_equal(shrunk_vector(two), two.vector)


# ---------------------------------------------------------------- refusals


def test_what_cannot_be_shrunk_is_refused(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ValueError, match=r"1 rows do not show how much they vary, so none .* Pass at least two"):
        shrunk_mean(KERNEL, np.zeros((1, 2)))
    with pytest.raises(ValueError, match=r"how must be simple or flexible, got 'spectral': .* Name one of them"):
        shrunk_mean(KERNEL, np.zeros((3, 2)), how="spectral")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"one number per feature, \(100,\), got \(3,\)\. Pass a mean feature"):
        shrunk_vector(measured(np.zeros(100), 0.02, 0), towards=np.zeros(3))
    monkeypatch.setattr("kmeanalyst.representation.shrinkage._MOST_ROWS", 2)
    with pytest.raises(ValueError, match=r'matrix of 3 × 3 numbers, and does so for 2 rows .* Pass how="simple"'):
        shrunk_mean(KERNEL, np.zeros((3, 2)))
