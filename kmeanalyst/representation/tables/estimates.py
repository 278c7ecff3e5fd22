"""Estimates of all one-way and two-way tables from noisy ones of which only some pairs were measured.

Measured tables are smoothed (`lifts`) around what is known without them: independent columns for a tree that spans all
columns, and the tree for further pairs. Where a column has an order, these guesses are first moved along it (`ordered_pairs`).
For a pair that was not measured, the tree's table is the estimate. Cells that rules exclude are 0 in all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import softmax

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import MarginFeatures, Margins
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.representation.tables.allowed_cells import AllowedCells
from kmeanalyst.representation.tables.lifts import scaled_to, smoothed_tables, with_margins
from kmeanalyst.representation.tables.ordered_pairs import Order, ordered_tables, orders_of
from kmeanalyst.representation.tables.tree import Pair, Tree, implied_tables, spanning_tree
from kmeanalyst.representation.weights.convex_fit import project_to_simplex

_SMOOTHED_FROM = 0.012  # noise on a share, if the tables of all pairs were measured alike
NOISE_IN_DISTANCE = 0.8  # mean of |noise| over its deviation
_SCALINGS = 10  # of a table to all its pairs
_TINY = 1e-12


@dataclass(frozen=True, eq=False)
class Observed:
    """Noisy shares of the rows, with the variance of a cell.

    sizes    number of cells of each column.
    ones     for each column (a,) and variance.
    pairs    (i, j) → (a, b) and variance, also of sums of the tables of larger sets.
    sets     likewise (i, j, k, …) → (a, b, c, …) and variance.
    """

    sizes: tuple[int, ...]
    ones: list[tuple[Array, float]]
    pairs: dict[Pair, tuple[Array, float]]
    sets: dict[tuple[int, ...], tuple[Array, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, measurement: Measurement) -> Observed:
        assert isinstance(measurement.feature_map, MarginFeatures)
        found = cls(measurement.feature_map.kernel.sizes, [], {})
        for table in measurement.tables():
            variance = float(np.median(table.variances))
            if len(table.columns) > 1:
                found._add(table.columns, table.shares, variance)
            else:
                found.ones.append((table.shares, variance))
        for columns, (shares, variance) in found.sets.items():
            for pair in combinations(columns, 2):
                summed = over_pair(shares, columns, pair)
                found._add(pair, summed, variance * shares.size / summed.size)
        return found

    def _add(self, columns: tuple[int, ...], shares: Array, variance: float) -> None:
        tables: dict[Any, tuple[Array, float]] = self.pairs if len(columns) == 2 else self.sets
        tables[columns] = averaged_by_precision([*filter(None, [tables.get(columns)]), (shares, variance)])


def over_pair(table: Array, columns: tuple[int, ...], pair: Pair, *, keepdims: bool = False) -> Array:
    """(a, b) sums of a table (a, b, c, …) of columns over all but a pair of them."""
    others = tuple(axis for axis, j in enumerate(columns) if j not in pair)
    return np.asarray(table.sum(axis=others, keepdims=keepdims))


def scaled_to_pairs(table: Array, columns: tuple[int, ...], pairs: dict[Pair, Array]) -> Array:
    """A table (a, b, c, …) of no negative cell, scaled to the tables of its pairs: cells of 0 stay 0.

    From an even table it is what its pairs say of it: of all tables with these the one of largest entropy, nearly.
    """
    for _ in range(_SCALINGS):
        for pair in combinations(columns, 2):
            sums = over_pair(table, columns, pair, keepdims=True)
            table = table * (pairs[pair].reshape(sums.shape) / np.maximum(sums, _TINY))
    return table


def implied_by_pairs(columns: tuple[int, ...], pairs: dict[Pair, Array]) -> Array:
    """What the tables of its pairs (a, b) say of a larger set's table (a, b, c, …)."""
    first = pairs[columns[0], columns[1]]
    sizes = [*first.shape, *(pairs[columns[0], j].shape[1] for j in columns[2:])]
    return scaled_to_pairs(np.full(sizes, 1 / math.prod(sizes)), columns, pairs)


def free_cells(sizes: Sequence[int]) -> int:
    """How many numbers of a table are free once the tables of its pairs are known.

    >>> free_cells((2, 2, 2)), free_cells((2, 3, 4))
    (1, 6)
    """
    pairs = sum((a - 1) * (b - 1) for a, b in combinations(sizes, 2))
    return math.prod(sizes) - 1 - sum(size - 1 for size in sizes) - pairs


def estimated_sets(
    observed: Observed, pairs: dict[Pair, Array], allowed: AllowedCells | None = None
) -> dict[tuple[int, ...], Array]:
    """Shares (a, b, c, …) of the measured larger sets, smoothed around what these tables of pairs say, which they agree with."""
    guesses = [implied_by_pairs(columns, pairs) * _may(allowed, *columns) for columns in observed.sets]
    noisy, noise = [table for table, _ in observed.sets.values()], [own**0.5 for _, own in observed.sets.values()]
    smoothed = smoothed_tables(noisy, guesses, noise)
    return {s: scaled_to_pairs(table, s, pairs) for s, table in zip(observed.sets, smoothed, strict=True)}


