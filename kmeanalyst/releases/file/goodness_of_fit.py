"""Do the released points say what was measured? Their embedding beside the noisy mean they were made from.

A measurement is y = m + τξ, m the mean of φ over the table, and the points claim that μ = Σ w φ(z) is an estimate of m.
Misfit alone is no fault: few points, equal weights and rows that a network drew all leave some that noise does not
explain. So each finding needs two things, that noise cannot explain what is seen (with chance 1e-6, by bounds that hold
for any number of features), and that no honest fit leaves it:

subspace   Algorithm 1's points span the subspace, so that each of them lies in it.
weights    Every set that weights are fitted in holds equal weights (of the same sum, on the same points), so that the
           fitted ones are not further from m.
points     Points that were placed come nearer to m than a quarter of the distance from m to rows drawn evenly from the
           domain, which know nothing of the table. Allowed beside it: B/√M, what M rows of the table itself would err
           by, and what weights with Σ|w| < 1 fall short of. Over all methods, ε from 0.1 to 10 and tables of 500 and
           20,000 rows, honest points stay below that allowance alone.

Found so: the points of another table, columns swapped or recoded, weights permuted, as long as they move the embedding by
a quarter of what there is to know. Not found: what moves it less (a few points or weights, dependence that the kernel barely
sees), points in the subspace with weights that explain more than equal ones, and whatever the noise drowns.
"""

from __future__ import annotations

import math

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features import Nystroem
from kmeanalyst.releases.file.feature_work import REFERENCE_ROWS
from kmeanalyst.releases.file.point_features import point_features
from kmeanalyst.releases.measurement import Measurement, feature_mean
from kmeanalyst.releases.noise import is_pure
from kmeanalyst.releases.release import Release

_T = math.log(1e6)  # of tails: each bound fails with chance exp(−_T)
_OUTSIDE = 1e-4  # squared distance to the subspace, over B²: publishing leaves out points within 1e-5
_SHARE = 1 / 4  # of the reference's distance
_MORE_MISFIT = 0.1  # than equal weights leave: thinned weights are fitted in the kernel's space, not in the features'


def fit_findings(release: Release) -> list[str]:
    """What of the points and weights contradicts the measurement, in words; nothing without a measurement."""
    if release.measurement is None:
        return []
    if release.method == "subspace" and isinstance(release.measurement.feature_map, Nystroem):
        return _outside_subspace(release, release.measurement.feature_map) + _worse_than_equal(release)
    return _far_from_measured(release, release.measurement) or _worse_than_equal(release)


def _outside_subspace(release: Release, feature_map: Nystroem) -> list[str]:
    outside = int((point_features(release).outside > _OUTSIDE * feature_map.norm_bound**2).sum())
    if not outside:
        return []
    return [f"points: {outside} of {len(release)} lie outside the subspace that was measured, which its points span"]


def _worse_than_equal(release: Release) -> list[str]:
    """‖y − μ‖² − ‖y − μ_e‖² = ‖m − μ‖² − ‖m − μ_e‖² + 2τ⟨ξ, μ_e − μ⟩: beyond the last term's tail, μ_e is nearer to m."""
    measurement, weights = release.measurement, release.weights
    assert measurement is not None
    if np.ptp(weights) <= 1e-9 * np.abs(weights).max():
        return []
    found = point_features(release)
    fitted, other = found.mean, found.equal_mean
    misfit, misfit_of_equal = (_squared(measurement.vector - mean) for mean in (fitted, other))
    explained = misfit_of_equal - _noise_square(measurement)
    if misfit - misfit_of_equal <= _linear_tail(measurement, 2 * (other - fitted)) + _MORE_MISFIT * max(explained, 0.0):
        return []
    return [
        f"weights: equal weights on the same points are nearer to the measurement (at {math.sqrt(misfit_of_equal):.3g}) than "
        f"the released ones (at {math.sqrt(misfit):.3g}) by more than noise explains"
    ]


def _far_from_measured(release: Release, measurement: Measurement) -> list[str]:
    feature_map = measurement.feature_map
    reference = feature_mean(feature_map, release.domain.draw(REFERENCE_ROWS, 0))
    least = _distance_bounds(measurement, point_features(release).mean)[0]
    to_reference, size = (_distance_bounds(measurement, mean)[1] for mean in (reference, np.zeros_like(reference)))
    short = max(0.0, 1 - float(np.abs(release.weights).sum()))
    if least <= _SHARE * to_reference + feature_map.norm_bound / math.sqrt(len(release)) + short * size:
        return []
    return [
        f"points: at least {least:.3g} from the mean that was measured, whatever the noise, where rows drawn evenly from the "
        f"domain are at most {to_reference:.3g} from it: the points are not an estimate of this measurement"
    ]


def _distance_bounds(measurement: Measurement, mean: Array) -> tuple[float, float]:
    """(low, high) of ‖m − mean‖, each wrong with chance 1e-6 for a `mean` that does not depend on the noise.

    ‖y − mean‖² − Fτ² is off from ‖m − mean‖² by a non-central χ² around its mean (Birgé 2001, lemma 8.1). Laplace noise
    has 5/2 of its variance and longer tails: those of its largest square, and of its product with the largest coordinate
    of m − mean, are added. A fit to y only makes low lower.
    """
    variance, dimension = measurement.noise_scale**2, len(measurement.vector)
    apart = measurement.vector - mean
    excess = _squared(apart) - _noise_square(measurement)
    pure = is_pure(measurement.noise_law)
    spread = (2.5 if pure else 1.0) * dimension
    off = 2 * variance * math.sqrt(spread * _T + 2 * _T * max(excess, 0.0) / variance + 4 * _T**2) + 4 * _T * variance
    if pure:
        largest = measurement.noise_scale * (_T + math.log(dimension)) / math.sqrt(2)  # of F Laplace numbers
        off += largest**2 + math.sqrt(2) * measurement.noise_scale * _T * (float(np.abs(apart).max()) + largest)
    return math.sqrt(max(excess - off, 0.0)), math.sqrt(max(excess + off, 0.0))


def _linear_tail(measurement: Measurement, direction: Array) -> float:
    """What τ⟨ξ, direction⟩ stays below but for a chance of 1e-6: sub-Gaussian, or sub-gamma for Laplace noise."""
    tail = math.sqrt(2 * _T * _squared(direction))
    if is_pure(measurement.noise_law):
        tail += float(np.abs(direction).max()) * _T / math.sqrt(2)
    return measurement.noise_scale * tail


def _noise_square(measurement: Measurement) -> float:
    """E‖τξ‖² = Fτ²."""
    return len(measurement.vector) * measurement.noise_scale**2


def _squared(vector: Array) -> float:
    return float(vector @ vector)
