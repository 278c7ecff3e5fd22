"""The features at the points of a release, met once: their largest norm, their means, and how far they leave a subspace.

A dense feature map is evaluated in blocks, each a single time, whatever is asked of it. Cells of tables are counted and
never written down.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.embedding import row_blocks
from kmeanalyst.kernels.features import ColumnFeatures, Concatenation, FeatureMap, Nystroem, ScaledFeatures
from kmeanalyst.kernels.features.cells import CellFeatures
from kmeanalyst.releases.measurement import feature_mean
from kmeanalyst.releases.release import Release


@dataclass(frozen=True)
class PointFeatures:
    """What is asked of φ at the points z of a release.

    largest_norm   max ‖φ(z)‖.
    mean           Σ w φ(z), (F,), with the released weights.
    equal_mean     the same with equal weights of the same sum.
    outside        of a subspace: k(z, z) − ‖φ(z)‖² (M,), the squared distance of k(z, ·) to it; of other maps empty.
    """

    largest_norm: float
    mean: Array
    equal_mean: Array
    outside: Array


def point_features(release: Release) -> PointFeatures:
    """Of a release with a measurement; kept for later."""
    assert release.measurement is not None
    if "point features" not in release.cache:
        equal = np.full(len(release), release.weights.sum() / len(release))
        found = _met(release.measurement.feature_map, release.encoded_points, release.weights, equal)
        release.cache["point features"] = found
    return release.cache["point features"]


def _met(feature_map: FeatureMap, points: Array, weights: Array, equal: Array) -> PointFeatures:
    if isinstance(feature_map, CellFeatures):
        largest = feature_map.norm_bound  # of every row: it is in one cell of each table
        return PointFeatures(largest, *_means(feature_map, points, weights, equal), np.zeros(0))
    if isinstance(feature_map, ScaledFeatures):
        found, root = _met(feature_map.map, points, weights, equal), float(np.sqrt(feature_map.kernel.factor))
        return PointFeatures(root * found.largest_norm, root * found.mean, root * found.equal_mean, np.zeros(0))
    if isinstance(feature_map, ColumnFeatures):
        return _met(feature_map.map, points[:, [int(j) for j in feature_map.kernel.on]], weights, equal)
    if isinstance(feature_map, Concatenation):
        parts = [_met(each, points, weights, equal) for each in feature_map.maps]
        largest = float(np.sqrt(sum(part.largest_norm**2 for part in parts)))  # or a little above the largest
        mean = np.concatenate([part.mean for part in parts])
        return PointFeatures(largest, mean, np.concatenate([part.equal_mean for part in parts]), np.zeros(0))
    return _met_densely(feature_map, points, weights, equal)


def _means(feature_map: FeatureMap, points: Array, weights: Array, equal: Array) -> tuple[Array, Array]:
    mean = feature_mean(feature_map, points, weights)
    return mean, mean if np.array_equal(weights, equal) else feature_mean(feature_map, points, equal)


def _met_densely(feature_map: FeatureMap, points: Array, weights: Array, equal: Array) -> PointFeatures:
    means, largest, outside = np.zeros((2, feature_map.dimension)), 0.0, []
    for block in row_blocks(len(points), feature_map.held_for_a_row):
        features = _features(feature_map, points[block])
        squares = np.einsum("ij,ij->i", features, features)
        largest = float(np.maximum(largest, squares.max()))
        means += np.stack([weights[block], equal[block]]) @ features
        if isinstance(feature_map, Nystroem):
            outside.append(feature_map.kernel.diagonal(points[block]) - squares)
    return PointFeatures(float(np.sqrt(largest)), means[0], means[1], np.concatenate([np.zeros(0), *outside]))


def _features(feature_map: FeatureMap, rows: Array) -> Array:
    """φ of the rows; of a basis point z_i of a subspace L⁻¹ k(Z, z_i) is the i-th row of L, and no kernel is evaluated."""
    if not isinstance(feature_map, Nystroem):
        return feature_map(rows)
    places = {bytes(point): i for i, point in enumerate(feature_map.points)}
    place = np.array([places.get(bytes(row), -1) for row in rows])
    features = feature_map.basis_features(np.maximum(place, 0))
    if (others := place < 0).any():
        features[others] = feature_map(rows[others])
    return features
