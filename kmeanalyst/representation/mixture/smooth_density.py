"""A smooth density of a number through the shares of its ranges: its logarithm is linear between a few knots, and bends little.

Ranges at the ends of a scale are wide and hold few rows, which lie near the others. Values spread evenly over such a range would
give the number a larger variance than it has, and lower every correlation.
"""

from __future__ import annotations

import numpy as np

from kmeanalyst.kernels.base import Array

_BEND = 0.5  # prior standard deviation of the second difference of the log density at knots half a range apart
_TOLERANCE, _LEAST = 0.05, 1e-4  # deviation of a range's share, relative to it, and at least
_STEPS = 30
_FURTHEST = 3.0  # change of a log density in one step
_ENOUGH = 1e-6


def smooth_shares(ends: Array, sizes: Array, cell: Array, shares: Array, observed: Array, noise: float) -> Array:
    """(R,) shares of fine ranges under a smooth density.

    ends       (R + 1,) of the ranges.
    sizes      (R,) 0 for a range without values.
    cell       (R,) the coarser range that contains each, increasing.
    shares     (cells,) of the coarser ranges.
    observed   (R,) noisy shares of the fine ranges, of standard deviation `noise`.
    """
    ends = (ends / 2 - ends[0] / 2) / (ends[-1] / 2 - ends[0] / 2)  # halves of the largest floats can be subtracted
    first = np.flatnonzero(np.diff(cell, prepend=-1))
    borders = np.append(ends[first], ends[-1])
    knots = np.sort(np.concatenate([borders, (borders[1:] + borders[:-1]) / 2]))
    middles = (ends[:-1] + ends[1:]) / 2
    hats = np.column_stack([np.interp(middles, knots, unit) for unit in np.eye(len(knots))])
    bends = _second_differences(knots) / _BEND
    total = max(float(shares.sum()), _LEAST)
    wanted, deviation = shares / total, np.maximum(_TOLERANCE * shares / total, _LEAST)
    seen, noise = observed / total, noise / total
    logs = np.zeros(len(knots))
    for _ in range(_STEPS):
        density = sizes * np.exp(hats @ logs - (hats @ logs).max())
        p = density / density.sum()
        slopes = p[:, None] * (hats - p @ hats)
        of_cells = np.add.reduceat(slopes, first) / deviation[:, None]
        misfit = (np.add.reduceat(p, first) - wanted) / deviation
        curvature = slopes.T @ slopes / noise**2 + of_cells.T @ of_cells + bends.T @ bends
        slope = slopes.T @ (p - seen) / noise**2 + of_cells.T @ misfit + bends.T @ (bends @ logs)
        step = np.linalg.solve(curvature + _ENOUGH * np.eye(len(knots)), slope)
        logs = logs - step * min(1.0, _FURTHEST / max(np.abs(step).max(), _FURTHEST))
        if np.abs(step).max() < _ENOUGH:
            break
    density = sizes * np.exp(hats @ logs - (hats @ logs).max())
    return density / density.sum()


def _second_differences(knots: Array) -> Array:
    """(K − 2, K): 1, −2, 1 where knots are evenly spaced."""
    widths = np.diff(knots)
    before, after = widths[:-1], widths[1:]
    found = np.zeros((len(knots) - 2, len(knots)))
    scale = 2 * before * after / (before + after)
    rows = np.arange(len(knots) - 2)
    found[rows, rows], found[rows, rows + 2] = scale / before, scale / after
    found[rows, rows + 1] = -(scale / before + scale / after)
    return found