@dataclass(frozen=True, eq=False)
class TableEstimates:
    """Shares of the rows that are at least 0 and agree: sums of every pair's table are those of its columns.

    ones       (a,) for each column.
    pairs      (i, j) → (a, b) for all i < j.
    measured   the pairs that were measured.
    tree       those that the others' tables follow from.
    sets       (i, j, k, …) → (a, b, c, …) for larger sets that were measured, where they have been estimated.
    """

    ones: list[Array]
    pairs: dict[Pair, Array]
    measured: frozenset[Pair]
    tree: Tree
    sets: dict[tuple[int, ...], Array] = field(default_factory=dict)


def column_estimates(observed: Observed, *, smooth: bool = False, allowed: AllowedCells | None = None) -> list[Array]:
    """The shares (a,) of each column, from all tables that hold them.

    smooth    whether to smooth them, which is worth its time where noise is large.
    allowed   the cells that rules allow together; None without rules.
    """
    combined = [_combined_column(observed, j) for j in range(len(observed.sizes))]
    ones = [smoothed_column(*one) if smooth else one[0] for one in combined]
    return [_on_simplex(one, _may(allowed, j)) for j, one in enumerate(ones)]


def _combined_column(observed: Observed, j: int) -> tuple[Array, float]:
    parts = [observed.ones[j]] if observed.ones else []
    for pair, (table, variance) in observed.pairs.items():
        if j in pair:
            other = 1 - pair.index(j)
            parts.append((table.sum(axis=other), variance * table.shape[other]))
    return averaged_by_precision(parts)


def _may(allowed: AllowedCells | None, *columns: int) -> Array:
    """Which cells of the columns rules allow; one true without rules."""
    return np.ones(1, dtype=bool) if allowed is None else allowed.together(*columns)


def _on_simplex(shares: Array, may: Array) -> Array:
    kept = np.broadcast_to(may, shares.shape)
    found = np.zeros(shares.shape)
    found[kept] = project_to_simplex(shares[kept])
    return found


def estimate_tables(measurement: Measurement, allowed: AllowedCells | None = None, domain: Domain | None = None) -> TableEstimates:
    """All tables of one and two columns, from a measurement of MarginFeatures.

    allowed   the cells that rules allow together: shares of all others are 0. None without rules.
    domain    what columns have an order; without it tables are smoothed as if none had.
    """
    observed = Observed.of(measurement)
    kernel = measurement.feature_map.kernel
    assert isinstance(kernel, Margins)
    orders = () if domain is None else orders_of(domain, kernel)
    ones = column_estimates(observed, smooth=is_smoothed(measurement), allowed=allowed)
    d, pairs = len(ones), list(combinations(range(len(ones)), 2))
    independent = {(i, j): np.outer(ones[i], ones[j]) for i, j in pairs}
    independent = allowed_tables(independent, ones, allowed)
    worth = np.full((d, d), -np.inf)
    for (i, j), (table, variance) in observed.pairs.items():
        noise = NOISE_IN_DISTANCE * np.sqrt(variance) * table.size
        worth[i, j] = worth[j, i] = np.abs(table - independent[i, j]).sum() - noise
    tree_pairs = spanning_tree(worth) if d > 1 else []
    seen = [pair for pair in tree_pairs if pair in observed.pairs]
    known = {pair: independent[pair] for pair in tree_pairs}
    known |= _measured(observed, seen, independent, ones, allowed, orders)
    tree = Tree.of(tree_pairs, d)
    implied = allowed_tables(implied_tables(tree, known), ones, allowed)
    further = [pair for pair in observed.pairs if pair not in known]
    found = implied | _measured(observed, further, implied, ones, allowed, orders)
    return TableEstimates(ones, found, frozenset(observed.pairs), tree)


def allowed_tables(pairs: dict[Pair, Array], ones: list[Array], allowed: AllowedCells | None) -> dict[Pair, Array]:
    """Tables (a, b) of pairs, 0 in cells that rules exclude, scaled to the columns' shares."""
    if allowed is None:
        return pairs
    found = dict(pairs)
    for (i, j), table in pairs.items():
        may = allowed.together(i, j)
        if not may.all():
            found[i, j] = scaled_to(np.where(may, np.maximum(table, _TINY), 0.0), ones[i], ones[j])
    return found


def is_smoothed(measurement: Measurement) -> bool:
    """Whether noise is so large that single columns are worth smoothing."""
    return noise_of_all_pairs(measurement) > _SMOOTHED_FROM


def noise_of_all_pairs(measurement: Measurement) -> float:
    """Noise on a share, if the tables of all pairs of columns were measured alike."""
    few = len(measurement.feature_map.kernel.edges)  # type: ignore[attr-defined]
    return measurement.noise_scale * math.sqrt(max(few * (few - 1) / 2, 1))


def _measured(
    observed: Observed, pairs: list[Pair], guesses: dict[Pair, Array], ones: list[Array],
    allowed: AllowedCells | None, orders: tuple[Order, ...],
) -> dict[Pair, Array]:  # fmt: skip
    """The measured tables of these pairs, smoothed around guesses that are first moved as far as orders explain the tables."""
    moved = moved_along_orders(observed, pairs, guesses, orders) if orders else guesses
    return smoothed_around(observed, pairs, moved, ones, allowed)


