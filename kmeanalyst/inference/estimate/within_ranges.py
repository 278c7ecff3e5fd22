"""How far answers may be off because tables do not show how numbers are related within their ranges.

Rows are related within ranges as they are between them (`related_values`): an assumption, which may be off by as much as it
adds. Of two numbers x, y with the means m, l of their ranges it adds E_p w, w = xy − ml: a function h with the
coefficient b = Cov_p(h, w)/Var_p w has the error b E_p w. Functions of ranges alone have next to none.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import Margins

_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class WithinRanges:
    """What rows assume of pairs of numbers within their ranges.

    values     (n, k) of k columns, of mean 0.
    means      (n, k) of the ranges that hold them.
    weights    (n,) of the rows.
    relative   (k, k) E_p w / Var_p (w given ranges) of each pair of columns, above the diagonal.
    """

    values: Array
    means: Array
    weights: Array
    relative: Array

    @classmethod
    def of(cls, kernel: Margins, rows: Array, weights: Array) -> WithinRanges:
        values, cells = np.where(np.isnan(rows), 0.0, rows), kernel.cells(rows)
        values = values - weights @ values
        means = np.column_stack([_means(*own, weights) for own in zip(values.T, cells.T, strict=True)])
        ranged = np.abs(values - means).max(axis=0) > _ROUNDING * np.abs(values).max(axis=0)
        x, m, cells = values[:, ranged], means[:, ranged], cells[:, ranged]
        added = np.triu(_products(x, weights) - _products(m, weights), 1)
        for i, j in combinations(range(len(added)), 2):
            w = x[:, i] * x[:, j] - m[:, i] * m[:, j]
            left = w - _means(w, cells[:, i] * (cells[:, j].max() + 1) + cells[:, j], weights)
            variance = float(weights @ left**2)
            added[i, j] = added[i, j] / variance if variance > 0 else 0.0
        return cls(x, m, weights, added)

    def covariance(self, rest: Array) -> Array:
        """(q, q) of the errors of functions (n, q), of which what features explain was taken away."""
        each = [
            (_products(self.values, self.weights * h) - _products(self.means, self.weights * h)) * self.relative
            for h in rest.T
        ]
        errors = np.array(each).reshape(len(each), -1)
        return errors @ errors.T


def _products(x: Array, weights: Array) -> Array:
    """(k, k) the weighted sums of products of columns (n, k)."""
    return x.T @ (weights[:, None] * x)


def _means(values: Array, cells: Array, weights: Array) -> Array:
    """(n,) the mean of the values in each row's cell."""
    mass = np.bincount(cells, weights)
    return (np.bincount(cells, weights * values) / np.where(mass > 0, mass, 1.0))[cells]
