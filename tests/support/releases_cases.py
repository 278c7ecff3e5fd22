"""What tests of releases share with others."""

from __future__ import annotations

import numpy as np
import pandas as pd

from kmeanalyst.kernels import Gaussian, Kernel
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.measurement import Measurement, feature_mean
from kmeanalyst.releases.statement import PrivacyStatement
from kmeanalyst.representation.weights.reweight import weights_for
from release_side.door.mechanism import GaussianNoise
from release_side.door.private_mean import private_mean


def weighted_points(
    points: pd.DataFrame, domain: Domain, weights: np.ndarray | None = None, kernel: Kernel | None = None
) -> Release:
    """Weighted points without a measurement; of equal weights by default."""
    weights = np.full(len(points), 1 / len(points)) if weights is None else weights
    return Release(
        points=points, weights=weights, measurement=None, kernel=kernel or Gaussian(1.0), domain=domain, statement=None
    )


def statement_of(measurement: Measurement, noise: GaussianNoise) -> PrivacyStatement:
    """The promise of a measurement, as `publish` writes it."""
    return PrivacyStatement(
        epsilon=noise.epsilon,
        delta=noise.delta,
        neighbouring="replace-one",
        mechanism=noise.name,
        sensitivity=measurement.sensitivity,
        noise_scale=measurement.noise_scale,
        calibration=noise.calibration,
        rho=0.5 * (measurement.sensitivity / measurement.noise_scale) ** 2,
        n_rows=measurement.n_rows,
        taken_as_public=("the number of rows", "the domain"),
        versions={"kmeanalyst": "0.1.0"},
    )


def release_of(
    rows: np.ndarray,
    domain: Domain,
    kernel: Kernel,
    feature_map: FeatureMap,
    points: pd.DataFrame,
    *,
    method: str,
    view: str,
) -> Release:
    """Measure the encoded rows and fit weights of a view on the points."""
    noise = GaussianNoise(1.0, 1e-6)
    measurement = private_mean([rows], feature_map, noise, n_rows=len(rows))
    encoded = domain.encode(points)
    weights = weights_for(view, encoded, measurement)
    return Release(
        points=points,
        weights=weights,
        measurement=measurement,
        kernel=kernel,
        domain=domain,
        statement=statement_of(measurement, noise),
        method=method,
        weight_view=view,
        fit_distance=float(np.linalg.norm(feature_mean(feature_map, encoded, weights) - measurement.vector)),
    )
