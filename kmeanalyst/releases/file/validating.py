"""What a sound file claims, computed again: the bound of its features, the distance of its fit, its weights.

The feature map is evaluated at the points once, in blocks, and its cost is counted before. Then comes the question of fit:
do the released points say what was measured?

A measurement is y = m + τξ, m the mean of φ over the table, and the points claim that μ = Σ w φ(z) is an estimate of m.
Misfit alone is no error: few points, equal weights and rows that a network drew all leave a misfit that noise does not
explain. A finding therefore needs two things: noise cannot explain the misfit (except with probability 1e-6, by bounds
that hold for any number of features), and no honest fit leaves it:

subspace   The points of Algorithm 1 span the subspace, so each of them lies in it.
weights    Every set of weights that a fit searches contains equal weights (of the same sum, on the same points), so the
           fitted weights are not further from m.
points     Placed points are nearer to m than a quarter of the distance from m to rows drawn evenly from the domain, which
           carry no information about the table. Two allowances are added: B/√M, the error of M rows of the table itself,
           and what weights with Σ|w| < 1 fall short of. Over all methods, ε from 0.1 to 10 and tables of 500 and 20,000
           rows, honest points stay below the allowances alone.

This finds the points of another table, columns swapped or recoded and weights permuted, if they move the embedding by a
quarter of the distance to uninformed rows. It does not find smaller changes (a few points or weights, dependence that the
kernel hardly sees), points in the subspace with weights that explain more than equal ones, or what the noise hides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
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
from kmeanalyst.releases.memo import memo
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.releases.rules.compiled import rules_of
from kmeanalyst.releases.rules.violations import contradicted
from kmeanalyst.releases.statement import is_pure

REFERENCE_ROWS = 2000  # drawn from the domain, to compare the points with
_PRODUCTS = 1 / 16  # steps that a multiplication within a product of matrices counts as
_T = math.log(1e6)  # each bound on a tail fails with probability exp(−_T)
_OUTSIDE = 1e-4  # squared distance to the subspace, over B²: publishing leaves out points within 1e-5
_SHARE = 1 / 4  # largest distance of good points, as a share of the reference's distance
_MORE_MISFIT = 0.1  # tolerated share of misfit above equal weights': thinned weights are fitted in the kernel's space


def validate_release(path: str | Path, *, allow_rehearsal: bool = False, large: bool = False) -> list[str]:
    """What is wrong with a .kme file, in words; an empty list if all is well.

    A refusal is one finding, and so is the stamp of a rehearsal unless it is allowed. Of a file that can be read,
    everything that follows from its numbers is computed again: the features' bound on the points, the distance of
    the fit, what the weights claim to be, and whether the points can be an estimate of what was measured. If this
    would take too long, that is a finding too; `large` lifts the limits, on reading as well.

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
            return [*_claim_findings(release), *_rule_findings(release), *fit_findings(release)]
    except FileRefused as refusal:
        return [str(refusal)]


def _claim_findings(release: ReleaseData) -> Iterator[str]:
    """What the file says of its weights, its rows and its fit, and its numbers do not give."""
    weights, statement, measurement = release.weights, release.statement, release.measurement
    if release.weight_view == "probability" and not release.is_probability:
        yield (
            f"weights: said to be probability weights, but the least is {weights.min():.6g} and they sum to "
            f"{weights.sum():.12g}"
        )
    if statement is not None and statement.public_points > len(release):
        yield f"public_points: {statement.public_points} of only {len(release)} points"
    if statement is not None and statement.n_databases is not None:
        yield from _draw_findings(release, statement.n_databases, statement.public_points)
    if measurement is not None:
        yield from _feature_findings(release, measurement)
    if measurement is not None and (release.method, release.weight_view) == ("subspace", "published"):
        yield from _published_findings(release, measurement)


def _rule_findings(release: ReleaseData) -> Iterator[str]:
    """Released rows that break a rule, and rules that the measurement contradicts."""
    rules = rules_of(release.domain)
    for i, share in enumerate(rules.broken_by(release.encoded_points).mean(axis=0)):
        if share:
            yield f"{rules.compiled[i].rule.named(i + 1)}: {share:.3%} of the points break it"
    for violation in contradicted(release.domain, release.measurement):
        yield f"{violation.describe()}: the rule does not hold in the table"


