"""Pairs of columns: what a measured table says of their covariance, in place of what fitted rows do.

Many cells of a pair hold less than the noise, and rows are fitted to so few of them that columns which go together do so less than
they should, while sums of the whole table over the cells' values say so. So the weights of the answers are calibrated to these
covariances as to the shares of single columns, with κ by how far all of them are from the rows' own beyond noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from kmeanalyst.inference.posterior.column_sums import OF_COLUMNS, ColumnSums
from kmeanalyst.inference.posterior.feature_covariance import inverse_of
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import MarginFeatures, Margins
from kmeanalyst.releases.measurement import Measurement

_MOST_NUMBERS = 2 * 10**6  # pairs times features or rows, whichever are more
_LEAST, _RIDGE = 1e-3, 1e-12  # variance of noise, relative to the product's, below which pairs count alike


@dataclass(frozen=True, eq=False)
class PairSums:
    """products (n, Q), of mean 0, of two columns' values at rows of weights p (n,), less what single columns show of them.

    means        (F,) of features under p.
    of_features  (F, Q): the measured means of products are those times what features have beyond `means`.
    gain         κ (κ G + V)⁻¹ (Q, Q), G the products' covariance under p, V that of their noise.
    """

    columns: ColumnSums
    products: Array
    means: Array
    of_features: Array
    gain: Array

    def shares(self, means: Array, total: float) -> Array:
        """(T + Q, k) shares of the cells of single columns, and means of products, by means of features (F, k)."""
        return np.vstack([self.columns.shares(means, total), self.of_features.T @ (means - total * self.means[:, None])])

    def calibrated(self, weights: Array, shares: Array) -> Array:
        """Weights (n, k) of the rows moved until they have these shares and means (T + Q, k), nearly."""
        alone, of_pairs = np.split(shares, [len(self.columns.shown)])
        found = self.columns.calibrated(weights, alone)
        return found + self.columns.weights[:, None] * (self.products @ (self.gain @ (of_pairs - self.products.T @ found)))

    def part(self, centred: Array) -> tuple[Array, Array]:
        """Of functions (n, k) of mean 0 the part (n, k) that the sums answer, of single columns and of products; and a (F, k)."""
        found = self.gain @ (self.products.T @ (self.columns.weights[:, None] * centred))
        own = self.products @ found
        alone, of_columns = self.columns.part(centred - own)
        return alone + own, of_columns + self.of_features @ found

    def drowned(self, centred: Array) -> Array:
        return self.columns.drowned(centred)


def with_pairs(columns: ColumnSums, measurement: Measurement, rows: Array, means: Array) -> ColumnSums | PairSums:
    """The sums with those of counted pairs of rows (n, d), `means` (F,) of features; without where noise explains all of them."""
    assert isinstance(measurement.feature_map, MarginFeatures)
    kernel, p, variance = measurement.feature_map.kernel, columns.weights, measurement.noise_scale**2
    cells = kernel.cells(rows)
    values = [_values(own, rows[:, j], p, size) for j, (own, size) in enumerate(zip(cells.T, kernel.sizes, strict=True))]
    found = _of_features(measurement, kernel, values, _MOST_NUMBERS // max(len(means), len(rows)))
    if not found:
        return columns
    products = np.column_stack([values[i][cells[:, i]] * values[j][cells[:, j]] for i, j in found])
    products -= p @ products
    of_features = np.zeros((len(means), len(found)))
    for own, tables in zip(of_features.T, found.values(), strict=True):
        for place, numbers in tables:  # by their precision
            own[place] = numbers / float(numbers @ numbers)
        own /= sum(1 / float(numbers @ numbers) for _, numbers in tables)
    alone, of_columns = columns.part(products)
    products -= alone
    of_features -= of_columns
    G, V = products.T @ (p[:, None] * products), variance * of_features.T @ of_features
    own = np.maximum(G.diagonal(), _RIDGE)
    apart = (of_features.T @ (measurement.with_even_noise(measurement.vector) - means)) ** 2 / own
    noise = V.diagonal() / own
    kappa = min(float(np.average(apart - noise, weights=(noise + _LEAST) ** -2)), OF_COLUMNS)
    if kappa <= 0:
        return columns
    return PairSums(columns, products, means, of_features, inverse_of(G + V / kappa + _RIDGE * np.eye(len(G))))


def _values(cells: Array, values: Array, weights: Array, size: int) -> Array:
    """(size,) means over the cells of a column, of mean 0 and variance 1 under the weights (n,); 0 of missing values."""
    there = np.isfinite(values)
    mass = np.bincount(cells[there], weights[there], minlength=size)
    found = np.bincount(cells[there], weights[there] * values[there], minlength=size) / np.where(mass > 0, mass, 1.0)
    found = np.where(mass > 0, found - mass @ found / max(float(mass.sum()), _RIDGE), 0.0)
    return np.asarray(found / max(float(mass @ found**2), _RIDGE) ** 0.5)


def _of_features(
    measurement: Measurement, kernel: Margins, values: Sequence[Array], most: int
) -> dict[tuple[int, int], list[tuple[slice, Array]]]:
    """For so many pairs, those of least noise, where their tables are among the features, and products of values at their cells."""
    features, found = measurement.feature_map, dict[tuple[int, int], list[tuple[slice, Array]]]()
    assert isinstance(features, MarginFeatures)
    for group in features.groups:
        for table, square, ends in zip(group.tables, group.squares, group.ranges, strict=True):
            if len(table) < 2 or not all(map(kernel.is_within, table)):
                continue
            own, names, place = [kernel.coarser(t) for t in table], kernel.named(table), slice(*ends)
            even = (measurement.variances[place] / square) ** 0.5 / measurement.noise_scale
            for axes in combinations(range(len(table)), 2):
                others = [tuple(a for a in range(len(table)) if a != axis) for axis in axes]
                one, other = (np.expand_dims(values[names[axis]][own[axis]], rest) for axis, rest in zip(axes, others, strict=True))
                numbers = np.broadcast_to(one * other, [len(cells) for cells in own]).ravel() * even
                if numbers.any():
                    found.setdefault((names[axes[0]], names[axes[1]]), []).append((place, numbers))
    order = sorted(found, key=lambda pair: min(float(numbers @ numbers) for _, numbers in found[pair]))
    return {pair: found[pair] for pair in order[: max(most, 1)]}
