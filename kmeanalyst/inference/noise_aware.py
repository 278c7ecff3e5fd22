"""Room 4: tests of a release that know the privacy noise.

y = mean φ(X) + τξ is all that is known of the table (METHODS §4). Under the hypothesis d = y − mean φ(Y) has
covariance Σ(1/N + 1/L) + τ²I. The noise is flat over the directions of feature space and the signal is not, so
directions are weighted, w_i = λ_i/(λ_i c + τ²); they come from a public reference, never from the noise itself, and the
statistic Σ w_i (v_iᵀd)² is compared with its law, a weighted sum of χ² (for Laplace noise a mixture of such sums).
Leave τ out and a true hypothesis is rejected every time at ε = 0.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kmeanalyst.inference.results import TestResult
from kmeanalyst.inference.samples import SampleRows, result_about
from kmeanalyst.inference.weighted_chi_squared import weighted_chi_squared_sf
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.embedding import row_blocks
from kmeanalyst.kernels.features import FeatureMap, Nystroem
from kmeanalyst.kernels.features.base import sum_of_squares
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.releases.noise import is_pure
from kmeanalyst.releases.release import Release

_REFERENCE_ROWS = 1000
_DIRECTIONS = 150
_MOST_NUMBERS = 50_000_000  # of all directions
_LAPLACE_DRAWS = 64  # of the variances of Laplace noise; eight times as many for up to _FEW_FEATURES
_FEW_FEATURES = 1000


@dataclass(frozen=True)
class Directions:
    """Leading principal directions of a public reference in feature space."""

    vectors: Array  # (F, K)
    variances: Array  # (K,)


def directions_of(release: Release, measurement: Measurement) -> Directions:
    """From the basis points for a subspace (they are public), from draws of the domain else; kept for later."""
    if "directions" not in release.cache:
        feature_map = measurement.feature_map
        if isinstance(feature_map, Nystroem):
            reference = feature_map.points[:: max(1, len(feature_map.points) // _REFERENCE_ROWS)]
        else:
            reference = release.domain.draw(_REFERENCE_ROWS, 0)
        release.cache["directions"] = _principal(feature_map, reference)
    return release.cache["directions"]


def _principal(feature_map: FeatureMap, reference: Array) -> Directions:
    """Eigenvectors of the reference rows' covariance, by way of their Gram matrix."""
    n = len(reference)
    K = feature_map.gram(reference, reference)
    K -= K.mean(axis=0)
    K -= K.mean(axis=1)[:, None]
    eigenvalues, left = np.linalg.eigh(K / n)
    keep = np.argsort(eigenvalues)[::-1][: min(_DIRECTIONS, max(2, _MOST_NUMBERS // feature_map.dimension))]
    keep = keep[eigenvalues[keep] > 1e-10 * eigenvalues.max()]
    # the kept vectors have mean 0, as K has: features need no centring before they are summed by them
    vectors = feature_map.compact(reference).T @ left[:, keep] / np.sqrt(n * eigenvalues[keep])
    return Directions(vectors, eigenvalues[keep])


@dataclass(frozen=True)
class Moments:
    """What a sample says in feature space: mean (F,), mean squared norm, and covariance (K, K) along directions."""

    mean: Array
    mean_square: float
    covariance: Array
    n_rows: int


def sample_moments(feature_map: FeatureMap, directions: Directions, sample: SampleRows) -> Moments:
    """In blocks: memory does not grow with the number of rows."""
    vectors, n = directions.vectors, 0
    total, square = np.zeros(feature_map.dimension), 0.0
    scatter = np.zeros((vectors.shape[1], vectors.shape[1]))
    for rows in sample.blocks():
        n += len(rows)
        for block in row_blocks(len(rows), feature_map.width):
            features = feature_map.compact(rows[block])
            total += features.sum(axis=0)
            square += sum_of_squares(features)
            projected = features @ vectors
            scatter += projected.T @ projected
    mean = total / n
    centre = vectors.T @ mean
    covariance = (scatter - n * np.outer(centre, centre)) / (n - 1)
    return Moments(mean=mean, mean_square=square / n, covariance=covariance, n_rows=n)


def noise_aware_law(
    difference: Array, directions: Directions, covariance: Array, shrink: float, measurements: Sequence[Measurement]
) -> tuple[float, float]:
    """(statistic, pvalue) for d ~ N(0, shrink·Σ) + noise of the measurements, directions weighted by what they can show.

    Gaussian noise adds τ²I to the covariance. Laplace noise is Gaussian of a random variance, exponential with mean
    τ²: given the variances the law is exact, and the p-value is its mean over draws of them from a fixed seed.
    """
    noise_variance = sum(measurement.noise_scale**2 for measurement in measurements)
    weights = directions.variances / (directions.variances * shrink + noise_variance)
    projected = directions.vectors.T @ difference
    statistic = float(weights @ projected**2)
    root = np.sqrt(weights)
    pvalues = []
    for variances in _noise_variances(measurements, len(difference)):
        null = shrink * covariance + (directions.vectors.T * variances) @ directions.vectors
        coefficients = np.maximum(np.linalg.eigvalsh(root[:, None] * null * root), 0.0)
        pvalues.append(weighted_chi_squared_sf(statistic, coefficients))
    return statistic, float(np.mean(pvalues))


def _noise_variances(measurements: Sequence[Measurement], dimension: int) -> Iterator[Array]:
    """Variances (F,) of the noise given which it is Gaussian: one for Gaussian noise, else draws of them."""
    fixed = sum(m.noise_scale**2 for m in measurements if not is_pure(m.noise_law))
    scales = [m.noise_scale**2 for m in measurements if is_pure(m.noise_law)]
    if not scales:
        yield np.full(dimension, fixed)
        return
    rng = np.random.default_rng(0)
    for _ in range(_LAPLACE_DRAWS if dimension > _FEW_FEATURES else 8 * _LAPLACE_DRAWS):  # many features average out
        yield fixed + np.sum([scale * rng.exponential(size=dimension) for scale in scales], axis=0)


def release_against_sample(release: Release, measurement: Measurement, sample: SampleRows) -> TestResult:
    """The test of a release with a measurement against rows."""
    along = directions_of(release, measurement)
    moments = sample_moments(measurement.feature_map, along, sample)
    n = moments.n_rows
    statistic, pvalue = noise_aware_law(
        measurement.vector - moments.mean, along, moments.covariance, 1 / measurement.n_rows + 1 / n, [measurement]
    )
    sample_square = (n * float(moments.mean @ moments.mean) - moments.mean_square) / (n - 1)
    return result_about(
        release,
        statistic=statistic,
        pvalue=pvalue,
        mmd_squared=_squared_mean_norm(release) + sample_square - 2 * float(measurement.vector @ moments.mean),
        method="noise-aware weighted MMD, release against sample",
        n_sample_rows=n,
        notes=tuple(sample.notes),
    )


def _squared_mean_norm(release: Release) -> float:
    """Unbiased estimate of ‖E φ‖² from the measurement: noise and the diagonal taken off.

    E‖y‖² = ‖E φ‖² (1 − 1/N) + E‖φ‖²/N + Fτ². Random Fourier features and margins have one norm; for a subspace the mean
    squared norm is read off the released points.
    """
    measurement = release.measurement
    assert measurement is not None
    n, vector = measurement.n_rows, measurement.vector
    mean_square = measurement.feature_map.norm_bound**2
    if isinstance(measurement.feature_map, Nystroem):
        features = measurement.feature_map(release.encoded_points)
        mean_square = float(release.view_weights("probability") @ np.einsum("ij,ij->i", features, features))
    without_noise = float(vector @ vector) - len(vector) * measurement.noise_scale**2
    return (n * without_noise - mean_square) / (n - 1) if n > 1 else without_noise


def release_against_release(a: Release, b: Release) -> TestResult:
    """Two measurements of one feature map: both noises in the law, spread from the released points."""
    first, second = a.measurement, b.measurement
    if first is None or second is None:
        raise ValueError(
            "a release without a measurement cannot be tested against another: its noise is unknown. Use mmd."
        )
    if not _same_map(first, second):
        raise ValueError(
            "the two releases were measured with different features, and only directions that both see can be "
            "compared. Publish both with one domain, kernel and number of features, or test against rows."
        )
    along = directions_of(a, first)
    covariance = (_released_covariance(a, along) + _released_covariance(b, along)) / 2
    statistic, pvalue = noise_aware_law(
        first.vector - second.vector,
        along,
        covariance,
        1 / first.n_rows + 1 / second.n_rows,
        [first, second],
    )
    return result_about(
        a,
        statistic=statistic,
        pvalue=pvalue,
        mmd_squared=_squared_mean_norm(a) + _squared_mean_norm(b) - 2 * float(first.vector @ second.vector),
        method="noise-aware weighted MMD, release against release",
        n_sample_rows=second.n_rows,
        notes=("the two tables are taken to share no persons",),
    )


def _same_map(first: Measurement, second: Measurement) -> bool:
    if type(first.feature_map) is not type(second.feature_map) or first.feature_map.kernel != second.feature_map.kernel:
        return False
    ours, theirs = first.feature_map.arrays(), second.feature_map.arrays()
    return ours.keys() == theirs.keys() and all(np.array_equal(ours[k], theirs[k], equal_nan=True) for k in ours)


def _released_covariance(release: Release, directions: Directions) -> Array:
    assert release.measurement is not None
    weights = release.view_weights("probability")
    projected = release.measurement.feature_map.compact(release.encoded_points) @ directions.vectors
    projected -= weights @ projected
    return (projected * weights[:, None]).T @ projected
