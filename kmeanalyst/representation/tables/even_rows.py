"""Rows of cells from estimated tables: drawn evenly from the tree, then moved until all pairs' tables fit.

Rows are drawn so that each conditional distribution is met to one row. Some are then moved, one column at a time, to the value
that brings the rows' tables nearest to the estimates. Such rows are no sample: their drawing error is below that of one.

Where a table has rules, no row of cells is drawn that breaks one, or moved into one. Columns that rules tie together cannot be moved one
at a time, and move together: a row takes a cell of another row, and with it that row's cells in all columns of the rules
that it would break otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.column import DomainError
from kmeanalyst.representation.progress import Progress, silent
from kmeanalyst.representation.tables.allowed_cells import AllowedCells
from kmeanalyst.representation.tables.estimates import TableEstimates
from kmeanalyst.representation.tables.tree import Pair, table_of
from kmeanalyst.representation.weights.views import systematic_indices

_FIRST, _LAST = 0.012, 0.002  # share of the rows that move in a column, in the first and in the last sweep
_LOOKED_AT = 3  # times as many rows look for a better value
_UNMEASURED = 0.1  # weight of a pair that was not measured
_SHARING_STEPS = 30  # of scaling rows and columns in turn
_TINY = 1e-12


def draw_cells(
    estimates: TableEstimates, n: int, rng: np.random.Generator, allowed: AllowedCells | None = None
) -> tuple[Array, Array]:
    """The target's cell (n,), and the cells (n, columns) of the other columns, drawn evenly from the tree.

    allowed   the cells that rules allow together; None without rules.
    Errors    DomainError where rules leave no row.
    """
    ones, tree = estimates.ones, estimates.tree
    target = systematic_indices(estimates.target, n, rng)
    cells = np.zeros((n, len(ones)), dtype=np.intp)
    known = frozenset([len(ones)])
    for k in tree.order:
        parent = tree.parents[k]
        above = cells[:, parent] if parent >= 0 else np.zeros(n, dtype=np.intp)
        table = ones[k][:, None] if parent < 0 else table_of(estimates.pairs, parent, k)
        patterns, which = _patterns(allowed, cells, target, k, known)
        group = target * table.shape[1] + above
        order = np.argsort(group, kind="stable")
        starts = np.flatnonzero(np.diff(group[order], prepend=-1))
        for rows in np.split(order, starts[1:]):
            shares = table[target[rows[0]], above[rows[0]]]
            if shares.sum() <= 0:
                shares = np.maximum(ones[k][target[rows[0]]], _TINY)
            for some, own in _shared_out(shares / shares.sum(), rows, patterns, which):
                cells[some, k] = rng.permutation(systematic_indices(own, len(some), rng))
        known |= {k}
    return (target, cells) if allowed is None else _completed(allowed, target, cells, rng)


def _patterns(
    allowed: AllowedCells | None, cells: Array, target: Array, k: int, known: frozenset[int]
) -> tuple[Array, Array]:
    """Different sets of values (patterns, size) that column k may take, and which (n,) of them each row has: one without rules."""
    if allowed is None:
        return np.ones((1, 1), dtype=bool), np.zeros(len(cells), dtype=np.intp)
    may = allowed.values(np.column_stack([cells, target]), k, known)
    packed = np.packbits(may, axis=1)
    _, first, which = np.unique(
        packed.view([("", f"V{packed.shape[1]}")]).ravel(), return_index=True, return_inverse=True
    )
    return may[first], which


def _shared_out(shares: Array, rows: Array, patterns: Array, which: Array) -> Iterator[tuple[Array, Array]]:
    """Parts of the rows, and the shares of each: zero where its pattern is, and together as near to `shares` as patterns allow."""
    present, own, counts = np.unique(which[rows], return_inverse=True, return_counts=True)
    if len(patterns) == 1 and patterns.all():
        yield rows, shares
        return
    found = patterns[present] * np.maximum(shares, _TINY)
    found[~found.any(axis=1)] = shares  # no value is left: these rows are completed later
    for _ in range(_SHARING_STEPS if len(present) > 1 else 0):
        found = found * (counts / found.sum(axis=1))[:, None]
        found = found * (shares * len(rows) / np.maximum(found.sum(axis=0), _TINY)).clip(_TINY)
    for p in range(len(present)):
        yield rows[own == p], found[p] / found[p].sum()


def _completed(allowed: AllowedCells, target: Array, cells: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Rows that are not allowed, replaced by others of the same target: allowed ones among them, or one that is searched for."""
    whole = np.column_stack([cells, target])
    keeps = allowed.keeps(whole)
    for y in np.unique(target[~keeps]):
        broken, kept = np.flatnonzero(~keeps & (target == y)), np.flatnonzero(keeps & (target == y))
        if len(kept):
            whole[broken] = whole[rng.choice(kept, len(broken))]
        elif (row := allowed.some_row([(len(allowed.sizes) - 1, int(y))])) is not None:
            whole[np.ix_(broken, [*allowed.columns, -1])] = row[[*allowed.columns, -1]]
        else:
            whole[broken] = _any_row(allowed, whole[keeps])
    return whole[:, -1], whole[:, :-1]


