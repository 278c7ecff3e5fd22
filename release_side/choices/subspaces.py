"""Which basis measures a subspace: with a certificate and √2·B of noise, or without and 2·B. From public facts alone.

The certificate needs a jitter, and directions that are small against it fade. Both errors of the released mean are known
beforehand: the noise on F coordinates, and what the basis does not see of the mean of the public points.
"""

from __future__ import annotations

from kmeanalyst.kernels import KernelMean
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.features.certified import CertifiedNystroem
from kmeanalyst.kernels.features.nystroem import Nystroem
from kmeanalyst.releases.measurement import feature_mean, grid_sensitivity, mean_unit
from release_side.door.mechanism import Noise, RehearsalNoise

_MOST_POINTS = 3000  # that the unseen part is computed for


def certified_basis(feature_map: FeatureMap) -> CertifiedNystroem | None:
    """The same basis points with a certificate; None for other feature maps, and where there is no certificate."""
    return CertifiedNystroem.of(feature_map) if isinstance(feature_map, Nystroem) else None


def better_basis(
    feature_map: FeatureMap,
    certified: CertifiedNystroem | None,
    spanning: Array | None,
    noise: Noise | RehearsalNoise,
    *,
    n_rows: int,
) -> FeatureMap:
    """The map with the smaller expected error in the kernel's space; `feature_map` where there is no other."""
    if certified is None or spanning is None:
        return feature_map
    public = spanning[:_MOST_POINTS]
    errors = [expected_square(each, public, noise, n_rows=n_rows) for each in (certified, feature_map)]
    return certified if errors[0] <= errors[1] else feature_map


def expected_square(feature_map: FeatureMap, public: Array, noise: Noise | RehearsalNoise, *, n_rows: int) -> float:
    """F σ² + the squared norm of what the map does not see of the mean embedding of the public rows (M, d).

    A table of the same population has the same unseen part, up to sampling. This is the error of the noisy coordinates
    as they are; weights that are fitted to them have less of the noise.
    """
    unit = mean_unit(n_rows=n_rows, feature_map=feature_map)
    deviation = noise.deviation(grid_sensitivity(feature_map, noise.name)) * unit
    mean = feature_mean(feature_map, public)
    unseen = KernelMean(feature_map.kernel, public).squared_norm() - float(mean @ mean)
    return feature_map.dimension * deviation**2 + max(0.0, unseen)
