"""Weighted values, many or few, with a stated distance to the distribution that they stand for.

The number of points of a product is the product of its factors' numbers. They are gathered in cells (a tree that always
splits the cell whose mean represents its values worst), and the cells are thinned to the number of points asked for, with
bounded weights: Schölkopf et al. 2015, *Computing functions of random variables via reproducing kernel Hilbert space
representations*, §4, reduced sets.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
import pandas as pd

from kmeanalyst.kernels import Gaussian, Kernel, KernelMean, OnColumns, Product
from kmeanalyst.kernels.base import Array
from kmeanalyst.representation.thinning import ThinWeights, thinned

_CELLS = 4096


@dataclass(frozen=True, eq=False)
class ReducedPoints:
    """Weighted values that stand for the distribution of a random variable.

    values      (m, d).
    weights     (m,), Σ|w| at most that of the distribution, or 1 if that is more.
    names       (d,) of the components.
    kernel      in whose RKHS the error is.
    rkhs_error  distance of the embedding to that of all `stands_for` weighted values: that of the cells' means, computed,
                plus the error of replacing a cell by its mean, to second order.
    stands_for  how many values there were.

    >>> few = release["age"].thin(10)
    >>> few.values.shape, few.stands_for, few.embedding.squared_norm() > 0
    ((10, 1), 16000, True)
    """

    values: Array
    weights: Array
    names: tuple[str, ...]
    kernel: Kernel
    rkhs_error: float
    stands_for: int

    def __len__(self) -> int:
        """m, the number of points."""
        return len(self.weights)

    @property
    def embedding(self) -> KernelMean:
        return KernelMean(self.kernel, self.values, self.weights)

    def to_frame(self) -> pd.DataFrame:
        """A column for each component, and "weight".

        >>> release["age"].thin(10).to_frame().columns.tolist()
        ['age', 'weight']
        """
        return pd.DataFrame(self.values, columns=list(self.names)).assign(weight=self.weights)

    def __repr__(self) -> str:
        return (
            f"{', '.join(self.names)}: {len(self):,} points for {self.stands_for:,} (RKHS error {self.rkhs_error:.2g}, "
            f"Σ|w| = {np.abs(self.weights).sum():.3g})"
        )


def default_kernel(values: Array, weights: Array) -> Kernel:
    """Gaussian with the values' standard deviation as lengthscale; the product of such kernels for several components."""
    p = np.abs(weights) / np.abs(weights).sum()
    spread = np.sqrt(p @ (values - p @ values) ** 2)
    each = [Gaussian(float(sd) if sd > 0 else 1.0) for sd in spread]
    return each[0] if len(each) == 1 else Product(tuple(OnColumns(k, (j,)) for j, k in enumerate(each)))


def gathered(values: Array, weights: Array, kernel: Kernel, names: tuple[str, ...]) -> ReducedPoints:
    """At most some thousand weighted values for all (m, d): as they are if these are no more."""
    used = weights != 0
    if used.sum() <= _CELLS:
        return ReducedPoints(values[used], weights[used], names, kernel, 0.0, len(values))
    centres, masses, error = [], [], 0.0
    share = np.abs(weights[weights < 0]).sum() / np.abs(weights).sum()
    for side, cells in ((weights > 0, round(_CELLS * (1 - share))), (weights < 0, round(_CELLS * share))):
        if side.any():
            X, w = values[side], np.abs(weights[side])
            means, mass, spread = _cells(X, w, max(cells, 1))
            sign = 1.0 if weights[side][0] > 0 else -1.0
            centres.append(means)
            masses.append(sign * mass)
            error += _replacement_error(kernel, means, mass, spread)
    return ReducedPoints(np.vstack(centres), np.concatenate(masses), names, kernel, error, len(values))


def reduced(points: ReducedPoints, n: int, kind: ThinWeights) -> ReducedPoints:
    """At most n of the points with new weights, bounded by the old ones' Σ|w|; see `thinned`."""
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise ValueError(f"n must be a whole number of at least 1, got {n!r:.80}: it is how many points to keep.")
    if n >= len(points):
        return points
    chosen, weights, error = thinned(points.kernel, points.values, points.weights, int(n), kind)
    used = weights != 0
    return ReducedPoints(
        points.values[chosen[used]], weights[used], points.names, points.kernel, points.rkhs_error + error,
        points.stands_for,
    )  # fmt: skip


def _cells(X: Array, w: Array, most: int) -> tuple[Array, Array, Array]:
    """Means (c, d), masses (c,) and standard deviations (c, d) of c ≤ most cells of points (m, d) of positive weights.

    The cell of the largest Σ w‖x − mean‖², in units of the points' spread, is split at its mean.
    """
    scale = np.sqrt(np.maximum((w @ (X - w @ X / w.sum()) ** 2) / w.sum(), 1e-300))
    waiting: list[tuple[float, int, Array]] = []

    def add(rows: Array, number: int) -> None:
        mass = float(w[rows].sum())
        mean = w[rows] @ X[rows] / mass
        variance = w[rows] @ (X[rows] - mean) ** 2 / mass
        cells[number] = mean, mass, variance
        heapq.heappush(waiting, (-mass * float((variance / scale**2).sum()), number, rows))

    cells: dict[int, tuple[Array, float, Array]] = {}
    add(np.arange(len(X)), 0)
    number = 0
    while waiting and len(cells) < most:
        priority, cell, rows = heapq.heappop(waiting)
        mean, _, variance = cells[cell]
        widest = int(np.argmax(variance / scale**2))
        lower = X[rows, widest] <= mean[widest]
        if priority == 0 or lower.all() or not lower.any():  # of one value, to rounding
            continue
        del cells[cell]
        add(rows[lower], number + 1)
        add(rows[~lower], number + 2)
        number += 2
    means, masses, variances = zip(*cells.values(), strict=True)
    return np.array(means), np.array(masses), np.sqrt(np.array(variances))


def _replacement_error(kernel: Kernel, means: Array, masses: Array, spread: Array) -> float:
    """Σ over cells and components of the mass times ‖½k(c + s, ·) + ½k(c − s, ·) − k(c, ·)‖, s the standard deviation."""
    total = 0.0
    v = np.array([0.5, 0.5, -1.0])
    for j in range(means.shape[1]):
        for c, s, mass in zip(means, spread[:, j], masses, strict=True):
            three = np.vstack([c, c, c])
            three[:2, j] += s, -s
            total += mass * float(np.sqrt(max(v @ kernel.gram(three, three) @ v, 0.0)))
    return total
