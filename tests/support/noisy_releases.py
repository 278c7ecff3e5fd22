"""Releases of a simulated population around measurements made on the spot: many, quickly, with a known truth."""

from __future__ import annotations

import numpy as np

from kmeanalyst.kernels import Gaussian
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.kernels.features.nystroem import Nystroem
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.numbers import Real
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.releases.statement import PrivacyStatement

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
    """A release around a measurement of this vector (a normal law in place of the discrete one)."""
    measurement = Measurement(
        vector=vector + noise_scale * rng.normal(size=len(vector)), noise_scale=noise_scale,
        noise_law="discrete gaussian", n_rows=N, feature_map=feature_map, noisy_sum=np.zeros(len(vector), dtype=int),
    )  # fmt: skip
    statement = PrivacyStatement(
        epsilon=1.0, delta=1e-6, neighbouring="replace-one", mechanism="discrete gaussian", sensitivity=2 / N,
        noise_scale=noise_scale, calibration="analytic", rho=0.5 * (2 / N / noise_scale) ** 2, n_rows=N,
    )  # fmt: skip
    points = DOMAIN.decode(population(n_points, rng))
    return Release(
        points=points, weights=np.full(n_points, 1 / n_points), measurement=measurement, kernel=KERNEL, domain=DOMAIN,
        statement=statement,
    )  # fmt: skip
