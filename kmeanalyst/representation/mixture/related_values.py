"""Which values of a cell go together: numbers keep within their ranges the relation that they have between them.

Values drawn for each column alone are unrelated within cells: with twelve ranges a correlation of −.93 becomes −.87, and
one of .92 becomes .69 where two ranges hold most rows. The rows' ranks are taken for those of correlated normals that
are known up to cells: normals and their correlations are drawn in turn, given one another, and each
cell's values are handed to its rows in the order of their normals. Cells, and the values of each cell, stay what they are.

Source: a normal copula of grouped values by Gibbs sampling, as in Hoff 2007 (The Annals of Applied Statistics 1, 265-283).
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr, ndtri

from kmeanalyst.kernels.base import Array

_ROUNDS = 10  # draws of all normals
_FURTHEST = 6.0  # of a normal
_RIDGE = 1e-4  # keeps correlations of columns that determine one another invertible


def with_related_values(values: Array, ranges: Array, groups: Array, rng: np.random.Generator) -> Array:
    """Values (n, k) of k number columns, in another order within each of their groups.

    values   NaN where missing; those have no order.
    ranges   (n, k) the range that holds each value: larger values are in the same or in a later one.
    groups   (n, k) whole numbers: rows of one number exchange values of the column.
    """
    if values.shape[1] < 2 or not len(values):
        return values
    low, high = _bounds(values, ranges)
    normals = np.column_stack([ndtri((a + b) / 2) for a, b in zip(ndtr(low.T), ndtr(high.T), strict=True)])
    for _ in range(_ROUNDS):
        _redraw(normals, low, high, rng)
    related = np.empty_like(values)
    for j, own in enumerate(groups.T):
        related[np.lexsort((normals[:, j], own)), j] = values[np.lexsort((values[:, j], own)), j]
    return related


def _bounds(values: Array, ranges: Array) -> tuple[Array, Array]:
    """(n, k) the least and largest normal of each row: the quantiles at the ends of its range; of a missing value, any."""
    low, high = np.full(values.shape, -_FURTHEST), np.full(values.shape, _FURTHEST)
    for j, own in enumerate(ranges.T):
        present = ~np.isnan(values[:, j])
        _, place, counts = np.unique(own[present], return_inverse=True, return_counts=True)
        ends = np.clip(ndtri(np.concatenate([[0], np.cumsum(counts)]) / max(counts.sum(), 1)), -_FURTHEST, _FURTHEST)
        low[present, j], high[present, j] = ends[place], ends[place + 1]
    return low, high


def _redraw(normals: Array, low: Array, high: Array, rng: np.random.Generator) -> None:
    """Each column of `normals` given the others and its bounds, one after the other."""
    k = normals.shape[1]
    spread = normals.std(axis=0)
    correlation = np.cov(normals.T) / np.outer(spread, spread).clip(1e-12) + _RIDGE * np.eye(k)
    precision = np.linalg.inv(correlation)
    for j in range(k):
        deviation = precision[j, j] ** -0.5
        mean = normals[:, j] - normals @ precision[:, j] / precision[j, j]
        below, above = (ndtr((bound[:, j] - mean) / deviation) for bound in (low, high))
        drawn = mean + deviation * ndtri(below + (above - below) * rng.random(len(mean)))
        normals[:, j] = np.clip(drawn, low[:, j], high[:, j])
