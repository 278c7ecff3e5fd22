"""Tests of a release that account for the privacy noise.

All that a release shows of its table X, N rows, is y = mean φ(X) + τξ, ξ the noise. The sample is Y, L rows. If both have
one population, d = y − mean φ(Y) has covariance cΣ + τ²I, c = 1/N + 1/L and Σ the covariance of φ. The statistic is
Σ w_i (v_iᵀd)² along directions v_i of reference rows, with variances λ_i there. Its distribution is a weighted sum of χ²
(for Laplace noise a mixture of such sums). The weights w_i = cλ_i/(cλ_i + r)² are those of a spectral regularized test
(Harchaoui, Bach & Moulines 2008; Hagrass, Sriperumbudur & Li 2024), 1/(cλ_i + r), damped where the noise hides a
direction. The noise acts as a ridge: r = τ², or more where rows are few. The weighted statistic finds shifts that ‖d‖², the
statistic of a plain MMD test, misses.
Of one-way tables the columns are tested one by one as well, and p is twice the smaller of both p-values (`columns_test`).
A test that leaves τ out rejects a true hypothesis every time at ε = 0.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import brentq

from kmeanalyst.inference.two_sample.result import TestResult
from kmeanalyst.inference.two_sample.samples import SampleRows, result_about
from kmeanalyst.inference.weighted_chi_squared import NormalQuadraticForm
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.embedding import row_blocks
from kmeanalyst.kernels.features.base import FeatureMap, sum_of_squares
from kmeanalyst.kernels.features.nystroem import Nystroem
from kmeanalyst.kernels.features.principal import Directions, principal_directions
from kmeanalyst.kernels.margins import ChosenMargins, MarginFeatures
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.releases.memo import memo
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.releases.statement import is_pure
from kmeanalyst.representation.weights.views import view_weights

_REFERENCE_ROWS = 1000
_SAMPLE_ROWS = 400  # most rows of a sample from which directions are computed
_DRAWS, _DRAWS_COUNT_AS = 200, 200  # draws of the domain added to them (more for fewer rows); their weight in rows
_LAPLACE_DRAWS = 64  # draws of the variances of Laplace noise; eight times as many for up to _FEW_FEATURES
_FEW_FEATURES = 1000
_ROWS_PER_DIRECTION = 5  # with 3, a true hypothesis was rejected 8 times in 100 at 5 %, low noise
_MOST_EFFECTIVE = 150  # with 460, 11 times in 100 (mixed table, 3,000 rows)
_MANY_ROWS = 100  # from so many rows on, those behind directions are left out; from 50 on, 100 rows rejected .09
_LEVEL = 0.05
_HARDLY = 1e-3  # of the ridge and of the largest variance: below it a direction would hardly count
_FEW_ROWS = 2000  # above this a sample's covariance is taken as it is


def directions_of(release: ReleaseData, measurement: Measurement, rows: Array | None = None) -> Directions:
    """The directions of feature space along which rows like these have the largest variance, and those variances.

    rows   encoded rows of a sample; None for rows of the domain alone, and the result is then kept for the next call.

    For the release of a subspace, the directions are those of its basis points, which are public. Otherwise they are those of
    up to 400 of the rows together with draws of the domain. Without the rows, the directions would miss most of the variance of a
    population that fills a small part of the domain. Without the draws, which together count as 200 rows, few rows
    would give directions along which they have more variance than their population.
    The released points are never used. They were fitted to the noise: with directions from them the test rejected a
    true hypothesis 35 times in 100 at ε = 0.1.
    """
    feature_map = measurement.feature_map
    if isinstance(feature_map, Nystroem) or rows is None:
        if "directions" not in memo(release):
            public = (
                feature_map.points if isinstance(feature_map, Nystroem) else release.domain.draw(_REFERENCE_ROWS, 0)
            )
            some = public[:: max(1, len(public) // _REFERENCE_ROWS)]
            memo(release)["directions"] = principal_directions(feature_map, some)
        return memo(release)["directions"]
    some = rows[:: -(-len(rows) // _SAMPLE_ROWS)]
    drawn = release.domain.draw(_DRAWS + _SAMPLE_ROWS - len(some), 0)
    counted = np.repeat([_DRAWS_COUNT_AS / len(drawn), 1.0], [len(drawn), len(some)])
    return principal_directions(feature_map, np.vstack([drawn, some]), counted / counted.sum())


@dataclass(frozen=True)
class Moments:
    """A sample's moments in feature space: mean (F,), mean squared norm, and covariance along K directions."""

    mean: Array
    mean_square: float
    covariance: Array  # (K, K) along the directions, without the rows that were left out
    n_rows: int
    rows: (
        Array | None
    )  # the rows of the covariance, projected (n, K); None if they are so many that it needs no shrinkage

    @property
    def variance(self) -> float:
        """Unbiased trace of the rows' covariance in all of feature space."""
        return (self.mean_square - float(self.mean @ self.mean)) * self.n_rows / (self.n_rows - 1)

    def shrunk_covariance(self, weights: Array, variances: Array) -> Array:
        """The covariance (K, K) shrunk towards a public diagonal until its weighted square has the estimated size.

        A covariance of few rows has the right trace, but too few and too large eigenvalues: the null distribution
        made from it is too heavy-tailed, and the test becomes conservative (rejections of .02 and .002 at 5 % and 1 %
        with 30 rows). The square's size tr(WΣWΣ) has an estimate without bias, whatever the rows' distribution (Himeno &
        Yamada 2014, J. Multivariate Anal. 130, 27); the target is the reference's covariance, scaled to the same trace.

        weights, variances   w, λ (K,): of the statistic, and of the reference along the directions.
        """
        if self.rows is None:
            return self.covariance
        root = np.sqrt(weights)
        S = root[:, None] * self.covariance * root
        target = np.diag(weights * variances * (np.trace(S) / (weights @ variances)))
        gap = S - target
        if len(self.rows) < 4 or not gap.any():
            share = 1.0
        else:
            excess = float(np.vdot(S, S)) - self._square_size(root)
            share = _first_root(float(np.vdot(gap, gap)), float(np.vdot(S, gap)), excess)
        return (S - share * gap) / (root[:, None] * root)

    def projected(self, form: Array) -> Moments:
        """The same along other directions, those times `form` (K, k)."""
        rows = None if self.rows is None else self.rows @ form
        return replace(self, covariance=form.T @ self.covariance @ form, rows=rows)

    def _square_size(self, root: Array) -> float:
        """Unbiased estimate of tr(WΣWΣ), at least 0."""
        assert self.rows is not None
        n = len(self.rows)
        centred = (self.rows - self.rows.mean(axis=0)) * root
        norms = np.einsum("ij,ij->i", centred, centred)
        trace, square = norms.sum() / (n - 1), (n - 1) * np.linalg.norm(centred.T @ centred / (n - 1)) ** 2
        found = ((n - 2) * square + trace**2 - n * (norms**2).sum() / (n - 1)) * (n - 1) / (n * (n - 2) * (n - 3))
        return max(float(found), 0.0)


