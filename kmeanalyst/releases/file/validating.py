"""What a sound file claims, computed again: the bound of its features, the distance of its fit, its weights."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from kmeanalyst.kernels.features import Nystroem
from kmeanalyst.releases.file.feature_work import check_feature_work
from kmeanalyst.releases.file.function import read_function
from kmeanalyst.releases.file.goodness_of_fit import fit_findings
from kmeanalyst.releases.file.measurement import CLOSE
from kmeanalyst.releases.file.point_features import point_features
from kmeanalyst.releases.file.reading import read_release
from kmeanalyst.releases.file.refusal import FileRefused, HoldsFunction, reading
from kmeanalyst.releases.file.small_databases import MOST_SIZE, every_row, n_databases
from kmeanalyst.releases.release import Release


def validate_release(path: str | Path, *, allow_rehearsal: bool = False, large: bool = False) -> list[str]:
    """What is wrong with a .kme file, in words; nothing if all is well.

    A refusal is one finding, and so is the stamp of a rehearsal unless it is allowed. Of a file that can be read,
    everything that follows from its numbers is computed again: the features' bound on the points, the distance of
    the fit, what the weights claim to be, and whether the points can be an estimate of what was measured. That this
    would take too long is a finding too; `large` lifts the limits, on reading as well.

    >>> ka.validate_release("adult.kme")  # nothing found
    []
    """
    try:
        release = read_release(path, allow_rehearsal=allow_rehearsal, large=large)
        with reading(large=large):
            check_feature_work(release)
    except HoldsFunction:
        return _function_findings(path, allow_rehearsal, large)
    except FileRefused as refusal:
        return [str(refusal)]
    checks = (
        _weight_findings, _public_findings, _draw_findings, _bound_findings, _distance_findings, _published_findings,
        fit_findings,
    )  # fmt: skip
    with reading(large=large):
        return [finding for check in checks for finding in check(release)]


def _function_findings(path: str | Path, allow_rehearsal: bool, large: bool) -> list[str]:
    """Of a function everything that follows from its numbers is computed on reading."""
    try:
        read_function(path, allow_rehearsal=allow_rehearsal, large=large)
    except FileRefused as refusal:
        return [str(refusal)]
    return []


def _weight_findings(release: Release) -> list[str]:
    if release.weight_view != "probability" or release.is_probability:
        return []
    return [
        f"weights: said to be probability weights, but the least is {release.weights.min():.6g} and they sum to "
        f"{release.weights.sum():.12g}"
    ]


def _public_findings(release: Release) -> list[str]:
    n_public = release.statement.public_points if release.statement else 0
    return [f"public_points: {n_public} of only {len(release)} points"] if n_public > len(release) else []


def _draw_findings(release: Release) -> list[str]:
    """Rows that the exponential mechanism drew were drawn from as many databases as some M of the domain's rows make."""
    promise = release.statement
    if promise is None or promise.n_databases is None or promise.public_points:
        return []  # of a grid the file does not say how many rows it had
    rows = every_row(release.domain, release.kernel)
    if rows is None:
        return ["n_databases: said to be of every row of the domain, which are too many to list"]
    if any(n_databases(len(rows), size) == promise.n_databases for size in range(1, MOST_SIZE + 1)):
        return []  # of any size: thinned points are fewer than were drawn
    return [
        f"n_databases: {promise.n_databases} is not the number of databases of any size of the domain's {len(rows)} rows"
    ]


def _bound_findings(release: Release) -> list[str]:
    """‖φ(z)‖ ≤ B on every point."""
    if release.measurement is None:
        return []
    feature_map, largest = release.measurement.feature_map, point_features(release).largest_norm
    if largest <= feature_map.norm_bound * (1 + 1e-9):
        return []
    return [f"feature map: a point has features of norm {largest:.12g}, above the bound {feature_map.norm_bound:.12g}"]


def _distance_findings(release: Release) -> list[str]:
    """fit_distance = ‖Σ w φ(z) − y‖, to rounding; a distance far below the noise has no digits to compare."""
    if release.measurement is None or release.fit_distance is None:
        return []
    measurement = release.measurement
    distance = float(np.linalg.norm(point_features(release).mean - measurement.vector))
    noise = measurement.noise_scale * math.sqrt(len(measurement.vector))
    if math.isclose(distance, release.fit_distance, rel_tol=CLOSE, abs_tol=CLOSE * noise):
        return []
    return [f"fit_distance: recorded {release.fit_distance:.9g}, recomputed {distance:.9g}"]


def _published_findings(release: Release) -> list[str]:
    """Algorithm 1's published weights follow from the measurement."""
    if release.measurement is None or (release.method, release.weight_view) != ("subspace", "published"):
        return []
    feature_map, points = release.measurement.feature_map, release.encoded_points
    if not isinstance(feature_map, Nystroem):
        return ["weights: said to be the published ones of a subspace, but the measurement has another feature map"]
    solved = feature_map.coefficients(release.measurement.vector)  # as published_weights, which is in a later room
    on_basis = {row.tobytes(): weight for row, weight in zip(feature_map.points, solved, strict=True)}
    expected = np.array([on_basis.pop(row.tobytes(), 0.0) for row in points])
    if on_basis:
        return [f"weights: {len(on_basis)} basis points of the subspace are not among the points"]
    if np.allclose(release.weights, expected, rtol=0, atol=CLOSE * np.abs(expected).max()):
        return []
    return ["weights: said to be the published ones, but the measurement gives others"]
