"""Rows of cells from estimated tables: drawn evenly from the tree, then moved until all pairs' tables fit.

Rows are drawn so that each conditional distribution is met to one row. Some are then moved, one column at a time, to the value
that brings the rows' tables nearest to the estimates. Such rows are no sample: their drawing error is below that of one.
"""

from __future__ import annotations

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.representation.progress import Progress, silent
from kmeanalyst.representation.tables.estimates import TableEstimates
from kmeanalyst.representation.tables.tree import Pair, table_of
from kmeanalyst.representation.weights.views import systematic_indices

_FIRST, _LAST = 0.012, 0.002  # share of the rows that move in a column, in the first and in the last sweep
_LOOKED_AT = 3  # times as many rows look for a better value
_UNMEASURED = 0.1  # weight of a pair that was not measured


def draw_cells(estimates: TableEstimates, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """The target's cell (n,), and the cells (n, columns) of the other columns, drawn evenly from the tree."""
    ones, tree = estimates.ones, estimates.tree
    target = systematic_indices(estimates.target, n, rng)
    cells = np.zeros((n, len(ones)), dtype=np.intp)
    for k in tree.order:
        parent = tree.parents[k]
        above = cells[:, parent] if parent >= 0 else np.zeros(n, dtype=np.intp)
        table = ones[k][:, None] if parent < 0 else table_of(estimates.pairs, parent, k)
        group = target * table.shape[1] + above
        order = np.argsort(group, kind="stable")
        starts = np.flatnonzero(np.diff(group[order], prepend=-1))
        for rows in np.split(order, starts[1:]):
            shares = table[target[rows[0]], above[rows[0]]]
            if shares.sum() <= 0:
                shares = np.maximum(ones[k][target[rows[0]]], 1e-12)
            cells[rows, k] = rng.permutation(systematic_indices(shares / shares.sum(), len(rows), rng))
    return target, cells


def move_cells(
    estimates: TableEstimates, target: Array, cells: Array, rng: np.random.Generator, *, sweeps: int,
    progress: Progress = silent,
) -> Array:  # fmt: skip
    """The cells (n, columns) after `sweeps` over the columns, nearer to the estimates in Σ weight · (difference)²."""
    cells = cells.copy()
    n, d = cells.shape
    if d < 2:
        return cells
    away = {pair: _counted(target, cells, pair, table.shape) / n - table for pair, table in estimates.pairs.items()}
    for sweep in range(sweeps):
        share = _FIRST * (_LAST / _FIRST) ** (sweep / max(sweeps - 1, 1))
        for j in rng.permutation(d):
            rows = rng.choice(n, min(n, max(round(_LOOKED_AT * share * n), 1)), replace=False)
            _move(away, estimates.measured, target, cells, int(j), rows, rng)
        progress("moving rows", (sweep + 1) / sweeps)
    return cells


def _move(
    away: dict[Pair, Array], measured: frozenset[Pair], target: Array, cells: Array, j: int, rows: Array,
    rng: np.random.Generator,
) -> None:  # fmt: skip
    """Move a third of those of the rows that gain by another value in column j; `away` follows."""
    n, d = cells.shape
    y, old = target[rows], cells[rows, j]
    slope: Array = np.zeros(())
    for k in range(d):
        if k != j:
            weight = 1.0 if (min(j, k), max(j, k)) in measured else _UNMEASURED
            slope = slope + weight * table_of(away, k, j)[y, cells[rows, k]]
    best = slope.argmin(axis=1)
    gains = np.flatnonzero(slope[np.arange(len(rows)), best] < slope[np.arange(len(rows)), old])
    gains = gains[rng.random(len(gains)) < 1 / _LOOKED_AT]
    rows, y, old, best = rows[gains], y[gains], old[gains], best[gains]
    for k in range(d):
        if k != j:
            table, others = table_of(away, k, j), cells[rows, k]
            np.add.at(table, (y, others, best), 1 / n)
            np.add.at(table, (y, others, old), -1 / n)
    cells[rows, j] = best


def _counted(target: Array, cells: Array, pair: Pair, shape: tuple[int, ...]) -> Array:
    """How many rows are in each cell of a pair's table."""
    places = np.ravel_multi_index((target, cells[:, pair[0]], cells[:, pair[1]]), shape)
    return np.bincount(places, minlength=int(np.prod(shape))).reshape(shape).astype(float)