def _first_root(a: float, b: float, c: float) -> float:
    """The first share s in [0, 1] with a s² − 2 b s + c ≤ 0, or where this is least."""
    if c <= 0:
        return 0.0
    lowest = min(max(b / a, 0.0), 1.0)
    inside = b * b - a * c
    return min(lowest, max((b - inside**0.5) / a, 0.0)) if inside > 0 else lowest


def sample_moments(
    feature_map: FeatureMap, directions: Directions, blocks: Iterable[Array], *, left_out: Array | None = None
) -> Moments:
    """Moments of encoded rows in blocks: memory does not grow with their number.

    left_out   indices of rows that are left out of the covariance: rows have more variance than others along directions
               that were computed from them, and a null distribution from them is too wide.
    """
    vectors, n, left_out = directions.vectors, 0, np.empty(0, dtype=int) if left_out is None else left_out
    total, square = np.zeros(feature_map.dimension), 0.0
    along, scatter = np.zeros(vectors.shape[1]), np.zeros((vectors.shape[1], vectors.shape[1]))
    few: list[Array] = []
    for rows in blocks:
        for block in row_blocks(len(rows), feature_map.width):
            features = feature_map.compact(rows[block])
            total += features.sum(axis=0)
            square += sum_of_squares(features)
            others = ~np.isin(np.arange(n, n := n + features.shape[0]), left_out)
            projected = (features @ vectors)[others]
            along += projected.sum(axis=0)
            scatter += projected.T @ projected
            if n <= _FEW_ROWS:
                few.append(projected)
    known = n - len(left_out)
    return Moments(
        mean=total / n,
        mean_square=square / n,
        covariance=(scatter - np.outer(along, along) / known) / (known - 1),
        n_rows=n,
        rows=np.vstack(few) if n <= _FEW_ROWS else None,
    )


