"""Two releases of different feature maps (other frequencies, sizes, kernels), along functions that both maps can express.

Such functions are found on public reference rows: u_k, the principal functions of the mean of both kernels, written as b₁ᵀφ₁ and
b₂ᵀφ₂ by ridge regression, with the noise of each coefficient as the ridge. The remaining disagreement D = b₁ᵀφ₁ − b₂ᵀφ₂ has an
unknown mean under the population with (E D)(E D)ᵀ ≤ E D Dᵀ. This bound, over rows that the fit has not used, is added to the
covariance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.linalg import solve

from kmeanalyst.inference.two_sample.noise_aware import mean_tail, noise_variances
from kmeanalyst.inference.two_sample.sides import Side, covariance_of
from kmeanalyst.inference.weighted_chi_squared import NormalQuadraticForm
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.principal import principal_components
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.representation.weights.views import view_frame

_EVEN_ROWS, _JUDGES = 600, 1500  # draws of each domain; released points of each side
_FUNCTIONS = 100


@dataclass(frozen=True)
class _SharedFunctions:
    """Functions that both maps express: coefficients b₁ (F₁, K) and b₂ (F₂, K), and the variances λ (K,) they are scaled to."""

    ours: Array
    theirs: Array
    variances: Array


def test_of_different_maps(a: ReleaseData, b: ReleaseData, sides: tuple[Side, Side]) -> dict[str, Any]:
    """The fields of a TestResult of two releases along functions that both measure, and a note of what these see."""
    (first,), (second,) = (side.measurements for side in sides)
    fitted, fresh = _reference(a, b)
    shared = _shared_functions(first, second, fitted)
    x, y = first.feature_map.compact(fresh.ours) @ shared.ours, second.feature_map.compact(fresh.theirs) @ shared.theirs
    disagreement = (x - y).T @ ((x - y) * fresh.weights[:, None])
    spread = covariance_of(x, fresh.weights)
    sampling = spread / first.n_rows + covariance_of(y, fresh.weights) / second.n_rows + disagreement
    nulls = [
        sampling + (shared.ours.T * ours) @ shared.ours + (shared.theirs.T * theirs) @ shared.theirs
        for ours, theirs in noise_variances([first, second])
    ]
    null = np.mean(nulls, axis=0)
    difference = shared.ours.T @ first.vector - shared.theirs.T @ second.vector
    weights = shared.variances / np.diag(null)
    statistic = float(weights @ difference**2)
    seen = int((np.diag(disagreement) < 0.01 * np.diag(spread)).sum())
    return {
        "statistic": statistic,
        "pvalue": mean_tail(statistic, weights, nulls),
        "mmd_squared": float(difference @ difference - np.trace(null - disagreement)),
        "n_sample_rows": second.n_rows,
        "noise_floor": float(np.sqrt(np.trace(null))),
        "mmd_interval": NormalQuadraticForm(null).interval(difference),
        "detectable_mmd": NormalQuadraticForm(null, weights).detectable(shared.variances),
        "notes": (
            f"the releases were measured with different features: they are compared along {len(weights)} functions, of "
            f"which they see {seen} alike to a hundredth of their variance; a difference elsewhere cannot be found, and "
            "the interval is of the distance along these",
        ),
    }


@dataclass(frozen=True)
class _ReferenceRows:
    """The same rows as both domains encode them, with weights (n,) that sum to one."""

    ours: Array
    theirs: Array
    weights: Array


def _reference(a: ReleaseData, b: ReleaseData) -> tuple[_ReferenceRows, _ReferenceRows]:
    """Rows to find functions on, even draws of both domains; and rows to judge them by, the released points.

    The points are the best approximation of the populations. But they were fitted to the noise, and functions found on
    them would depend on it (see directions_of).
    """
    mine, yours = (", ".join(f"{c.name} ({c.kind})" for c in release.domain.columns) for release in (a, b))
    if mine != yours:
        raise ValueError(
            f"the releases have different columns, {mine} and {yours}: rows of one say nothing about the "
            "other. Publish both with one domain."
        )
    drawn = [release.domain.decode(release.domain.draw(_EVEN_ROWS, seed)) for seed, release in enumerate((a, b))]
    released, weights = [], []
    for release in (a, b):
        frame = view_frame(release, "probability").sample(frac=1.0, random_state=0).iloc[:_JUDGES]
        released.append(frame[list(a.domain.names)])
        weights.append(frame["weight"].to_numpy() + 1e-12)
        weights[-1] /= 2 * weights[-1].sum()
    even, judging = pd.concat(drawn, ignore_index=True), pd.concat(released, ignore_index=True)
    return _encoded(a, b, even), _encoded(a, b, judging, np.concatenate(weights))


def _encoded(a: ReleaseData, b: ReleaseData, frame: pd.DataFrame, weights: Array | None = None) -> _ReferenceRows:
    ours, theirs = (release.domain.encode_sample(frame)[0] for release in (a, b))
    return _ReferenceRows(ours, theirs, np.full(len(frame), 1 / len(frame)) if weights is None else weights)


def _shared_functions(first: Measurement, second: Measurement, rows: _ReferenceRows) -> _SharedFunctions:
    """Principal functions of the mean kernel on the rows, as each map can express them at its noise."""
    n = len(rows.weights)
    ours, theirs = first.feature_map.gram(rows.ours, rows.ours), second.feature_map.gram(rows.theirs, rows.theirs)
    found = principal_components((ours + theirs) / 2, most=_FUNCTIONS)
    targets = found.vectors * np.sqrt(n * found.variances)
    coefficients = []
    for measurement, gram, encoded in ((first, ours, rows.ours), (second, theirs, rows.theirs)):
        ridge = n * max(measurement.noise_scale**2, 1e-10 * np.trace(gram) / n)
        dual = solve(gram + ridge * np.eye(n), targets, assume_a="pos")
        coefficients.append(measurement.feature_map.compact(encoded).T @ dual)
    return _SharedFunctions(coefficients[0], coefficients[1], found.variances)