def _any_row(allowed: AllowedCells, kept: Array) -> Array:
    row = kept[0] if len(kept) else allowed.some_row()
    if row is None:
        raise DomainError("no row keeps all rules of the table: together they exclude everything. Leave one out.")
    return row


def move_cells(
    estimates: TableEstimates, target: Array, cells: Array, rng: np.random.Generator, *, sweeps: int,
    allowed: AllowedCells | None = None, progress: Progress = silent,
) -> Array:  # fmt: skip
    """The cells (n, columns) after `sweeps` over the columns, nearer to the estimates in Σ weight · (difference)².

    allowed   the cells that rules allow together, as they do those given; None without rules.
    """
    cells = cells.copy()
    n, d = cells.shape
    if d < 2:
        return cells
    away = {pair: _counted(target, cells, pair, table.shape) / n - table for pair, table in estimates.pairs.items()}
    by_target = np.argsort(target, kind="stable"), np.searchsorted(np.sort(target), np.arange(target.max() + 2))
    for sweep in range(sweeps):
        share = _FIRST * (_LAST / _FIRST) ** (sweep / max(sweeps - 1, 1))
        count = min(n, max(round(_LOOKED_AT * share * n), 1))
        for j in rng.permutation(d):
            rows = rng.choice(n, count, replace=False)
            _move(away, estimates.measured, target, cells, int(j), rows, rng, allowed)
        for j in rng.permutation(allowed.columns if allowed else []):
            rows = rng.choice(n, count, replace=False)
            order, starts = by_target
            among = starts[target[rows] + 1] - starts[target[rows]]
            others = order[starts[target[rows]] + (rng.random(count) * among).astype(np.intp)]
            _move_together(away, estimates.measured, target, cells, int(j), rows, others, rng, allowed)
        progress("moving rows", (sweep + 1) / sweeps)
    return cells


def _move(
    away: dict[Pair, Array], measured: frozenset[Pair], target: Array, cells: Array, j: int, rows: Array,
    rng: np.random.Generator, allowed: AllowedCells | None,
) -> None:  # fmt: skip
    """Move a third of those of the rows that gain by another value in column j; `away` follows."""
    n, d = cells.shape
    y, old = target[rows], cells[rows, j]
    slope: Array = np.zeros(())
    for k in range(d):
        if k != j:
            weight = 1.0 if (min(j, k), max(j, k)) in measured else _UNMEASURED
            slope = slope + weight * table_of(away, k, j)[y, cells[rows, k]]
    if allowed is not None:
        slope = np.where(allowed.values(np.column_stack([cells[rows], y]), j), slope, np.inf)
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


def _move_together(
    away: dict[Pair, Array], measured: frozenset[Pair], target: Array, cells: Array, j: int, rows: Array,
    others: Array, rng: np.random.Generator, allowed: AllowedCells,
) -> None:  # fmt: skip
    """The same where a row takes the cell of column j from another of its target, with those of all columns that rules tie to it."""
    n = len(cells)
    new, changed = _taken_over(allowed, target, cells, j, rows, others)
    kept = changed.sum(axis=1) > 1  # a single column moves by itself
    rows, new, changed = rows[kept], new[kept], changed[kept]
    y, old, gain = target[rows], cells[rows], np.zeros(len(rows))
    pairs = [(i, k) for i, k in away if changed[:, i].any() or changed[:, k].any()]
    for i, k in pairs:
        weight = 1.0 if (i, k) in measured else _UNMEASURED
        table = away[i, k]
        gain += weight * (table[y, old[:, i], old[:, k]] - table[y, new[:, i], new[:, k]])
    gains = np.flatnonzero(gain > 0)
    gains = gains[rng.random(len(gains)) < 1 / _LOOKED_AT]
    rows, new, y, old, changed = rows[gains], new[gains], y[gains], old[gains], changed[gains]
    for i, k in pairs:
        np.add.at(away[i, k], (y, new[:, i], new[:, k]), 1 / n)
        np.add.at(away[i, k], (y, old[:, i], old[:, k]), -1 / n)
    cells[rows] = new


def _taken_over(
    allowed: AllowedCells, target: Array, cells: Array, j: int, rows: Array, others: Array
) -> tuple[Array, Array]:
    """(rows, columns) allowed cells of these rows with those of the others in column j, and which have changed."""
    own, given = (np.column_stack([cells[some], target[some]]) for some in (rows, others))
    taken = np.zeros(own.shape, dtype=bool)
    taken[:, j] = True
    new = np.where(taken, given, own)
    while (wider := allowed.widened(new, taken)).sum() > taken.sum():
        taken, new = wider, np.where(wider, given, own)
    return new[:, :-1], (new != own)[:, :-1]


def _counted(target: Array, cells: Array, pair: Pair, shape: tuple[int, ...]) -> Array:
    """How many rows are in each cell of a pair's table."""
    places = np.ravel_multi_index((target, cells[:, pair[0]], cells[:, pair[1]]), shape)
    return np.bincount(places, minlength=int(np.prod(shape))).reshape(shape).astype(float)
