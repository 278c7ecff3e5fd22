"""How long a feature map takes at the points of a release, counted before it is asked for anything."""

from __future__ import annotations

from kmeanalyst.kernels.features import (
    ColumnFeatures,
    Concatenation,
    FeatureMap,
    Hermite,
    MarginFeatures,
    Nystroem,
    RandomBinning,
    RandomFourier,
    RandomMaclaurin,
    ScaledFeatures,
    TensorProduct,
)
from kmeanalyst.releases.file.kernel import kernel_work
from kmeanalyst.releases.file.refusal import limits, too_large
from kmeanalyst.releases.release import Release

REFERENCE_ROWS = 2000  # drawn from the domain, to compare the points with
_PRODUCTS = 1 / 16  # of a step: a multiplication within a product of matrices


def check_feature_work(release: Release) -> None:
    """FileRefused where recomputing the mean of the features at the points takes more steps than are allowed."""
    if release.measurement is None:
        return
    rows = _rows_evaluated(release)
    work = rows * feature_work(release.measurement.feature_map, release.domain.width)
    if work > limits().feature_work:
        raise too_large(
            f"the claims about {len(release)} points are not recomputed",
            f"their features take {work:.3g} steps, and at most {limits().feature_work} are taken",
        )


def _rows_evaluated(release: Release) -> int:
    """The points and rows of reference; a basis point of the subspace has its row of the Cholesky factor for features."""
    assert release.measurement is not None
    feature_map = release.measurement.feature_map
    if not isinstance(feature_map, Nystroem):
        return len(release) + REFERENCE_ROWS
    known = set(map(bytes, feature_map.points))
    others = sum(bytes(row) not in known for row in release.encoded_points)
    return others + (0 if release.method == "subspace" else REFERENCE_ROWS)


def feature_work(feature_map: FeatureMap, n_columns: int) -> float:
    """Steps for each row: the numbers that are computed on the way to its features."""
    if isinstance(feature_map, Concatenation | TensorProduct):
        parts = sum(feature_work(each, n_columns) for each in feature_map.maps)
        return parts + (feature_map.dimension if isinstance(feature_map, TensorProduct) else 0)
    if isinstance(feature_map, ScaledFeatures | ColumnFeatures):
        return feature_work(feature_map.map, n_columns)
    if isinstance(feature_map, Nystroem):
        size = feature_map.dimension
        return 3.0 * size * kernel_work(feature_map.kernel, n_columns) + _PRODUCTS * size**2
    if isinstance(feature_map, RandomFourier):
        return feature_map.n_frequencies * (n_columns + 10.0)
    if isinstance(feature_map, MarginFeatures):
        return 6.0 * feature_map.width + 10 * n_columns
    if isinstance(feature_map, RandomBinning):
        return 15.0 * feature_map.width * n_columns
    if isinstance(feature_map, RandomMaclaurin):
        return 2.0 * feature_map.projections.size + feature_map.dimension
    assert isinstance(feature_map, Hermite)
    return float(n_columns) * (feature_map.dimension + 10 * (float(feature_map.degrees.max()) + 1))
