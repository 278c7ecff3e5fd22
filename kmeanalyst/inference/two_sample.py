"""Room 4: are two populations alike? Maximum mean discrepancy, and tests of it that know the privacy noise.

Release against sample (METHODS §4): y = mean φ(X) + τξ is all that is known of the table. Under the
hypothesis d = y − mean φ(Y) has covariance Σ(1/N + 1/L) + τ²I. The noise is flat over the directions of
feature space and the signal is not, so directions are weighted, w_i = λ_i/(λ_i c + τ²); they come from a
public reference, never from the noise itself, and the statistic Σ w_i (v_iᵀd)² is compared with its law,
a weighted sum of χ² (for Laplace noise a mixture of such sums). Leave τ out and a true hypothesis is
rejected every time at ε = 0.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from kmeanalyst.inference.results import TestResult
from kmeanalyst.inference.weighted_chi_squared import weighted_chi_squared_sf
from kmeanalyst.kernels import Gaussian, Kernel, KernelMean, median_lengthscale
from kmeanalyst.kernels.base import Array, as_rows
from kmeanalyst.kernels.embedding import row_blocks
from kmeanalyst.kernels.features import FeatureMap, Nystroem
from kmeanalyst.kernels.features.base import sum_of_squares
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.releases.noise import is_pure
from kmeanalyst.releases.release import Release

_REFERENCE_ROWS = 1000
_DIRECTIONS = 150
_MOST_NUMBERS = 50_000_000  # of all directions
_MOST_EIGEN_ROWS = 2000
_LAPLACE_DRAWS = 64  # of the variances of Laplace noise; eight times as many for up to _FEW_FEATURES
_FEW_FEATURES = 1000

Sample = Any  # an array (n, d), a DataFrame, or a (points, weights) pair


# ---------------------------------------------------------------- the distance


def mmd(a: Release | Sample, b: Release | Sample, kernel: Kernel | None = None) -> float:
    """Maximum mean discrepancy ‖Σ u_i k(x_i, ·) − Σ v_j k(y_j, ·)‖ of two weighted samples.

    a, b     releases (with their weights as released), (points, weights) pairs, or plain samples of rows.
    kernel   the release's by default; for plain samples a Gaussian at the pooled median distance.
    Returns  the distance itself; `mmd_squared` gives its square, unbiased if asked.

    >>> round(mmd([[0, 0], [1, 1], [2, 2]], [[0, 0], [1, 1]], Gaussian(1.0)), 10)
    0.3797286517
    """
    x, y = _embeddings(a, b, kernel)
    return x.distance(y)


def mmd_squared(
    a: Release | Sample, b: Release | Sample, kernel: Kernel | None = None, *, estimator: str = "biased"
) -> float:
    """Squared maximum mean discrepancy (Gretton et al. 2012, equations 3, 5 and lemma 6).

    estimator   "biased": the squared distance of the embeddings (V-statistic), right for any weights.
                "unbiased": pairs of a row with itself left out; equal weights only.
                "incomplete": the pairs (x_i, y_i) left out as well; equal weights, equal sizes.

    >>> x, y = [[0.0], [1.0]], [[0.0], [1.0]]
    >>> mmd_squared(x, y, Gaussian(1.0)), round(mmd_squared(x, y, Gaussian(1.0), estimator="unbiased"), 4)
    (0.0, -0.3935)
    """
    x, y = _embeddings(a, b, kernel)
    if estimator == "biased":
        return x.squared_distance(y)
    if estimator not in ("unbiased", "incomplete"):
        raise ValueError(
            f'estimator must be "biased", "unbiased" or "incomplete", got {estimator!r}. Name one of these.'
        )
    n, m = len(x.points), len(y.points)
    if min(n, m) < 2 or not (_equal(x.weights) and _equal(y.weights)):
        raise ValueError(
            "the unbiased estimators are for plain samples of two rows or more: with weights given, no pair can be "
            'left out. Use estimator="biased".'
        )
    cross = x.inner(y)
    if estimator == "incomplete":
        if n != m:
            raise ValueError(f"the incomplete estimator pairs the rows: sizes must be equal, got {n} and {m}.")
        paired = sum(float(np.diagonal(x.kernel.gram(x.points[b], y.points[b])).sum()) for b in row_blocks(n, 500))
        cross = (cross * n * n - paired) / (n * (n - 1))
    return _without_diagonal(x) + _without_diagonal(y) - 2 * cross


def _without_diagonal(x: KernelMean) -> float:
    n = len(x.points)
    return (x.squared_norm() * n * n - float(x.kernel.diagonal(x.points).sum())) / (n * (n - 1))


def _equal(weights: Array | None) -> bool:
    assert weights is not None
    return bool(np.ptp(weights) <= 1e-12 * abs(weights[0]) and abs(weights.sum() - 1) < 1e-9)


def _embeddings(a: Any, b: Any, kernel: Kernel | None) -> tuple[KernelMean, KernelMean]:
    """Both sides as embeddings in one space."""
    releases = [side for side in (a, b) if isinstance(side, Release)]
    if kernel is None and len(releases) == 2 and not _same_space(*releases):
        raise ValueError(
            "the two releases have different kernels or domains, so their embeddings are in different spaces. "
            "Pass kernel=..., which both can be seen through."
        )
    if releases and kernel is None:
        kernel = releases[0].kernel
    (x, u), (y, v) = (_points_and_weights(side, releases) for side in (a, b))
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"both sides need the same columns, got {x.shape[1]} and {y.shape[1]}. Select like columns.")
    kernel = kernel or Gaussian(median_lengthscale(np.vstack([x, y])))
    return KernelMean(kernel, x, u), KernelMean(kernel, y, v)


def _same_space(a: Release, b: Release) -> bool:
    return a.kernel == b.kernel and a.domain == b.domain


def _points_and_weights(side: Any, releases: Sequence[Release]) -> tuple[Array, Array | None]:
    if isinstance(side, Release):
        return side.encoded_points, side.weights
    if isinstance(side, tuple) and len(side) == 2:
        return _rows(side[0], releases), np.asarray(side[1], dtype=float)
    return _rows(side, releases), None


def _rows(rows: Any, releases: Sequence[Release]) -> Array:
    """Encoded rows: by the release's domain if there is one and the rows have names."""
    if isinstance(rows, pd.DataFrame) and releases:
        return releases[0].domain.encode_sample(rows)[0]
    return as_rows(rows)


