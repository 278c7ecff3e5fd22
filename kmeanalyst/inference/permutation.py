"""Room 4: sample against sample, by relabelling the rows."""

from __future__ import annotations

import numpy as np

from kmeanalyst.inference.distance import Sample, embeddings
from kmeanalyst.inference.results import TestResult
from kmeanalyst.kernels import Kernel
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.embedding import row_blocks


def permutation_test(
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
    x, y = embeddings(a, b, kernel)
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