def direction_weights(directions: Directions, shrink: float, measurements: Sequence[Measurement]) -> Array:
    """w_i = cλ_i/(cλ_i + r)² (K,): the statistic's weights, of public facts and the reference alone.

    r = max(τ², cρ), ρ the least ridge that leaves Σ λ_i/(λ_i + ρ) ≤ 1/(5c) effective directions, 150 at most: few rows
    determine the null distribution along no more directions, and along the smallest of many a mean of some thousand rows
    is not yet normal. Under the hypothesis the statistic is about as large as that number.
    """
    sampled = shrink * directions.variances
    return sampled / (sampled + _ridge(directions, shrink, measurements)) ** 2


def _ridge(directions: Directions, shrink: float, measurements: Sequence[Measurement]) -> float:
    """r of `direction_weights`."""
    noise_variance = sum(measurement.noise_scale**2 for measurement in measurements)
    effective = min(1 / (_ROWS_PER_DIRECTION * shrink), _MOST_EFFECTIVE)
    return max(noise_variance, shrink * _ridge_leaving(effective, directions.variances))


def _ridge_leaving(effective: float, variances: Array) -> float:
    """The least ρ ≥ 0 with Σ λ/(λ + ρ) ≤ effective."""
    if effective >= len(variances):
        return 0.0

    def excess(log_ridge: float) -> float:
        return float((variances / (variances + np.exp(log_ridge))).sum()) - effective

    low, high = np.log(variances.min()) - 40, np.log(variances.sum() / effective)
    return float(np.exp(brentq(excess, low, high))) if excess(low) > 0 else 0.0


def noise_aware_test(
    difference: Array, directions: Directions, covariance: Array, shrink: float, measurements: Sequence[Measurement]
) -> tuple[float, float]:
    """(statistic, pvalue) for d ~ N(0, shrink·Σ) + noise of the measurements, with `direction_weights`.

    difference   d (F,). covariance: Σ along the directions (K, K). shrink: c, the sum of 1/rows over both sides.
    Gaussian noise adds τ²I to the covariance. Laplace noise is Gaussian of a random variance, exponential with mean
    τ²: given the variances the distribution is exact, and the p-value is its mean over draws of them from a fixed seed.
    """
    weights = direction_weights(directions, shrink, measurements)
    statistic = float(weights @ (directions.vectors.T @ difference) ** 2)
    nulls = (
        shrink * covariance + (directions.vectors.T * sum(variances)) @ directions.vectors
        for variances in noise_variances(measurements)
    )
    return statistic, mean_tail(statistic, weights, nulls)