def _draw_findings(release: ReleaseData, claimed: int, public_points: int) -> Iterator[str]:
    """The exponential mechanism draws from as many databases as some number M of the domain's rows makes."""
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
    found, bound = point_features(release), measurement.feature_map.norm_bound
    if not found.largest_norm <= bound * (1 + 1e-9):
        yield f"feature map: a point has features of norm {found.largest_norm:.12g}, above the bound {bound:.12g}"
    if release.fit_distance is None:
        return
    distance = float(np.linalg.norm(found.mean - measurement.vector))
    noise = measurement.noise_scale * math.sqrt(len(measurement.vector))
    without_digits = max(CLOSE * noise, 1e-10 * bound)  # distances far below the noise, or next to rounding, have none
    if not math.isclose(distance, release.fit_distance, rel_tol=CLOSE, abs_tol=without_digits):
        yield f"fit_distance: recorded {release.fit_distance:.9g}, recomputed {distance:.9g}"


def _published_findings(release: ReleaseData, measurement: Measurement) -> Iterator[str]:
    """The published weights of Algorithm 1 follow from the measurement."""
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


@dataclass(frozen=True)
class PointFeatures:
    """φ at the points z of a release, summarised.

    largest_norm   max ‖φ(z)‖.
    mean           Σ w φ(z), (F,), with the released weights.
    equal_mean     the same with equal weights of the same sum.
    outside        of a subspace: k(z, z) − ‖φ(z)‖² (M,), the squared distance of k(z, ·) to it; of other maps empty.
    """

    largest_norm: float
    mean: Array
    equal_mean: Array
    outside: Array


def point_features(release: ReleaseData) -> PointFeatures:
    """The features of a release that has a measurement; computed once."""
    assert release.measurement is not None
    kept = memo(release)
    if "point features" not in kept:
        equal = np.full(len(release), release.weights.sum() / len(release))
        kept["point features"] = _evaluate(
            release.measurement.feature_map, release.encoded_points, release.weights, equal
        )
    return kept["point features"]


def _evaluate(feature_map: FeatureMap, points: Array, weights: Array, equal: Array) -> PointFeatures:
    if isinstance(feature_map, CellFeatures):
        largest = feature_map.norm_bound  # of every row: it is in one cell of each table
        mean = equal_mean = feature_mean(feature_map, points, weights)
        if not np.array_equal(weights, equal):
            equal_mean = feature_mean(feature_map, points, equal)
        return PointFeatures(largest, mean, equal_mean, np.zeros(0))
    if isinstance(feature_map, ScaledFeatures):
        found, root = _evaluate(feature_map.map, points, weights, equal), float(np.sqrt(feature_map.kernel.factor))
        return PointFeatures(root * found.largest_norm, root * found.mean, root * found.equal_mean, np.zeros(0))
    if isinstance(feature_map, ColumnFeatures):
        return _evaluate(feature_map.map, points[:, [int(j) for j in feature_map.kernel.on]], weights, equal)
    if isinstance(feature_map, Concatenation):
        parts = [_evaluate(each, points, weights, equal) for each in feature_map.maps]
        largest = float(np.sqrt(sum(part.largest_norm**2 for part in parts)))  # or a little above the largest
        mean = np.concatenate([part.mean for part in parts])
        return PointFeatures(largest, mean, np.concatenate([part.equal_mean for part in parts]), np.zeros(0))
    return _evaluate_densely(feature_map, points, weights, equal)


def _evaluate_densely(feature_map: FeatureMap, points: Array, weights: Array, equal: Array) -> PointFeatures:
    means, largest, outside = np.zeros((2, feature_map.dimension)), 0.0, []
    for block in row_blocks(len(points), feature_map.dimension):
        features = _features(feature_map, points[block])
        squares = np.einsum("ij,ij->i", features, features)
        largest = float(np.maximum(largest, squares.max()))
        means += np.stack([weights[block], equal[block]]) @ features
        if isinstance(feature_map, Nystroem):
            outside.append(feature_map.kernel.diagonal(points[block]) - squares)
    return PointFeatures(float(np.sqrt(largest)), means[0], means[1], np.concatenate([np.zeros(0), *outside]))


def _features(feature_map: FeatureMap, rows: Array) -> Array:
    """φ of the rows; for a basis point z_i of a subspace L⁻¹ k(Z, z_i) is the i-th row of L, without a kernel."""
    if not isinstance(feature_map, Nystroem):
        return feature_map(rows)
    known = {bytes(point): i for i, point in enumerate(feature_map.points)}
    index = np.array([known.get(bytes(row), -1) for row in rows])
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
    """The points and the reference rows; the features of a basis point are a row of the Cholesky factor, at no cost."""
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
    assert isinstance(feature_map, RandomMaclaurin)
    return 2.0 * feature_map.projections.size + feature_map.dimension


# ---------------------------------------------------------------------- do the points fit the measurement?


