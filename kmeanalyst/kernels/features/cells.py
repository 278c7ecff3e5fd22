"""Features that say which cell of each of many tables a row is in: one coordinate of a table is its height, the rest 0.

Such features are never written down where it can be helped: means are counts, and a matrix of them is sparse.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array

from kmeanalyst.kernels.base import Array, as_rows
from kmeanalyst.kernels.embedding import row_blocks
from kmeanalyst.kernels.features.base import FeatureMap


class CellFeatures(FeatureMap):
    """A map to T tables, each of them a run of coordinates that starts where the one before it ends (abstract).

    With a row in one cell of each table the squared norm is Σ heights², of every row, and as no coordinate is negative
    two rows are at most √2 times as far apart.
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
    def places(self, X: Array) -> Array:
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
        places = self.places(as_rows(X))
        out = np.zeros((places.shape[1], self.dimension))
        out[np.arange(len(out)), places] = self.heights[:, None]
        return out

    def compact(self, X: Array) -> csr_array:
        places = self.places(as_rows(X))
        tables, n = places.shape
        heights = np.tile(self.heights, n)
        return csr_array((heights, places.T.ravel(), tables * np.arange(n + 1)), shape=(n, self.dimension))

    def mean(self, X: Array, weights: Array) -> Array:
        """Σ w_i φ(x_i) (F,), by counting."""
        X, total = as_rows(X), np.zeros(self.dimension)
        for block in row_blocks(len(X), self.width):
            places = self.places(X[block])
            total += np.bincount(places.ravel(), np.tile(weights[block], len(places)), minlength=self.dimension)
        return total * np.repeat(self.heights, np.diff(self.starts))
