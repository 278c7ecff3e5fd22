"""Weighted points without a measurement against a sample: only the sample is random.

Under the hypothesis L·MMD² has the distribution of Σ e_i χ²₁, e the eigenvalues of the features' covariance Σ (Gretton et al.
2012, theorem 12, with one side fixed). Their sum, tr Σ, is computed from all rows, their relative sizes from a subset.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from kmeanalyst.inference.two_sample import gram_sums as precision
from kmeanalyst.inference.two_sample.distance import Pair, Sample, read_pair, without_diagonal
from kmeanalyst.inference.two_sample.result import TestResult
from kmeanalyst.inference.two_sample.sides import SampleRows, result_about
from kmeanalyst.inference.weighted_chi_squared import NormalQuadraticForm
from kmeanalyst.kernels import Kernel, KernelMean
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.embedding import centre_gram
from kmeanalyst.releases.release import ReleaseData

_MOST_EIGEN_ROWS = 2000
_LEVEL = 0.05
_NOTE = "no measurement: the weighted points are tested as a fixed distribution, without any noise of their own"


def fixed_against_sample(release: ReleaseData, sample_rows: SampleRows) -> TestResult:
    """A release without a measurement as a fixed distribution, against rows."""
    rows = np.vstack(list(sample_rows.blocks()))
    return result_about(
        release,
        **_against_fixed(release.embedding, rows),
        n_sample_rows=len(rows),
        notes=(_NOTE, *sample_rows.notes),
    )


def weighted_against_sample(a: Sample, b: Sample, kernel: Kernel | None) -> TestResult:
    """A (points, weights) pair as a fixed distribution, against rows: exactly as a release without a measurement.

    kernel   Gaussian at the pooled median distance by default, or the table kernel (see `read_pair`).
    """
    if kernel is not None and not isinstance(kernel, Kernel):
        raise ValueError(
            f"weighted points are tested with one kernel, got {kernel!r:.80}: several need relabelling, which is impossible "
            "with weights. Pass one, such as Gaussian(1.0)."
        )
    pair = read_pair(a, b, kernel)
    points, weights, rows = _sides(pair)
    if len(rows) < 2:
        raise ValueError(f"the sample needs at least two rows to show its own spread, got {len(rows)}. Add rows.")
    return TestResult(
        **_against_fixed(KernelMean(pair.kernel, points, weights), rows),
        n_release_points=len(points),
        n_sample_rows=len(rows),
        notes=(_NOTE, *pair.notes),
    )


def _sides(pair: Pair) -> tuple[Array, Array, Array]:
    if pair.u is not None:
        return pair.x, pair.u, pair.y
    assert pair.v is not None
    return pair.y, pair.v, pair.x


@dataclass(frozen=True)
class _Subset:
    """Estimates from a subset of the sample's rows: no row is paired with itself."""

    eigenvalues: Array  # of Σ, unscaled
    trace_of_square: float | None
    witness: Array  # at each row of the subset


def _against_fixed(fixed: KernelMean, rows: Array) -> dict[str, Any]:
    """statistic, pvalue, mmd_squared, method and precision."""
    sample, n = KernelMean(fixed.kernel, rows), len(rows)
    own = float(fixed.kernel.diagonal(rows).mean())
    among, across, squared = without_diagonal(sample), fixed.inner(sample), fixed.squared_norm()
    unbiased = squared - 2 * across + among
    subset = _subset(fixed, sample)
    # the distribution's mean, from all rows: its shape, from the subset
    null = NormalQuadraticForm(subset.eigenvalues * ((own - among) / max(subset.eigenvalues.sum(), 1e-300)) / n)
    statistic = max(0.0, unbiased + (own - among) / n)
    return {
        "statistic": statistic,
        "pvalue": null.sf(statistic),
        "mmd_squared": unbiased,
        "method": "MMD, fixed weighted points against sample",
        **asdict(_precision(unbiased, null, subset, n)),
    }


def _subset(fixed: KernelMean, sample: KernelMean) -> _Subset:
    rows, n = sample.points, len(sample.points)
    some = rows[np.random.default_rng(0).permutation(n)[:_MOST_EIGEN_ROWS]]
    K, own = fixed.kernel.gram(some, some), fixed.kernel.diagonal(some)
    np.fill_diagonal(K, 0.0)
    square = precision.trace_of_square(float(np.vdot(K, K)), K.sum(axis=1))
    np.fill_diagonal(K, own)
    witness = fixed.evaluate(some) - (n * sample.evaluate(some) - own) / (n - 1)
    centre_gram(K)
    return _Subset(np.maximum(np.linalg.eigvalsh(K), 0.0), square, witness)


def _precision(unbiased: float, null: NormalQuadraticForm, subset: _Subset, n: int) -> precision.Precision:
    """null: the distribution of the biased statistic, whose mean is tr Σ/n."""
    floor = float(np.sqrt(null.coefficients.sum()))
    if subset.trace_of_square is None or floor == 0:
        return precision.Precision(floor, None, None)
    square = subset.trace_of_square
    null_variance, trace = 2 * square / n**2, n * floor**2
    linear = precision.witness_variance(subset.witness, square, rows=n)
    return precision.Precision(
        noise_floor=floor,
        mmd_interval=precision.mmd_interval(unbiased, null_variance, linear / n),
        detectable_mmd=precision.detectable_mmd(null.isf(_LEVEL) - floor**2, null_variance, square / (n * trace)),
    )