def columns_test(
    difference: Array, directions: Directions, moments: Moments, shrink: float, measurement: Measurement
) -> float | None:
    """p-value of the columns one by one, corrected for their number; None unless the features are one-way tables.

    The sum over all directions hides a difference in one column of many among the noise of the others. Here the tables of
    each column are tested twice: by themselves, and along V⁻¹ of V = cΣ + rI, for what the other columns do not explain.
    The first finds more where what the columns have in common differs as well, the second where it does not.
    """
    blocks = features_of_columns(measurement.feature_map)
    if len(blocks) < 2:
        return None
    along, ridge = directions.vectors.T @ difference, _ridge(directions, shrink, [measurement])
    sampled, found = shrink * directions.variances, list[float]()
    for block in blocks:
        own = directions.vectors[block]
        size, turn = np.linalg.eigh((own * sampled) @ own.T)
        if size[-1] <= 0:  # a column of one value
            found += [1.0, 1.0]
            continue
        kept = size > _HARDLY * min(ridge, size[-1])
        size, turn = size[kept], own.T @ turn[:, kept]
        for form in (turn * (np.sqrt(size) / (size + ridge)), turn * np.sqrt(size) / (sampled + ridge)[:, None]):
            covariance = moments.projected(form).shrunk_covariance(np.ones(len(size)), directions.variances @ form**2)
            null = shrink * covariance + measurement.noise_scale**2 * (form.T @ form)
            found.append(NormalQuadraticForm(null).sf(float(np.sum((form.T @ along) ** 2))))
    return min(1.0, len(found) * min(found))


def features_of_columns(feature_map: FeatureMap) -> list[Array]:
    """The features of each column's tables, crossed with the target if there is one; none unless all tables are one-way."""
    if not isinstance(feature_map, MarginFeatures):
        return []
    kernel = feature_map.kernel
    if not isinstance(kernel, ChosenMargins) or kernel.n_pairs:
        return []
    columns = [*range(len(kernel.edges)), *kernel.finer]
    found: dict[int, list[Array]] = {}
    for group in feature_map.groups:
        for table, (start, stop) in zip(group.tables, group.ranges, strict=True):
            found.setdefault(columns[table[-1]], []).append(np.arange(start, stop))
    return [np.concatenate(tables) for tables in found.values()]


def mean_tail(statistic: float, weights: Array, nulls: Iterable[Array]) -> float:
    """P(Σ w_k d_k² > statistic), d ~ N(0, V), averaged over covariances V (K, K)."""
    return float(np.mean([NormalQuadraticForm(null, weights).sf(statistic) for null in nulls]))


def noise_variances(measurements: Sequence[Measurement]) -> Iterator[list[Array]]:
    """For each measurement variances (F,), given which its noise is Gaussian: one set if all noise is Gaussian, else many draws."""
    if not any(is_pure(m.noise_law) for m in measurements):
        yield [np.full(len(m.vector), m.noise_scale**2) for m in measurements]
        return
    rng = np.random.default_rng(0)
    few = min(len(m.vector) for m in measurements) <= _FEW_FEATURES  # many features average out
    for _ in range(8 * _LAPLACE_DRAWS if few else _LAPLACE_DRAWS):
        yield [
            m.noise_scale**2 * (rng.exponential(size=len(m.vector)) if is_pure(m.noise_law) else np.ones(len(m.vector)))
            for m in measurements
        ]


def size_of_difference(
    difference: Array,
    directions: Directions,
    covariance: Array,
    variance: float,
    shrink: float,
    measurements: Sequence[Measurement],
    *,
    level: float = _LEVEL,
) -> dict[str, Any]:
    """Noise floor, interval and detectable distance, as a TestResult has them.

    variance   trace of the rows' covariance in all of feature space.
    level      at which the sum over all directions is tested.
    The interval is for all of feature space: the other directions count as one group of equal variances.
    """
    tau2 = sum(m.noise_scale**2 for m in measurements)
    null = shrink * covariance + tau2 * np.eye(len(covariance))
    eigenvalues, basis = np.linalg.eigh(null)
    eigenvalues = np.maximum(eigenvalues, tau2)
    along = basis.T @ (directions.vectors.T @ difference)
    remaining = len(difference) - len(covariance)
    left_over = max(float(difference @ difference) - float(along @ along), 0.0)
    spread = max(shrink * (variance - float(np.trace(covariance))), 0.0) / max(remaining, 1) + tau2
    heavy = 2.5 if any(is_pure(m.noise_law) for m in measurements) else 1.0  # Laplace noise: ‖ξ‖² varies as 5F, not 2F
    everywhere = NormalQuadraticForm(
        np.append(eigenvalues, spread * heavy)[: len(difference)],
        degrees=np.append(np.ones(len(eigenvalues)), remaining / heavy)[: len(difference)],
    )
    low, high = everywhere.interval(np.append(along, np.sqrt(left_over))[: len(difference)])
    return {
        "noise_floor": float(np.sqrt(shrink * variance + len(difference) * tau2)),
        "mmd_interval": (low, max(low, high)),
        "detectable_mmd": NormalQuadraticForm(null, direction_weights(directions, shrink, measurements)).detectable(
            directions.variances, level=level
        ),
    }


