"""Release against release; the null distribution includes the noise of both.

Two measurements of one feature map are compared directly. Of different maps (other frequencies, sizes, kernels) only
functions that both maps can express are comparable. Such functions are found on public reference rows: u_k, the
principal functions of the mean of both kernels, written as b₁ᵀφ₁ and b₂ᵀφ₂ by ridge regression, with the
noise of each coefficient as the ridge. The remaining disagreement D = b₁ᵀφ₁ − b₂ᵀφ₂ has an unknown mean under the
population with (E D)(E D)ᵀ ≤ E D Dᵀ. This bound, over rows that the fit has not used, is added to the covariance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.linalg import solve

from kmeanalyst.inference.two_sample.noise_aware import (
    directions_of,
    mean_tail,
    noise_aware_test,
    noise_variances,
    notes_on_choice,
    size_of_difference,
    squared_mean_norm,
)
from kmeanalyst.inference.two_sample.result import TestResult
from kmeanalyst.inference.two_sample.samples import result_about
from kmeanalyst.inference.weighted_chi_squared import NormalQuadraticForm
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.principal import Directions, principal_components
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.representation.weights.views import view_frame, view_weights

_EVEN_ROWS, _JUDGES = 600, 1500  # draws of each domain; released points of each side
_FUNCTIONS = 100
_NO_PERSONS_SHARED = "the two tables are assumed to share no persons"


def release_against_release(a: ReleaseData, b: ReleaseData) -> TestResult:
    """The test of two releases with measurements, of one feature map or of different ones."""
    first, second = a.measurement, b.measurement
    if first is None or second is None:
        raise ValueError(
            "a release without a measurement cannot be tested against another: its noise is unknown. Use mmd."
        )
    first, second = first.decided_beforehand, second.decided_beforehand
    if _same_map(first, second):
        return _of_one_map(a, b, first, second)
    return _of_different_maps(a, b, first, second)


def _same_map(first: Measurement, second: Measurement) -> bool:
    if type(first.feature_map) is not type(second.feature_map) or first.feature_map.kernel != second.feature_map.kernel:
        return False
    ours, theirs = first.feature_map.arrays(), second.feature_map.arrays()
    return ours.keys() == theirs.keys() and all(np.array_equal(ours[k], theirs[k], equal_nan=True) for k in ours)


def _of_one_map(a: ReleaseData, b: ReleaseData, first: Measurement, second: Measurement) -> TestResult:
    """Spread is read off the released points."""
    along, both = directions_of(a, first), [first, second]
    shrink = 1 / first.n_rows + 1 / second.n_rows
    (ours, our_variance), (theirs, their_variance) = (_released_spread(r, along) for r in (a, b))
    covariance, variance = (ours + theirs) / 2, (our_variance + their_variance) / 2
    difference = first.vector - second.vector
    statistic, pvalue = noise_aware_test(difference, along, covariance, shrink, both)
    return result_about(
        a,
        statistic=statistic,
        pvalue=pvalue,
        mmd_squared=squared_mean_norm(a) + squared_mean_norm(b) - 2 * float(first.vector @ second.vector),
        method="noise-aware weighted MMD, release against release",
        n_sample_rows=second.n_rows,
        notes=(_NO_PERSONS_SHARED, *notes_on_choice(a, b)),
        **size_of_difference(difference, along, covariance, variance, shrink, both),
    )


def _released_spread(release: ReleaseData, directions: Directions) -> tuple[Array, float]:
    """Covariance along the directions (K, K), and its trace in all of feature space."""
    assert release.measurement is not None
    weights = view_weights(release, "probability")
    features = release.measurement.decided_beforehand.feature_map.compact(release.encoded_points)
    mean, squares = weights @ features, weights @ (features * features)
    return _covariance(features @ directions.vectors, weights), float(squares.sum() - mean @ mean)


# ---------------------------------------------------------------- different feature maps


@dataclass(frozen=True)
class _SharedFunctions:
    """Functions that both maps express: coefficients b₁ (F₁, K) and b₂ (F₂, K), and the variances λ (K,) they are scaled to."""

    ours: Array
    theirs: Array
    variances: Array


def _of_different_maps(a: ReleaseData, b: ReleaseData, first: Measurement, second: Measurement) -> TestResult:
    fitted, fresh = _reference(a, b)
    shared = _shared_functions(first, second, fitted)
    x, y = first.feature_map.compact(fresh.ours) @ shared.ours, second.feature_map.compact(fresh.theirs) @ shared.theirs
    disagreement = (x - y).T @ ((x - y) * fresh.weights[:, None])
    spread = _covariance(x, fresh.weights)
    sampling = spread / first.n_rows + _covariance(y, fresh.weights) / second.n_rows + disagreement
    nulls = [
        sampling + (shared.ours.T * ours) @ shared.ours + (shared.theirs.T * theirs) @ shared.theirs
        for ours, theirs in noise_variances([first, second])
    ]
    null = np.mean(nulls, axis=0)
    difference = shared.ours.T @ first.vector - shared.theirs.T @ second.vector
    weights = shared.variances / np.diag(null)
    statistic = float(weights @ difference**2)
    seen = int((np.diag(disagreement) < 0.01 * np.diag(spread)).sum())
    return result_about(
        a,
        statistic=statistic,
        pvalue=mean_tail(statistic, weights, nulls),
        mmd_squared=float(difference @ difference - np.trace(null - disagreement)),
        method="noise-aware weighted MMD, release against release, along functions that both measure",
        n_sample_rows=second.n_rows,
        notes=(
            f"the releases were measured with different features: they are compared along {len(weights)} functions, of "
            f"which they see {seen} alike to a hundredth of their variance; a difference elsewhere cannot be found, and "
            "the interval is of the distance along these",
            _NO_PERSONS_SHARED,
            *notes_on_choice(a, b),
        ),
        noise_floor=float(np.sqrt(np.trace(null))),
        mmd_interval=NormalQuadraticForm(null).interval(difference),
        detectable_mmd=NormalQuadraticForm(null, weights).detectable(shared.variances),
    )


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
    mine, yours = ([(c.name, c.kind) for c in release.domain.columns] for release in (a, b))
    if mine != yours:
        raise ValueError(
            f"the releases have different columns, {_list(mine)} and {_list(yours)}: rows of one say nothing about the "
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


def _list(columns: list[tuple[str, str]]) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in columns)


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


def _covariance(values: Array, weights: Array) -> Array:
    """The covariance of weighted rows (n, K)."""
    centred = values - weights @ values
    return (centred * weights[:, None]).T @ centred
