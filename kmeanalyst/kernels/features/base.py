"""Feature maps φ with a proven norm bound: what a release measures is the mean of one of these.

Bounds follow from the map's kernel. A row's features depend on that row alone, bit for bit: rows are summed in any order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import fields
from functools import cached_property
from typing import ClassVar

import numpy as np
from scipy.sparse import csr_array, get_index_dtype

from kmeanalyst.kernels.base import Array, Kernel, as_rows, check_width
from kmeanalyst.kernels.embedding import row_blocks


def rows_of(X: Array, n_columns: int) -> Array:
    """Encoded rows (n, n_columns), float64; ValueError for rows of other columns."""
    rows = as_rows(X)
    check_width(rows, n_columns, f"these features look at {n_columns} columns")
    return rows


class FeatureMap(ABC):
    """φ: (n, d) encoded rows → (n, F) features, ‖φ(x)‖₂ ≤ norm_bound (abstract)."""

    name: ClassVar[str]
    kernel: Kernel

    @abstractmethod
    def __call__(self, X: Array) -> Array:
        """Features of the rows, float64 (n, dimension)."""

    def compact(self, X: Array) -> Array | csr_array:
        """Features of the rows (n, F), as a sparse array if most of them are 0: for products, which both kinds have."""
        return self(X)

    def gram(self, X: Array, Y: Array) -> Array:
        return self(X) @ self(Y).T

    @property
    def width(self) -> int:
        """Number of values that `compact` stores per row."""
        return self.dimension

    def mean(self, X: Array, weights: Array) -> Array:
        """Σ w_i φ(x_i) (F,) of encoded rows (n, d) and weights (n,), in blocks."""
        total = np.zeros(self.dimension)
        for block in row_blocks(len(X), self.dimension):
            total += weights[block] @ self(X[block])
        return total

    @property
    @abstractmethod
    def dimension(self) -> int:
        """F, the number of coordinates."""

    @property
    @abstractmethod
    def norm_bound(self) -> float:
        """B, with ‖φ(x)‖₂ ≤ B for every row x."""

    @property
    def nonnegative(self) -> bool:
        return False

    @property
    def pairwise(self) -> bool:
        """Whether the diameter is proven of pairs of images as they are: shortening one of them could break it."""
        return False

    @property
    def diameter(self) -> float:
        """sup ‖φ(x) − φ(x′)‖₂: 2B in general, √2·B where every coordinate is non-negative."""
        return (2**0.5 if self.nonnegative else 2.0) * self.norm_bound

    def arrays(self) -> dict[str, Array]:
        """The arrays that define the map, by name, as the file stores them: by default its fields that are arrays."""
        given = {each.name: getattr(self, each.name) for each in fields(self) if each.init}  # type: ignore[arg-type]
        return {name: value for name, value in given.items() if isinstance(value, np.ndarray)}


class CellFeatures(FeatureMap):
    """A map to T tables, each of them a run of coordinates that starts where the one before it ends (abstract).

    With a row in one cell of each table the squared norm is Σ heights², of every row, and as no coordinate is negative
    the distance of two images is at most √2 times the bound.
    """

    @cached_property
    @abstractmethod
    def starts(self) -> Array:
        """(T + 1,) where each table's coordinates begin, and the number of all."""

    @cached_property
    @abstractmethod
    def heights(self) -> Array:
        """(T,) positive: the coordinate of a row's cell."""

    @abstractmethod
    def cell_indices(self, X: Array) -> Array:
        """(T, n) the coordinate of each row's cell in each table; a row's depend on that row alone."""

    @property
    def dimension(self) -> int:
        return int(self.starts[-1])

    @property
    def width(self) -> int:
        return len(self.heights)

    @property
    def norm_bound(self) -> float:
        """√Σ heights²: what every row has, but for rounding."""
        return float(np.sqrt(np.square(self.heights).sum()))

    @property
    def nonnegative(self) -> bool:
        return True

    def __call__(self, X: Array) -> Array:
        indices = self.cell_indices(as_rows(X))
        out = np.zeros((indices.shape[1], self.dimension))
        out[np.arange(len(out)), indices] = self.heights[:, None]
        return out

    def compact(self, X: Array) -> csr_array:
        indices = self.cell_indices(as_rows(X))
        tables, n = indices.shape
        kind = get_index_dtype(maxval=max(tables * n, self.dimension))  # 32 bits where they do: products read less
        ends = tables * np.arange(n + 1, dtype=kind)
        return csr_array((np.tile(self.heights, n), indices.T.ravel().astype(kind), ends), shape=(n, self.dimension))

    def mean(self, X: Array, weights: Array) -> Array:
        """Σ w_i φ(x_i) (F,), by counting."""
        X, total = as_rows(X), np.zeros(self.dimension)
        for block in row_blocks(len(X), self.width):
            indices = self.cell_indices(X[block])
            total += np.bincount(indices.ravel(), np.tile(weights[block], len(indices)), minlength=self.dimension)
        return total * np.repeat(self.heights, np.diff(self.starts))