def release_against_sample(release: ReleaseData, measurement: Measurement, sample: SampleRows) -> TestResult:
    """The test of a release with a measurement against rows."""
    some, indices, blocks = sample.split_for_directions(_SAMPLE_ROWS)
    along = directions_of(release, measurement, some)
    taken = indices if not isinstance(measurement.feature_map, Nystroem) and len(some) >= _MANY_ROWS else None
    moments = sample_moments(measurement.feature_map, along, blocks, left_out=taken)
    n = moments.n_rows
    shrink = 1 / measurement.n_rows + 1 / n
    covariance = moments.shrunk_covariance(direction_weights(along, shrink, [measurement]), along.variances)
    difference = measurement.vector - moments.mean
    statistic, pvalue = noise_aware_test(difference, along, covariance, shrink, [measurement])
    of_columns = columns_test(difference, along, moments, shrink, measurement)
    if of_columns is not None:
        pvalue = min(1.0, 2 * min(pvalue, of_columns))
    sample_square = (n * float(moments.mean @ moments.mean) - moments.mean_square) / (n - 1)
    return result_about(
        release,
        statistic=statistic,
        pvalue=pvalue,
        mmd_squared=squared_mean_norm(release) + sample_square - 2 * float(measurement.vector @ moments.mean),
        method="noise-aware weighted MMD, release against sample",
        n_sample_rows=n,
        notes=(*sample.notes, *notes_on_choice(release)),
        **size_of_difference(
            difference, along, covariance, moments.variance, shrink, [measurement],
            level=_LEVEL if of_columns is None else _LEVEL / 2,
        ),
    )  # fmt: skip


def notes_on_choice(*releases: ReleaseData) -> tuple[str, ...]:
    """A note where tables were chosen by scores, and the test looks at the others alone."""
    every = [release.measurement for release in releases]
    measurements = [measurement for measurement in every if measurement and measurement.chosen_by_rows]
    if not measurements:
        return ()
    alone = "the one-way tables" + " and pairs of the workload" * any(found.beforehand for found in measurements)
    return (
        f"tables of pairs were chosen by scores of the same rows, so the test is of {alone}; see compare for pairs",
    )


def squared_mean_norm(release: ReleaseData) -> float:
    """Unbiased estimate of ‖E φ‖² from the measurement: noise and the diagonal are subtracted.

    E‖y‖² = ‖E φ‖² (1 − 1/N) + E‖φ‖²/N + Fτ². Random Fourier features and margins have a constant norm; for a subspace the
    mean squared norm is that of the released points.
    """
    assert release.measurement is not None
    measurement = release.measurement.decided_beforehand
    n, vector = measurement.n_rows, measurement.vector
    mean_square = measurement.feature_map.norm_bound**2
    if isinstance(measurement.feature_map, Nystroem):
        features = measurement.feature_map(release.encoded_points)
        mean_square = float(view_weights(release, "probability") @ np.einsum("ij,ij->i", features, features))
    without_noise = float(vector @ vector) - len(vector) * measurement.noise_scale**2
    return (n * without_noise - mean_square) / (n - 1) if n > 1 else without_noise
