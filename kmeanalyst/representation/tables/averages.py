"""Several noisy versions of one table as one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kmeanalyst.kernels.base import Array


def averaged_by_precision(versions: Sequence[tuple[Array, float]]) -> tuple[Array, float]:
    """The mean of independent noisy versions of an array, weighted by the inverse of their variances, and its variance.

    versions   at least one: arrays of one shape, each with the variance of the noise on each of its numbers.

    >>> averaged_by_precision([(np.array([1.0, 2.0]), 1.0), (np.array([4.0, 2.0]), 0.5)])
    (array([3., 2.]), 0.333...)
    """
    precisions = np.array([1 / variance for _, variance in versions])
    total = sum(precision * values for precision, (values, _) in zip(precisions, versions, strict=True))
    return np.asarray(total / precisions.sum()), float(1 / precisions.sum())
