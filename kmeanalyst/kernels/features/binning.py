"""Random binning features (Rahimi & Recht 2007, §4): grids of random width and shift; a feature for each bin of each grid.

Bins are folded into a public number of cells, ((Σ_j b_j·stride_j) mod p) mod cells, p = 2³¹ − 1: strides of an array where there
are cells for all bins, and else random ones, with which two bins collide with probability 1/cells (Carter & Wegman 1979).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from kmeanalyst.kernels.base import Array, Kernel, check_positive
from kmeanalyst.kernels.features.base import CellFeatures, rows_of

MOST_CELLS = 2**24  # cells of one grid: fewer than the modulus, so that strides of an array are not folded by it
MODULUS = 2**31 - 1  # a prime, more than the bins of a column: no two bins are alike before they are folded
_MOST_BINS = 2**30  # bins of a column in one grid; finer ones are merged
_USUAL_CELLS = 64
_GRIDS_AT_ONCE = 256


@dataclass(frozen=True, eq=False)
class RandomBinning(CellFeatures):
    """φ(x) has √(k(0)/T) at the cell of x in each of T grids, else 0.

    kernel    the kernel it approximates, a mixture of hat functions.
    widths    (d, T) positive: bin b of column j of grid t is shift + [b, b + 1) · width.
    shifts    (d, T) where bin 0 begins, at or below the column's lower bound.
    missing   (d, T) the bin of a missing cell, a whole number; bins of numbers are 0 ... missing − 1, and numbers beyond
              count as in the nearest.
    strides   (d, T) whole numbers, at least 0 and below 2³¹ − 1.
    cells     (T,) whole numbers: how many cells the grid has.
    """

    kernel: Kernel
    widths: Array
    shifts: Array
    missing: Array
    strides: Array
    cells: Array
    name: ClassVar[str] = "random-binning"

    def __post_init__(self) -> None:
        shape = self.widths.shape
        together = all(array.shape == shape for array in (self.shifts, self.missing, self.strides))
        if len(shape) != 2 or 0 in shape or not together or self.cells.shape != shape[1:]:
            raise ValueError(
                "grids need widths, shifts, missing and strides of one shape (d, T), d ≥ 1 and T ≥ 1, and T numbers of "
                f"cells, got widths {shape} and cells {self.cells.shape}. Draw them again."
            )
        finite = (np.abs(self.shifts) < 1e150).all() and ((self.widths >= 1e-100) & (self.widths < 1e100)).all()
        if not (finite and _whole(self.cells, 1, MOST_CELLS) and _whole(self.missing, 1, _MOST_BINS)):
            raise ValueError(
                "grids need positive finite widths, finite shifts, from 1 to 2^24 cells and from 1 to 2^30 bins: a row's "
                "cell is undefined otherwise. Draw them again."
            )
        if not _whole(self.strides, 0, MODULUS - 1):
            raise ValueError("strides must be whole numbers from 0, below 2^31 − 1: sums would wrap. Draw them again.")

    @classmethod
    def draw(
        cls, kernel: Kernel, *, bounds: Array, dimension: int, missing_columns: tuple[int, ...] = (),
        most_cells: int | None = None, rng: np.random.Generator | int | None = None,
    ) -> RandomBinning:  # fmt: skip
        """Draw as many grids as fit in `dimension` coordinates; the last few coordinates may stay unused.

        bounds            (d, 2) public bounds of the columns, encoded.
        missing_columns   where a cell may be missing: it has a bin of its own.
        most_cells        of one grid; 64 by default, or all coordinates if they are fewer.
        """
        check_positive("dimension", dimension, "a grid has at least one cell.", "Pass a whole number, such as 2000.")
        most = max(1, min(most_cells or _USUAL_CELLS, dimension, MOST_CELLS))
        rng, parts, free = np.random.default_rng(rng), [], dimension
        while free > 0:
            drawn = _grids(kernel, np.asarray(bounds, dtype=float), missing_columns, most, rng)
            fitting = int(np.searchsorted(np.cumsum(drawn[-1]), free, side="right"))
            parts.append([array[..., :fitting] for array in drawn])
            free = 0 if fitting < len(drawn[-1]) else free - int(drawn[-1].sum())
        widths, shifts, missing, strides, cells = (np.concatenate(own, axis=-1) for own in zip(*parts, strict=True))
        return cls(kernel, widths, shifts, missing, strides, cells)

    @cached_property
    def starts(self) -> Array:
        return np.concatenate([[0], np.cumsum(self.cells)]).astype(np.int64)

    @cached_property
    def heights(self) -> Array:
        return np.full(len(self.cells), self.kernel.bound / math.sqrt(len(self.cells)))

    @property
    def norm_bound(self) -> float:
        return self.kernel.bound  # T squares of k(0)/T: the norm of every row

    def bins(self, values: Array, j: int) -> Array:
        """(T, n) the bin of each value of column j in each grid: whole numbers, as float64."""
        last = self.missing[j, :, None] - 1
        found = np.clip(np.floor((values - self.shifts[j, :, None]) / self.widths[j, :, None]), 0.0, last)
        return np.where(np.isnan(values), self.missing[j, :, None], found)

    def cell_indices(self, X: Array) -> Array:
        X = rows_of(X, len(self.widths))
        cells, strides = self.cells.astype(np.int64)[:, None], self.strides.astype(np.int64)
        folded = np.zeros((len(cells), len(X)), dtype=np.int64)
        for j in range(X.shape[1]):  # below 2^31 · (2^30 + 2) before each fold: no sum can wrap
            folded = (folded + self.bins(X[:, j], j).astype(np.int64) * strides[j, :, None]) % MODULUS
        return folded % cells + self.starts[:-1, None]


def _grids(kernel: Kernel, bounds: Array, missing_columns: tuple[int, ...], most: int, rng: np.random.Generator) -> list[Array]:
    d, T = len(bounds), _GRIDS_AT_ONCE
    low, high = bounds[:, :1], bounds[:, 1:]
    widths = np.maximum(kernel.draw_widths(rng, d, T), 1e-100)
    offsets = rng.random((d, T))
    shifts = low - offsets * widths
    missing = np.minimum(np.floor((high - shifts) / widths) + 1, _MOST_BINS)  # one past the bin of the upper bound
    bins = missing + np.isin(np.arange(d), list(missing_columns))[:, None]
    strides, cells = np.ones((d, T)), np.minimum(np.prod(bins, axis=0), most)
    strides[1:] = np.cumprod(bins, axis=0)[:-1]
    folded = np.prod(bins, axis=0) > most
    strides[:, folded] = rng.integers(0, MODULUS, (d, int(folded.sum())))
    return [widths, shifts, missing, strides, cells]


def _whole(values: Array, least: float, most: float) -> bool:
    return bool(((values >= least) & (values <= most) & (values == np.rint(values))).all())
