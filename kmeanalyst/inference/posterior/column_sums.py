"""Single columns: what all tables together say of the shares of their cells, in place of what fitted rows do.

Rows are fitted to noisy tables, and more of them are where the noise was positive: answers that weigh cells by their rows say that
a rare level is more frequent than it is. Sums of all tables over a column's cells, by precision, have no such part. So the weights
w of the answers are calibrated to these sums t, as survey weights are to known totals (Deville & Särndal 1992): w + p E λ,
λ = κ₁ (κ₁ G + V)⁻¹ (t − Eᵀw), E the indicators of cells, G their covariance under p, V the variances of t.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array, csr_array

from kmeanalyst.inference.posterior.feature_covariance import inverse_of, second_moments
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.representation.tables.allowed_cells import AllowedCells

OF_COLUMNS = 0.25  # κ₁ of single columns: wide enough that sums of little noise are followed
_LEAST, _INVERTIBLE = 1e-18, 1e-12  # variances of a share: exact counts have none, and their equations could not be solved
_OF_EVEN, _DROWNED = 0.5, 4.0  # κ of a column about even shares; times the noise: where that is a share's square, noise drowns it
_MOST = 2000  # cells, the most frequent ones: others are answered by the rows


@dataclass(frozen=True, eq=False)
class ColumnSums:
    """indicators (n, T) of the cells of all columns at rows of weights p (n,); columns (d, T) which cells are whose.

    shown        (T,) shares of the cells by the rows; noise (T,) the variances of their sums, 0 of cells that have none.
    of_features  (T, F) from means of features with even noise to the cells' shares; spare (T,) the part of each cell in what a
                 column's shares lack of 1, by their variances.
    used, gain   some cells (u,), and κ₁ (κ₁ G + V)⁻¹ (u, u) of these.
    """

    indicators: csr_array
    weights: Array
    columns: csr_array
    shown: Array
    noise: Array
    of_features: csr_array
    spare: Array
    used: Array
    gain: Array

    @classmethod
    def of(cls, measurement: Measurement, rows: Array, weights: Array, allowed: AllowedCells | None = None) -> ColumnSums:
        """Those of a measurement of tables; cells that rules do not allow are left out of the sums."""
        assert isinstance(measurement.feature_map, MarginFeatures)
        kernel, (n, d) = measurement.feature_map.kernel, rows.shape
        ends = np.cumsum([0, *kernel.sizes])
        size, places = int(ends[-1]), (kernel.cells(rows) + ends[:-1]).ravel()
        indicators = csr_array((np.ones(n * d), places, np.arange(0, n * d + 1, d)), shape=(n, size))
        columns = csr_array((np.ones(size), np.arange(size), ends), shape=(d, size))
        sums, precision = _sums(measurement, ends, allowed)
        shares = weights @ indicators
        there = (precision > 0) & (shares > 0)
        noise = np.where(there, 1 / np.where(there, precision, 1.0), 0.0)
        whole = columns.T @ (columns @ noise)
        used = np.sort(np.argsort(-np.where(there, shares, -1.0), kind="stable")[: min(_MOST, there.sum())])
        covariance = second_moments(indicators[:, used].T.tocsr(), weights) - np.outer(shares[used], shares[used])
        gain = inverse_of(covariance + np.diag(np.maximum(noise[used], _INVERTIBLE)) / OF_COLUMNS)
        spare = np.divide(noise, whole, out=np.zeros(size), where=whole > 0)
        of_features = (sums * noise[:, None]).tocsr()
        return cls(indicators, weights, columns, shares, noise, of_features, spare, used, gain)

    def shares(self, means: Array, total: float) -> Array:
        """(T, k) of the cells, by means of features (F, k); those of each column add up to the total."""
        found = self.of_features @ means
        return found + self.spare[:, None] * (self.columns.T @ (total - self.columns @ found))

    def calibrated(self, weights: Array, shares: Array) -> Array:
        """Weights (n, k) of the rows moved until their cells have these shares (T, k), nearly."""
        return weights + self.weights[:, None] * self._at_rows(self._gained(shares - self.indicators.T @ weights))

    def part(self, centred: Array) -> tuple[Array, Array]:
        """Of functions (n, k) of mean 0 the part (n, k) that the sums answer, made of functions of single columns; and a (F, k)."""
        cells = self._gained(self.indicators.T @ (self.weights[:, None] * centred))
        return self._at_rows(cells), self.of_features.T @ (cells - self.columns.T @ (self.columns @ (self.spare[:, None] * cells)))

    def drowned(self, centred: Array) -> Array:
        """(T, k) along which shares are off where noise drowns them, for functions (n, k) of mean 0: rows followed it alone.

        What is left of a usual column's variance after a share with noise is known, 1/(1/noise + 1/prior), counts as far as the
        noise is half of the share: in more frequent cells the answers' own errors are the noise's.
        """
        some = self.noise > 0
        means = (self.indicators.T @ (self.weights[:, None] * centred)) / np.where(some, self.shown, 1.0)[:, None]
        usual = (self.shown + 1 / (self.columns.T @ self.columns.sum(axis=1))) / 2
        prior = _OF_EVEN * np.maximum(usual * (1 - usual), _INVERTIBLE)
        share = np.where(some, np.minimum(_DROWNED * self.noise / np.where(some, self.shown, 1.0) ** 2, 1.0), 0.0)
        left = (share * prior * self.noise / (self.noise + prior))[:, None]
        own = self.columns @ (left * means) / np.maximum(self.columns @ left, _LEAST)
        return np.asarray(np.sqrt(left) * (means - self.columns.T @ own))  # they sum to 1

    def _gained(self, shares: Array) -> Array:
        """The gain times numbers (T, k) of the cells: 0 of those that are not used."""
        cells = np.zeros_like(shares)
        cells[self.used] = self.gain @ shares[self.used]
        return cells

    def _at_rows(self, cells: Array) -> Array:
        found = self.indicators @ cells
        return found - self.weights @ found


def _sums(measurement: Measurement, ends: Array, allowed: AllowedCells | None) -> tuple[csr_array, Array]:
    """(T, F) sums of tables, in units of shares and times their precision, over cells of single columns; and precisions (T,)."""
    features = measurement.feature_map
    assert isinstance(features, MarginFeatures)
    kernel, even = features.kernel, np.sqrt(measurement.variances) / measurement.noise_scale
    precisions, entries = np.zeros(ends[-1]), list[Array]()
    for group in features.groups:
        for table, square, (start, stop) in zip(group.tables, group.squares, group.ranges, strict=True):
            if not all(map(kernel.is_within, table)):
                continue
            own = [kernel.coarser(t) for t in table]
            kept = np.ones(list(map(len, own))) if allowed is None else allowed.together(*kernel.named(table))[np.ix_(*own)] * 1.0
            variances = kept * measurement.variances[start:stop].reshape(kept.shape) / square
            for axis, j in enumerate(kernel.named(table)):
                others = tuple(a for a in range(len(table)) if a != axis)
                noise = np.bincount(own[axis], variances.sum(axis=others), minlength=kernel.sizes[j])
                precision = 1 / np.maximum(noise, _LEAST)
                precisions[ends[j] : ends[j + 1]] += precision
                cells = np.broadcast_to(np.expand_dims(own[axis], others), kept.shape).ravel()
                values = kept.ravel() * precision[cells] / square**0.5 * even[start:stop]
                entries.append(np.stack([cells + ends[j], np.arange(start, stop), values]))
    cells, numbers, values = np.hstack(entries)
    at = cells.astype(np.intp), numbers.astype(np.intp)
    return coo_array((values, at), shape=(len(precisions), len(even))).tocsr(), precisions
