"""What tests of feature maps share: an attack by an optimiser, and the error that random features may have."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize

from kmeanalyst.kernels import Kernel
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.base import FeatureMap


def worst_rows(start: Array, numbers: list[int], value: Callable[[Array], float], *, tries: int) -> tuple[Array, float]:
    """Rows (n, d) with the largest value that Nelder-Mead finds from the start, and that value; it moves present numbers."""
    free = np.zeros(start.shape, dtype=bool)
    free[:, numbers] = True
    free &= ~np.isnan(start)

    def with_numbers(flat: Array) -> Array:
        rows = start.copy()
        rows[free] = flat
        return rows

    if not free.any():
        return start, value(start)
    best = minimize(lambda flat: -value(with_numbers(flat)), start[free], method="Nelder-Mead", options={"maxfev": tries})
    return with_numbers(best.x), -float(best.fun)


def largest_error(feature_map: FeatureMap, rows: Array, kernel: Kernel | None = None) -> float:
    """The largest |φ(x)ᵀφ(y) − k(x, y)| over pairs of rows."""
    features = feature_map(rows)
    return float(np.abs(features @ features.T - (kernel or feature_map.kernel).gram(rows, rows)).max())


def hoeffding(range_: float, *, terms: int, pairs: int, false_alarm: float = 1e-9) -> float:
    """Means of `terms` independent numbers of this range stay so close to their expectation, for all pairs at once.

    φ(x)ᵀφ(y) of random Fourier features is k(0) times a mean of R cosines: range 2 and R terms.
    """
    return range_ * float(np.sqrt(np.log(2 * pairs / false_alarm) / (2 * terms)))