def fit_findings(release: ReleaseData) -> list[str]:
    """What of the points and weights contradicts the measurement, in words; nothing without a measurement."""
    if release.measurement is None:
        return []
    if release.method == "subspace" and isinstance(release.measurement.feature_map, Nystroem):
        return [*_outside_subspace(release, release.measurement.feature_map), *_worse_than_equal(release)]
    return [*_far_from_measured(release, release.measurement)] or [*_worse_than_equal(release)]


def _outside_subspace(release: ReleaseData, feature_map: Nystroem) -> Iterator[str]:
    outside = int((point_features(release).outside > _OUTSIDE * feature_map.norm_bound**2).sum())
    if outside:
        yield f"points: {outside} of {len(release)} lie outside the subspace that was measured, which its points span"


def _worse_than_equal(release: ReleaseData) -> Iterator[str]:
    """‖y − μ‖² − ‖y − μ_e‖² = ‖m − μ‖² − ‖m − μ_e‖² + 2τ⟨ξ, μ_e − μ⟩: beyond the last term's tail, μ_e is nearer to m."""
    measurement, weights = release.measurement, release.weights
    assert measurement is not None
    if np.ptp(weights) <= 1e-9 * np.abs(weights).max():
        return
    found = point_features(release)
    fitted, other = found.mean, found.equal_mean
    misfit, misfit_of_equal = (_squared(measurement.vector - mean) for mean in (fitted, other))
    explained = misfit_of_equal - _noise_square(measurement)
    if misfit - misfit_of_equal <= _linear_tail(measurement, 2 * (other - fitted)) + _MORE_MISFIT * max(explained, 0.0):
        return
    yield (
        f"weights: equal weights on the same points are nearer to the measurement (at {math.sqrt(misfit_of_equal):.3g}) than "
        f"the released ones (at {math.sqrt(misfit):.3g}) by more than noise explains"
    )


def _far_from_measured(release: ReleaseData, measurement: Measurement) -> Iterator[str]:
    feature_map = measurement.feature_map
    reference = feature_mean(feature_map, release.domain.draw(REFERENCE_ROWS, 0))
    least = _distance_bounds(measurement, point_features(release).mean)[0]
    to_reference, size = (_distance_bounds(measurement, mean)[1] for mean in (reference, np.zeros_like(reference)))
    short = max(0.0, 1 - float(np.abs(release.weights).sum()))
    if least <= _SHARE * to_reference + feature_map.norm_bound / math.sqrt(len(release)) + short * size:
        return
    yield (
        f"points: at least {least:.3g} from the mean that was measured, whatever the noise, where rows drawn evenly from the "
        f"domain are at most {to_reference:.3g} from it: the points are not an estimate of this measurement"
    )


def _distance_bounds(measurement: Measurement, mean: Array) -> tuple[float, float]:
    """(low, high) of ‖m − mean‖, each wrong with probability 1e-6 for a `mean` that does not depend on the noise.

    ‖y − mean‖² − Fτ² is off from ‖m − mean‖² by a non-central χ² around its mean (Birgé 2001, lemma 8.1). Laplace noise
    has 5/2 of its variance and longer tails: those of its largest square, and of its product with the largest coordinate
    of m − mean, are added. A fit to y only makes low lower.
    """
    variance, dimension = measurement.noise_scale**2, len(measurement.vector)
    difference = measurement.vector - mean
    excess = _squared(difference) - _noise_square(measurement)
    pure = is_pure(measurement.noise_law)
    spread = (2.5 if pure else 1.0) * dimension
    off = 2 * variance * math.sqrt(spread * _T + 2 * _T * max(excess, 0.0) / variance + 4 * _T**2) + 4 * _T * variance
    if pure:
        largest = measurement.noise_scale * (_T + math.log(dimension)) / math.sqrt(2)  # of F Laplace numbers
        off += largest**2 + math.sqrt(2) * measurement.noise_scale * _T * (float(np.abs(difference).max()) + largest)
    return math.sqrt(max(excess - off, 0.0)), math.sqrt(max(excess + off, 0.0))


def _linear_tail(measurement: Measurement, direction: Array) -> float:
    """A bound on τ⟨ξ, direction⟩ that fails with probability 1e-6: sub-Gaussian, or sub-gamma for Laplace noise."""
    tail = math.sqrt(2 * _T * _squared(direction))
    if is_pure(measurement.noise_law):
        tail += float(np.abs(direction).max()) * _T / math.sqrt(2)
    return measurement.noise_scale * tail


def _noise_square(measurement: Measurement) -> float:
    """E‖τξ‖² = Fτ²."""
    return len(measurement.vector) * measurement.noise_scale**2


def _squared(vector: Array) -> float:
    return float(vector @ vector)