def moved_along_orders(
    observed: Observed, pairs: list[Pair], guesses: dict[Pair, Array], orders: tuple[Order, ...]
) -> dict[Pair, Array]:
    """The guesses of these pairs, moved along the columns' orders as far as these explain the measured tables."""
    noisy, noise = _noisy(observed, pairs)
    own = [guesses[pair] for pair in pairs]
    return dict(zip(pairs, ordered_tables(noisy, own, noise, [(orders[i], orders[j]) for i, j in pairs]), strict=True))


def smoothed_around(
    observed: Observed, pairs: list[Pair], guesses: dict[Pair, Array], ones: list[Array], allowed: AllowedCells | None
) -> dict[Pair, Array]:
    """The measured tables of these pairs, each cell smoothed around its guess, with the columns' margins."""
    noisy, noise = _noisy(observed, pairs)
    tables = smoothed_tables(noisy, [guesses[pair] for pair in pairs], noise)
    return {(i, j): with_margins(table, ones[i], ones[j], _may(allowed, i, j)) for (i, j), table in zip(pairs, tables, strict=True)}


def _noisy(observed: Observed, pairs: list[Pair]) -> tuple[list[Array], list[float]]:
    return [observed.pairs[pair][0] for pair in pairs], [observed.pairs[pair][1] ** 0.5 for pair in pairs]


def averaged_by_precision(versions: Sequence[tuple[Array, Any]]) -> tuple[Array, Any]:
    """The mean of independent noisy versions of an array, weighted by the inverse of their variances, and its variance.

    versions   at least one: arrays of one shape, each with the variance of the noise on each of its numbers, or on all of them.

    >>> averaged_by_precision([(np.array([1.0, 2.0]), 1.0), (np.array([4.0, 2.0]), 0.5)])
    (array([3., 2.]), 0.333...)
    """
    precisions = [1 / variance for _, variance in versions]
    precision = np.sum(precisions, axis=0)
    total = sum(own * values for own, (values, _) in zip(precisions, versions, strict=True))
    return np.asarray(total / precision), 1 / precision if np.ndim(precision) else float(1 / precision)


# A noisy one-way table is smoothed as a softmax of logits under normal priors, averaged over priors by their evidence: independent
# logits of several spreads, and random walks along the declared order of the cells.
_SPREADS = (0.5, 1.0, 2.0, 3.0)  # standard deviations of independent logits
_STEPS = (0.1, 0.2, 0.4, 0.8)  # of random walks
_WIDEST = 3.0  # standard deviation of a walk's level
_NEWTON_STEPS = 50
_ENOUGH = 1e-8
_MOST_CELLS = 300  # of a table; larger ones are left to their projection


def smoothed_column(noisy: Array, variance: float) -> Array:
    """(a,) shares of sum 1 from noisy ones: the maxima a posteriori, averaged by Laplace's approximation of the evidence."""
    if len(noisy) > _MOST_CELLS or len(noisy) < 2:
        return noisy
    found, evidences = [], []
    for precision in _priors(len(noisy)):
        shares, evidence = _most_plausible(noisy, variance, precision)
        found.append(shares)
        evidences.append(evidence)
    return np.asarray(softmax(np.array(evidences)) @ np.array(found))


def _priors(cells: int) -> Iterator[Array]:
    for spread in _SPREADS:
        yield np.eye(cells) / spread**2
    differences = np.diff(np.eye(cells), axis=0)
    for step in _STEPS if cells > 2 else ():
        yield differences.T @ differences / step**2 + np.eye(cells) / _WIDEST**2


def _most_plausible(values: Array, variance: float, precision: Array) -> tuple[Array, float]:
    """The shares (cells,) that maximise the posterior, and the log evidence; by damped Gauss-Newton steps."""
    logits = np.zeros(len(values))
    shares, lost = _loss(logits, values, variance, precision)
    for _ in range(_NEWTON_STEPS):
        slopes = np.diag(shares) - np.outer(shares, shares)
        gradient = slopes @ (shares - values) / variance + precision @ logits
        step = cho_solve(cho_factor(slopes @ slopes / variance + precision), gradient)
        length = 1.0
        while length > _ENOUGH:
            moved = logits - length * step
            others, loss = _loss(moved, values, variance, precision)
            if loss < lost:
                break
            length /= 2
        if length <= _ENOUGH or lost - loss < _ENOUGH:
            break
        logits, shares, lost = moved, others, loss
    slopes = np.diag(shares) - np.outer(shares, shares)
    curvature = np.linalg.slogdet(slopes @ slopes / variance + precision)[1]
    return shares, -lost + 0.5 * (np.linalg.slogdet(precision)[1] - curvature)


def _loss(logits: Array, values: Array, variance: float, precision: Array) -> tuple[Array, float]:
    shares = softmax(logits)
    return shares, 0.5 * float(((shares - values) ** 2).sum()) / variance + 0.5 * float(logits @ precision @ logits)
