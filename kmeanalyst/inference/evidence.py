"""Room 4: what a release knows of its population, as the questions about parts of it need it: a mean of features.

With a measurement that is the noisy mean, with its noise. Weighted points without one are taken as a fixed
distribution, seen through features of their own kernel: no noise, and nothing random but the sample beside them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kmeanalyst.inference.noise_aware import Directions, directions_of
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features import FeatureMap, Nystroem
from kmeanalyst.releases.domain import Domain
from kmeanalyst.releases.measurement import Measurement, feature_mean
from kmeanalyst.releases.release import Release

_BASIS_ROWS = 150  # drawn from the domain, and as many of the points, for weighted points without a measurement
_REFERENCE_ROWS = 600  # mostly of the domain, and as many mostly of the columns of given rows
_AWAY = 0.1  # of the latters' cells are the domain's, and the contrary


@dataclass(frozen=True, eq=False)
class Evidence:
    """A mean of features over a population, and how uncertain it is.

    vector         y (F,).
    measurements   those it is made of, with their noise; none for a fixed distribution.
    row_variance   1/N: what part of a row's variance the mean has; 0 for a fixed distribution.
    """

    domain: Domain
    feature_map: FeatureMap
    vector: Array
    measurements: tuple[Measurement, ...]
    row_variance: float

    @property
    def noise_variance(self) -> float:
        """τ², of the noise on each coordinate of y."""
        return float(sum(measurement.noise_scale**2 for measurement in self.measurements))

    def directions(self, release: Release, rows: Array) -> Directions:
        """Directions of feature space: the leading ones of the test beside these rows, or all if there is no noise."""
        if self.measurements:
            return directions_of(release, self.measurements[0], rows)
        size = self.feature_map.dimension
        return Directions(np.eye(size), np.ones(size))


def evidence_of(release: Release) -> Evidence:
    """What the release knows."""
    measurement = release.measurement
    if measurement is not None:
        return Evidence(
            release.domain, measurement.feature_map, measurement.vector, (measurement,), 1 / measurement.n_rows
        )
    drawn = release.domain.draw(_BASIS_ROWS, 0)
    basis = np.vstack([drawn, release.encoded_points[:: max(1, len(release) // _BASIS_ROWS)]])
    feature_map = Nystroem.fit(release.kernel, basis)
    vector = feature_mean(feature_map, release.encoded_points, release.weights)
    return Evidence(release.domain, feature_map, vector, (), 0.0)


def reference_rows(evidence: Evidence, rows: Array, weights: Array | None = None) -> Array:
    """Rows (n, d) that functions are read at: each cell from the domain or from one of `rows`, whatever its neighbours.

    In the first half most cells are the domain's, in the second most are the rows'. They lie where the
    population does, and where another one may, and know of the rows no more than each column's law.
    weights   (len(rows),) probabilities; equal by default.
    """
    rng = np.random.default_rng(0)
    n = 2 * _REFERENCE_ROWS
    domain = evidence.domain
    chosen = np.column_stack([rng.choice(len(rows), n, p=weights) for _ in domain.columns])
    drawn = rows[chosen[:, domain.owners], np.arange(domain.width)]
    share = np.repeat([1 - _AWAY, _AWAY], _REFERENCE_ROWS)[:, None]
    return np.where((rng.random(chosen.shape) < share)[:, domain.owners], domain.draw(n, rng), drawn)
