"""Estimates of all one-way and two-way tables from noisy ones of which only some pairs were measured.

Measured tables are smoothed (`lifts`) around what is known without them: independent columns for a tree that spans all
columns, and the tree for further pairs. For a pair that was not measured, the tree's table is the estimate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.representation.tables.lifts import smoothed_tables, with_margins
from kmeanalyst.representation.tables.smooth_columns import smoothed_column
from kmeanalyst.representation.tables.tree import Pair, Tree, implied_tables, independent_table, spanning_tree
from kmeanalyst.representation.weights.convex_fit import project_to_simplex

_SMOOTHED_FROM = 0.012  # noise on a share, if the tables of all pairs were measured alike
NOISE_IN_DISTANCE = 0.8  # mean of |noise| over its deviation


@dataclass(frozen=True, eq=False)
class Observed:
    """Noisy shares of the rows, for each value of the target (Y = 1 without a target), with the variance of a cell.

    sizes    number of cells of each column but the target.
    target   (Y,) and variance; several where it was measured several times.
    ones     for each of these columns (Y, a) and variance.
    alone    for each of these columns (a,) and variance, over all values of the target.
    pairs    (i, j) → (Y, a, b) and variance; columns are counted without the target.
    """

    sizes: tuple[int, ...]
    target: list[tuple[Array, float]]
    ones: list[list[tuple[Array, float]]]
    alone: list[list[tuple[Array, float]]]
    pairs: dict[Pair, tuple[Array, float]]

    @classmethod
    def of(cls, measurement: Measurement) -> Observed:
        """What a measurement of MarginFeatures says."""
        features = measurement.feature_map
        assert isinstance(features, MarginFeatures)
        kernel = features.kernel
        place = {j: n for n, j in enumerate(kernel.others)}
        values = kernel.sizes[kernel.target] if kernel.target >= 0 else 1
        found = cls(tuple(kernel.sizes[j] for j in kernel.others), [], [[] for _ in place], [[] for _ in place], {})
        for group in features.groups:
            for table, square, (start, stop) in zip(group.tables, group.squares, group.ranges, strict=True):
                shares = measurement.vector[start:stop] / np.sqrt(square)
                variance = measurement.noise_scale**2 / square
                if group.kind == "target" or (group.kind == "one-way" and table[0] == kernel.target):
                    found.target.append((shares, variance))
                elif group.kind == "one-way":
                    found.alone[place[table[0]]].append((shares, variance))
                elif group.kind == "one-way by target":
                    found.ones[place[table[1]]].append((shares.reshape(values, -1), variance))
                elif group.kind in ("pairs", "pairs by target"):
                    i, j = (place[column] for column in table[-2:])
                    own = (values, found.sizes[i], found.sizes[j])
                    found.pairs[i, j] = (shares.reshape(own), variance)
        return found

    @property
    def values(self) -> int:
        """Y."""
        return len(self.target[0][0]) if self.target else 1


@dataclass(frozen=True, eq=False)
class TableEstimates:
    """Shares of the rows that are at least 0 and agree: sums of every pair's table are those of its columns.

    target     (Y,), of sum 1.
    ones       (Y, a) for each column but the target.
    pairs      (i, j) → (Y, a, b) for all i < j.
    measured   the pairs that were measured.
    tree       those that the others' tables follow from.
    """

    target: Array
    ones: list[Array]
    pairs: dict[Pair, Array]
    measured: frozenset[Pair]
    tree: Tree


def column_estimates(observed: Observed, *, smooth: bool = False) -> tuple[Array, list[Array]]:
    """The target's shares (Y,) and those (Y, a) of each column, from all tables that hold them.

    smooth   whether to smooth them, which is worth its time where noise is large.
    """
    ones = []
    for j, size in enumerate(observed.sizes):
        parts = list(observed.ones[j])
        if observed.values == 1:
            parts += [(shares[None], variance) for shares, variance in observed.alone[j]]
        for (i, k), (table, variance) in observed.pairs.items():
            if j in (i, k):
                parts.append((table.sum(axis=2 if j == i else 1), variance * table.shape[2 if j == i else 1]))
        estimate, variance = _combined(parts, (observed.values, size))
        for shares, own in observed.alone[j] if observed.values > 1 else ():
            estimate = estimate + (shares - estimate.sum(axis=0)) * variance / (observed.values * variance + own)
        ones.append(smoothed_column(estimate, variance) if smooth else estimate)
    if observed.values == 1:
        target = np.ones(1)
    else:
        variances = [_variance(observed, j) * size for j, size in enumerate(observed.sizes)]
        sums = [(one.sum(axis=1), variance) for one, variance in zip(ones, variances, strict=True)]
        target = project_to_simplex(_combined([*observed.target, *sums], (observed.values,))[0])
    return target, [_with_target(project_to_simplex(one.ravel()).reshape(one.shape), target) for one in ones]


def _variance(observed: Observed, j: int) -> float:
    """Of a cell of column j given the target, measured one way."""
    return min([variance for _, variance in observed.ones[j]], default=1.0)


def _combined(parts: list[tuple[Array, float]], shape: tuple[int, ...]) -> tuple[Array, float]:
    """The mean of noisy versions of an array, weighted by the inverse of their variances, and its variance."""
    if not parts:
        return np.full(shape, 1 / np.prod(shape)), 1.0
    precision = sum(1 / variance for _, variance in parts)
    return sum(shares / variance for shares, variance in parts) / precision, 1 / precision  # type: ignore[return-value]


def _with_target(one: Array, target: Array) -> Array:
    """Shares (Y, a) scaled to the target's; even where there are none."""
    sums = one.sum(axis=1, keepdims=True)
    return np.where(sums > 0, one / np.where(sums > 0, sums, 1), 1 / one.shape[1]) * target[:, None]


