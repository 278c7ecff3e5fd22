"""What a sound file claims, computed again: the bound of its features, the distance of its fit, its weights and its rules."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.embedding import row_blocks
from kmeanalyst.kernels.features.base import CellFeatures, FeatureMap
from kmeanalyst.kernels.features.binning import RandomBinning
from kmeanalyst.kernels.features.composed import ColumnFeatures, Concatenation, ScaledFeatures, TensorProduct
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.kernels.features.maclaurin import RandomMaclaurin
from kmeanalyst.kernels.features.nystroem import Nystroem
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.file.function import read_function
from kmeanalyst.releases.file.kernel import MOST_SIZE, kernel_work, listed_rows, n_databases
from kmeanalyst.releases.file.limits import FileRefused, HoldsFunction, limits, reading, too_large
from kmeanalyst.releases.file.measurement import CLOSE
from kmeanalyst.releases.file.reading import read_release
from kmeanalyst.releases.measurement import Measurement, feature_mean
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.releases.rules.compiled import rules_of
from kmeanalyst.releases.rules.violations import contradicted

_PRODUCTS = 1 / 16  # steps that a multiplication within a product of matrices counts as


def validate_release(path: str | Path, *, allow_rehearsal: bool = False, large: bool = False) -> list[str]:
    """What is wrong with a .kme file, in words; an empty list if all is well.

    A refusal is one finding, and so is the stamp of a rehearsal unless it is allowed. Of a file that can be read,
    everything that follows from its numbers is computed again: the features' bound on the points, the distance of
    the fit, what the weights claim to be. If this would take too long, that is a finding too; `large` lifts the limits, on
    reading as well.

    >>> ka.validate_release("adult.kme")  # nothing found
    []
    """
    try:
        try:
            release = read_release(path, ReleaseData, allow_rehearsal=allow_rehearsal, large=large)
        except HoldsFunction:  # reading a function computes all that follows from its numbers
            read_function(path, allow_rehearsal=allow_rehearsal, large=large)
            return []
        with reading(large=large):
            check_feature_work(release)
            return [*_claim_findings(release), *_rule_findings(release)]
    except FileRefused as refusal:
        return [str(refusal)]


def _claim_findings(release: ReleaseData) -> Iterator[str]:
    """What the file says of its weights, its rows and its fit, and its numbers do not give."""
    weights, statement, measurement = release.weights, release.statement, release.measurement
    if release.weight_view == "probability" and not release.is_probability:
        yield f"weights: said to be probabilities, but the least is {weights.min():.6g} and their sum {weights.sum():.12g}"
    if statement is not None and statement.public_points > len(release):
        yield f"public_points: {statement.public_points} of only {len(release)} points"
    if statement is not None and statement.n_databases is not None:
        yield from _draw_findings(release, statement.n_databases, statement.public_points)
    if measurement is not None:
        yield from _feature_findings(release, measurement)
    if measurement is not None and (release.method, release.weight_view) == ("subspace", "published"):
        yield from _published_findings(release, measurement)


def _rule_findings(release: ReleaseData) -> Iterator[str]:
    rules = rules_of(release.domain)
    for i, share in enumerate(rules.broken_by(release.encoded_points).mean(axis=0)):
        if share:
            yield f"{rules.compiled[i].rule.named(i + 1)}: {share:.3%} of the points break it"
    for violation in contradicted(release.domain, release.measurement):
        yield f"{violation.describe()}: the rule does not hold in the table"


def _draw_findings(release: ReleaseData, claimed: int, public_points: int) -> Iterator[str]:
    if public_points:
        return  # a grid of public rows: the file does not say how many rows it had
    rows = listed_rows(release.domain, release.kernel)
    if rows is None:
        yield "n_databases: said to be of every row of the domain, which are too many to list"
    elif all(n_databases(len(rows), size) != claimed for size in range(1, MOST_SIZE + 1)):
        # of any size: thinned points are fewer than were drawn
        yield f"n_databases: {claimed} is not the number of databases of any size of the domain's {len(rows)} rows"


def _feature_findings(release: ReleaseData, measurement: Measurement) -> Iterator[str]:
    """‖φ(z)‖ ≤ B on every point, and fit_distance = ‖Σ w φ(z) − y‖."""
    largest, mean = _evaluate(measurement.feature_map, release.encoded_points, release.weights)
    bound = measurement.feature_map.norm_bound
    if not largest <= bound * (1 + 1e-9):
        yield f"feature map: a point has features of norm {largest:.12g}, above the bound {bound:.12g}"
    if release.fit_distance is None:
        return
    distance = float(np.linalg.norm(mean - measurement.vector))
    noise = measurement.noise_scale * math.sqrt(len(measurement.vector))
    without_digits = max(CLOSE * noise, 1e-10 * bound)  # distances far below the noise, or next to rounding, have none
    if not math.isclose(distance, release.fit_distance, rel_tol=CLOSE, abs_tol=without_digits):
        yield f"fit_distance: recorded {release.fit_distance:.9g}, recomputed {distance:.9g}"


def _published_findings(release: ReleaseData, measurement: Measurement) -> Iterator[str]:
    feature_map = measurement.feature_map
    if not isinstance(feature_map, Nystroem):
        yield "weights: said to be the published ones of a subspace, but the measurement has another feature map"
        return
    solved = feature_map.coefficients(measurement.vector)  # as published_weights, which is on a higher floor
    on_basis = {row.tobytes(): weight for row, weight in zip(feature_map.points, solved, strict=True)}
    expected = np.array([on_basis.pop(row.tobytes(), 0.0) for row in release.encoded_points])
    if on_basis:
        yield f"weights: {len(on_basis)} basis points of the subspace are not among the points"
    elif not np.allclose(release.weights, expected, rtol=0, atol=CLOSE * np.abs(expected).max()):
        yield "weights: said to be the published ones, but the measurement gives others"


# ---------------------------------------------------------------------- the features at the points


def _evaluate(feature_map: FeatureMap, points: Array, weights: Array) -> tuple[float, Array]:
    if isinstance(feature_map, CellFeatures):  # of every row the bound is the norm: it is in one cell of each table
        return feature_map.norm_bound, feature_mean(feature_map, points, weights)
    if isinstance(feature_map, ScaledFeatures):
        largest, mean = _evaluate(feature_map.map, points, weights)
        root = float(np.sqrt(feature_map.kernel.factor))
        return root * largest, root * mean
    if isinstance(feature_map, ColumnFeatures):
        return _evaluate(feature_map.map, points[:, [int(j) for j in feature_map.kernel.on]], weights)
    if isinstance(feature_map, Concatenation):
        norms, means = zip(*(_evaluate(part, points, weights) for part in feature_map.maps), strict=True)
        return float(np.sqrt(sum(norm**2 for norm in norms))), np.concatenate(means)  # or a little above the largest
    largest, total = 0.0, np.zeros(feature_map.dimension)
    for block in row_blocks(len(points), feature_map.dimension):
        features = _features(feature_map, points[block])
        squares = np.einsum("ij,ij->i", features, features)
        largest = float(np.maximum(largest, squares.max()))
        total += weights[block] @ features
    return float(np.sqrt(largest)), total


def _features(feature_map: FeatureMap, rows: Array) -> Array:
    """φ of the rows; for a basis point z_i of a subspace L⁻¹ k(Z, z_i) is the i-th row of L, without a kernel."""
    if not isinstance(feature_map, Nystroem):
        return feature_map(rows)
    index = _in_basis(feature_map, rows)
    features = feature_map.basis_features(np.maximum(index, 0))
    if (others := index < 0).any():
        features[others] = feature_map(rows[others])
    return features


def check_feature_work(release: ReleaseData) -> None:
    """FileRefused where recomputing the mean of the features at the points takes more steps than are allowed."""
    if release.measurement is None:
        return
    feature_map = release.measurement.feature_map
    work = _rows_evaluated(release, feature_map) * feature_work(feature_map, release.domain.width)
    if work > limits().feature_work:
        raise too_large(
            f"the claims about {len(release)} points are not recomputed",
            f"their features take {work:.3g} steps, and at most {limits().feature_work} are taken",
        )


def _rows_evaluated(release: ReleaseData, feature_map: FeatureMap) -> int:
    """The points; the features of a basis point are a row of the Cholesky factor, at no cost."""
    if not isinstance(feature_map, Nystroem):
        return len(release)
    return int((_in_basis(feature_map, release.encoded_points) < 0).sum())


def _in_basis(feature_map: Nystroem, rows: Array) -> Array:
    """The index of each row among the points of the basis, (n,); -1 of others."""
    known = {bytes(point): i for i, point in enumerate(feature_map.points)}
    return np.array([known.get(bytes(row), -1) for row in rows])


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
    assert isinstance(feature_map, RandomMaclaurin)
    return 2.0 * feature_map.projections.size + feature_map.dimension