# ---------------------------------------------------------------- the tests


def mmd_test(
    a: Release | Sample,
    b: Release | Sample,
    *,
    kernel: Kernel | None = None,
    permutations: int = 999,
    rng: np.random.Generator | int | None = None,
) -> TestResult:
    """Test whether two sides have one population.

    a, b           a release and a sample (DataFrame in natural units, or encoded rows (L, d)), two releases of
                   one feature map, or two plain samples (arrays, DataFrames of numbers).
    kernel         for plain samples only: Gaussian at the pooled median distance by default.
    permutations   for plain samples only.
    rng            None, an int or a Generator; for plain samples only (the other tests draw nothing).
    Returns        TestResult. With a measurement the law includes the privacy noise; weighted points without
                   one are tested as a fixed distribution, and the result says so.
    Assumes        that the sample is independent of the table's rows and of public rows used as points.
    """
    if isinstance(b, Release) and not isinstance(a, Release):
        a, b = b, a
    if not isinstance(a, Release):
        return _permutation_test(a, b, kernel, permutations, rng)
    if kernel is not None:
        raise ValueError(
            "kernel goes with plain samples: a release is tested in the space it was measured in. Leave it out."
        )
    if isinstance(b, Release):
        return _release_against_release(a, b)
    rows, notes = _encoded_sample(a, b)
    if a.measurement is None:
        return _fixed_against_sample(a, rows, notes)
    return _release_against_sample(a, a.measurement, rows, notes)