def estimate_tables(measurement: Measurement) -> TableEstimates:
    """All tables of one and two columns, and the target, from a measurement of MarginFeatures."""
    observed = Observed.of(measurement)
    target, ones = column_estimates(observed, smooth=noise_of_all_pairs(measurement) > _SMOOTHED_FROM)
    d, pairs = len(ones), list(combinations(range(len(ones)), 2))
    independent = {(i, j): independent_table(ones[i], ones[j], target) for i, j in pairs}
    worth = np.full((d, d), -np.inf)
    for (i, j), (table, variance) in observed.pairs.items():
        noise = NOISE_IN_DISTANCE * np.sqrt(variance) * table.size
        worth[i, j] = worth[j, i] = np.abs(table - independent[i, j]).sum() - noise
    tree_pairs = spanning_tree(worth) if d > 1 else []
    seen = [pair for pair in tree_pairs if pair in observed.pairs]
    known = {pair: independent[pair] for pair in tree_pairs} | _smoothed(observed, seen, independent, ones)
    tree = Tree.of(tree_pairs, d)
    implied = implied_tables(tree, known)
    further = [pair for pair in observed.pairs if pair not in known]
    found = implied | _smoothed(observed, further, implied, ones)
    return TableEstimates(target, ones, found, frozenset(observed.pairs), tree)


def noise_of_all_pairs(measurement: Measurement) -> float:
    """Noise on a share, if the tables of all pairs of columns were measured alike."""
    few = len(measurement.feature_map.kernel.others)  # type: ignore[attr-defined]
    return measurement.noise_scale * math.sqrt(max(few * (few - 1) / 2, 1))


def _smoothed(
    observed: Observed, pairs: list[Pair], guesses: dict[Pair, Array], ones: list[Array]
) -> dict[Pair, Array]:
    """The measured tables of these pairs, smoothed around guesses, with the columns' margins."""
    own = [observed.pairs[pair] for pair in pairs]
    tables = smoothed_tables(
        [table for table, _ in own], [guesses[pair] for pair in pairs], [variance**0.5 for _, variance in own]
    )
    return {
        (i, j): with_margins(table, ones[i], ones[j]) for (i, j), table in zip(pairs, tables, strict=True)
    }  # fmt: skip
