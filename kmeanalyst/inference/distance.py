"""Room 4: how far two populations are apart, as maximum mean discrepancy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from kmeanalyst.kernels import Gaussian, Kernel, KernelMean, median_lengthscale
from kmeanalyst.kernels.base import Array, as_rows
from kmeanalyst.kernels.embedding import row_blocks
from kmeanalyst.releases.release import Release

Sample = Any  # an array (n, d), a DataFrame, or a (points, weights) pair


def mmd(a: Release | Sample, b: Release | Sample, kernel: Kernel | None = None) -> float:
    """Maximum mean discrepancy ‖Σ u_i k(x_i, ·) − Σ v_j k(y_j, ·)‖ of two weighted samples.

    a, b     releases (with their weights as released), (points, weights) pairs, or plain samples of rows.
    kernel   the release's by default; for plain samples a Gaussian at the pooled median distance.
    Returns  the distance itself; `mmd_squared` gives its square, unbiased if asked.

    >>> round(mmd([[0, 0], [1, 1], [2, 2]], [[0, 0], [1, 1]], Gaussian(1.0)), 10)
    0.3797286517
    """
    x, y = embeddings(a, b, kernel)
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
    x, y = embeddings(a, b, kernel)
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
    return without_diagonal(x) + without_diagonal(y) - 2 * cross


def without_diagonal(x: KernelMean) -> float:
    n = len(x.points)
    return (x.squared_norm() * n * n - float(x.kernel.diagonal(x.points).sum())) / (n * (n - 1))


def _equal(weights: Array | None) -> bool:
    assert weights is not None
    return bool(np.ptp(weights) <= 1e-12 * abs(weights[0]) and abs(weights.sum() - 1) < 1e-9)


def embeddings(a: Any, b: Any, kernel: Kernel | None) -> tuple[KernelMean, KernelMean]:
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
