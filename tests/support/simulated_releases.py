"""Releases made in memory: measured as `publish` does, or quickly around a simulated measurement with a known truth."""

from __future__ import annotations

import numpy as np
import pandas as pd

from kmeanalyst.kernels import Gaussian, Kernel
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.kernels.features.nystroem import Nystroem
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.numbers import Real
from kmeanalyst.releases.measurement import Measurement, feature_mean
from kmeanalyst.releases.statement import PrivacyStatement
from kmeanalyst.representation.weights.reweight import weights_for
from release_side.door.mechanism import GaussianNoise
from release_side.door.private_mean import private_mean

DOMAIN = Domain(tuple(Real(name=f"x{j}", lower=-5, upper=5) for j in range(2)))
KERNEL = Gaussian(1.5)
N, L = 500, 150
MAPS: dict[str, FeatureMap] = {
    "random-features": RandomFourier.draw(KERNEL, n_columns=2, dimension=200, rng=1),
    "subspace": Nystroem.fit(KERNEL, DOMAIN.draw(60, 2)),
}
NOISE_SCALE = {1.0: 4.22 * 2 / N, 0.1: 35.0 * 2 / N}  # about ε = 1 and 0.1 at δ = 1e-6


def population(n: int, rng: np.random.Generator, shift: float = 0.0) -> np.ndarray:
    """A skewed mixture of two clusters."""
    rows = rng.normal(size=(n, 2)) * [0.7, 1.2] + np.where(rng.random((n, 1)) < 0.7, -1.0, 1.5)
    return np.clip(rows + shift, -5, 5)


def noisy(
    feature_map: FeatureMap, vector: np.ndarray, noise_scale: float, rng: np.random.Generator, *, n_points: int = 40
) -> Release:
    """A release around a measurement of this vector (a normal distribution in place of the discrete one)."""
    measurement = measurement_of(feature_map, vector + noise_scale * rng.normal(size=len(vector)), noise_scale, N)
    return measured_release(measurement, DOMAIN, population(n_points, rng), kernel=KERNEL)


def measurement_of(
    feature_map: FeatureMap, vector: np.ndarray, noise_scale: float, n_rows: int, law: str = "discrete gaussian"
) -> Measurement:
    """A measurement of a vector that has its noise already."""
    return Measurement(
        vector=vector, noise_scale=noise_scale, noise_law=law, n_rows=n_rows, feature_map=feature_map,
        noisy_sum=np.zeros(len(vector), dtype=int),
    )  # fmt: skip


def measured_release(
    measurement: Measurement, domain: Domain, points: np.ndarray, *, kernel: Kernel | None = None, epsilon: float = 1.0
) -> Release:
    """A release of encoded points with equal weights around a measurement."""
    law, n, scale = measurement.noise_law, measurement.n_rows, measurement.noise_scale
    statement = PrivacyStatement(
        epsilon=epsilon, delta=1e-6, neighbouring="replace-one", mechanism=law, sensitivity=2 / n, noise_scale=scale,
        calibration="analytic" if law == "discrete gaussian" else "pure", rho=0.5 * (2 / n / scale) ** 2, n_rows=n,
    )  # fmt: skip
    return Release(
        points=domain.decode(points), weights=np.full(len(points), 1 / len(points)), measurement=measurement,
        kernel=kernel or measurement.feature_map.kernel, domain=domain, statement=statement,
        weight_view="probability",
    )  # fmt: skip


def weighted_points(
    points: pd.DataFrame, domain: Domain, weights: np.ndarray | None = None, kernel: Kernel | None = None
) -> Release:
    """Weighted points without a measurement; of equal weights by default."""
    weights = np.full(len(points), 1 / len(points)) if weights is None else weights
    return Release(points=points, weights=weights, measurement=None, kernel=kernel or Gaussian(1.0), domain=domain, statement=None)


def statement_of(measurement: Measurement, noise: GaussianNoise) -> PrivacyStatement:
    """The promise of a measurement, as `publish` writes it."""
    return PrivacyStatement(
        epsilon=noise.epsilon, delta=noise.delta, neighbouring="replace-one", mechanism=noise.name,
        sensitivity=measurement.sensitivity, noise_scale=measurement.noise_scale, calibration=noise.calibration,
        rho=0.5 * (measurement.sensitivity / measurement.noise_scale) ** 2, n_rows=measurement.n_rows,
        taken_as_public=("the number of rows", "the domain"), versions={"kmeanalyst": "0.1.0"},
    )  # fmt: skip


def release_of(
    rows: np.ndarray, domain: Domain, kernel: Kernel, feature_map: FeatureMap, points: pd.DataFrame, *, method: str, view: str
) -> Release:  # fmt: skip
    """Measure the encoded rows and fit weights of a view on the points."""
    noise = GaussianNoise(1.0, 1e-6)
    measurement = private_mean([rows], feature_map, noise, n_rows=len(rows))
    encoded = domain.encode(points)
    weights = weights_for(view, encoded, measurement)
    return Release(
        points=points, weights=weights, measurement=measurement, kernel=kernel, domain=domain,
        statement=statement_of(measurement, noise), method=method, weight_view=view,
        fit_distance=float(np.linalg.norm(feature_mean(feature_map, encoded, weights) - measurement.vector)),
    )  # fmt: skip