def _encoded_sample(release: Release, sample: Any) -> tuple[Array, list[str]]:
    if isinstance(sample, pd.DataFrame):
        rows, notes = release.domain.encode_sample(sample)
    else:
        rows, notes = as_rows(sample), []
        if rows.shape[1] != len(release.domain):
            raise ValueError(
                f"the release has {len(release.domain)} columns, the sample {rows.shape[1]}. "
                f"Pass a DataFrame with the columns {', '.join(release.domain.names)}."
            )
    if len(rows) < 2:
        raise ValueError(f"the sample needs at least two rows to show its own spread, got {len(rows)}. Add rows.")
    return rows, notes


@dataclass(frozen=True)
class _Directions:
    """Leading principal directions of a public reference in feature space."""

    vectors: Array  # (F, K)
    variances: Array  # (K,)


def _directions(release: Release, measurement: Measurement) -> _Directions:
    """From the basis points for a subspace (they are public), from draws of the domain else; kept for later."""
    if "directions" not in release.cache:
        feature_map = measurement.feature_map
        if isinstance(feature_map, Nystroem):
            reference = feature_map.points[:: max(1, len(feature_map.points) // _REFERENCE_ROWS)]
        else:
            reference = release.domain.draw(_REFERENCE_ROWS, 0)
        release.cache["directions"] = _principal(feature_map, reference)
    return release.cache["directions"]


def _principal(feature_map: FeatureMap, reference: Array) -> _Directions:
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
    return _Directions(vectors, eigenvalues[keep])


@dataclass(frozen=True)
class _SampleMoments:
    """What a sample says in feature space: mean (F,), mean squared norm, and covariance (K, K) along directions."""

    mean: Array
    mean_square: float
    covariance: Array


def _moments(measurement: Measurement, directions: _Directions, rows: Array) -> _SampleMoments:
    """In blocks: memory does not grow with the number of rows."""
    feature_map, vectors = measurement.feature_map, directions.vectors
    total, square = np.zeros(feature_map.dimension), 0.0
    scatter = np.zeros((vectors.shape[1], vectors.shape[1]))
    for block in row_blocks(len(rows), feature_map.width):
        features = feature_map.compact(rows[block])
        total += features.sum(axis=0)
        square += sum_of_squares(features)
        projected = features @ vectors
        scatter += projected.T @ projected
    mean = total / len(rows)
    centre = vectors.T @ mean
    covariance = (scatter - len(rows) * np.outer(centre, centre)) / (len(rows) - 1)
    return _SampleMoments(mean, square / len(rows), covariance)


def _noise_aware_law(
    difference: Array, directions: _Directions, covariance: Array, shrink: float, measurements: Sequence[Measurement]
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


def _release_against_sample(
    release: Release, measurement: Measurement, rows: Array, notes: Sequence[str]
) -> TestResult:
    directions = _directions(release, measurement)
    sample = _moments(measurement, directions, rows)
    statistic, pvalue = _noise_aware_law(
        measurement.vector - sample.mean,
        directions,
        sample.covariance,
        1 / measurement.n_rows + 1 / len(rows),
        [measurement],
    )
    sample_square = (len(rows) * float(sample.mean @ sample.mean) - sample.mean_square) / (len(rows) - 1)
    return _result(
        release,
        statistic=statistic,
        pvalue=pvalue,
        mmd_squared=_squared_mean_norm(release) + sample_square - 2 * float(measurement.vector @ sample.mean),
        method="noise-aware weighted MMD, release against sample",
        n_sample_rows=len(rows),
        notes=tuple(notes),
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


def _result(release: Release, **fields: Any) -> TestResult:
    promise = release.statement
    return TestResult(
        noise_aware=release.measurement is not None,
        n_release_rows=promise.n_rows if promise else None,
        n_release_points=len(release),
        epsilon=promise.epsilon if promise else None,
        delta=promise.delta if promise else None,
        **fields,
    )


def _release_against_release(a: Release, b: Release) -> TestResult:
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
    directions = _directions(a, first)
    covariance = (_released_covariance(a, directions) + _released_covariance(b, directions)) / 2
    statistic, pvalue = _noise_aware_law(
        first.vector - second.vector,
        directions,
        covariance,
        1 / first.n_rows + 1 / second.n_rows,
        [first, second],
    )
    return _result(
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


def _released_covariance(release: Release, directions: _Directions) -> Array:
    assert release.measurement is not None
    weights = release.view_weights("probability")
    projected = release.measurement.feature_map.compact(release.encoded_points) @ directions.vectors
    projected -= weights @ projected
    return (projected * weights[:, None]).T @ projected


def _fixed_against_sample(release: Release, rows: Array, notes: Sequence[str]) -> TestResult:
    """Weighted points as a fixed distribution: only the sample is random, nΣe χ² with e from its own Gram matrix."""
    fixed, sample = release.embedding, KernelMean(release.kernel, rows)
    statistic = fixed.squared_distance(sample)
    some = rows[np.random.default_rng(0).permutation(len(rows))[:_MOST_EIGEN_ROWS]]
    K = release.kernel.gram(some, some)
    K -= K.mean(axis=0)
    K -= K.mean(axis=1)[:, None]
    coefficients = np.maximum(np.linalg.eigvalsh(K / (len(some) - 1)), 0.0) / len(rows)
    unbiased = fixed.squared_norm() - 2 * fixed.inner(sample) + _without_diagonal(sample)
    told = "no measurement: the weighted points are tested as a fixed distribution, without any noise of their own"
    return _result(
        release,
        statistic=statistic,
        pvalue=weighted_chi_squared_sf(statistic, coefficients),
        mmd_squared=unbiased,
        method="MMD, fixed weighted points against sample",
        n_sample_rows=len(rows),
        notes=(told, *notes),
    )


def _permutation_test(
    a: Sample, b: Sample, kernel: Kernel | None, permutations: int, rng: np.random.Generator | int | None
) -> TestResult:
    """The ordinary test (Gretton et al. 2012): unbiased statistic, p = (b + 1)/(B + 1), all relabellings at once."""
    if isinstance(a, tuple) or isinstance(b, tuple):
        raise ValueError(
            "weighted points cannot be relabelled by permutation. Wrap them with from_frame and test those."
        )
    if permutations < 1:
        raise ValueError(
            f"permutations must be at least 1, got {permutations}: the law is made of them. Pass e.g. 999."
        )
    x, y = _embeddings(a, b, kernel)
    n, m = len(x.points), len(y.points)
    if min(n, m) < 2:
        raise ValueError(f"both samples need at least two rows, got {n} and {m}. Add rows.")
    pooled = np.vstack([x.points, y.points])
    rng = np.random.default_rng(rng)
    labels = np.zeros((n + m, permutations + 1))
    labels[:n, 0] = 1
    for i in range(1, permutations + 1):
        labels[rng.permutation(n + m)[:n], i] = 1
    statistics = _relabelled_statistics(x.kernel, pooled, labels, n, m)
    exceed = int((statistics[1:] >= statistics[0] - 1e-12).sum())
    return TestResult(
        statistic=float(statistics[0]),
        pvalue=(exceed + 1) / (permutations + 1),
        mmd_squared=float(statistics[0]),
        method=f"MMD permutation test ({permutations} permutations), sample against sample",
        noise_aware=False,
        n_release_rows=None,
        n_release_points=n,
        n_sample_rows=m,
    )


def _relabelled_statistics(kernel: Kernel, pooled: Array, labels: Array, n: int, m: int) -> Array:
    """Unbiased MMD² for each column of 0/1 labels (n + m, B), from sums over blocks of the Gram matrix."""
    inside, across, total = np.zeros(labels.shape[1]), np.zeros(labels.shape[1]), 0.0
    for block in row_blocks(len(pooled), len(pooled)):
        K = kernel.gram(pooled[block], pooled)
        K[np.arange(len(K)), np.arange(block.start, block.stop)] = 0.0  # a row with itself is left out
        towards = K @ labels
        inside += (labels[block] * towards).sum(axis=0)
        across += ((1 - labels[block]) * towards).sum(axis=0)
        total += float(K.sum())
    outside = total - inside - 2 * across
    return inside / (n * (n - 1)) + outside / (m * (m - 1)) - 2 * across / (n * m)


__all__ = ["TestResult", "mmd", "mmd_squared", "mmd_test"]
