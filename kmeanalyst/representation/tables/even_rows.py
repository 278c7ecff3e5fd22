"""Rows of cells from estimated tables: drawn evenly from the tree, then moved until all pairs' tables fit.

No row breaks a rule. Columns that rules tie together move together: a row takes a cell of another row, and with it that row's
cells in all columns of the rules that it would break otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.column import DomainError
from kmeanalyst.representation.progress import Progress, silent
from kmeanalyst.representation.tables.allowed_cells import AllowedCells
from kmeanalyst.representation.tables.estimates import TableEstimates, implied_by_pairs
from kmeanalyst.representation.tables.lifts import scaled_to
from kmeanalyst.representation.tables.tree import table_of
from kmeanalyst.representation.weights.views import systematic_indices

_FIRST, _LAST = 0.012, 0.002  # share of the rows that move in a column, in the first and in the last sweep
_LOOKED_AT = 3  # times as many rows look for a better value
_UNMEASURED = 0.1  # weight of a pair that was not measured
_RARE = 0.02  # added to shares: estimates of cells below the noise are too high, and would draw rows into long tails
_POWER = -0.6  # of a share, in what its difference counts
_TOGETHER = 3  # times as many rows look for another row's values
_MOST_LOOKED_UP = 2**21  # cells of pairs' tables at once
_RAKING_STEPS, _RAKED = 40, (0.2, 5.0)  # and how far a step may go
_SHARING_STEPS = 30  # of scaling rows and columns in turn
_STRONG = 0.3  # L1 distance of a larger set from what its pairs say, from which rows are drawn by it and not only moved
_TINY = 1e-12
Tables = dict[tuple[int, ...], Array]  # columns → (a, b, …)


def draw_cells(estimates: TableEstimates, n: int, rng: np.random.Generator, allowed: AllowedCells | None = None) -> Array:
    """The cells (n, columns), drawn evenly from the tree.

    allowed   the cells that rules allow together; None without rules.
    Errors    DomainError where rules leave no row.
    """
    ones, tree = estimates.ones, estimates.tree
    cells = np.zeros((n, len(ones)), dtype=np.intp)
    known: frozenset[int] = frozenset()
    sets, pairs = estimates.sets, estimates.pairs
    strong = {s: t for s, t in sets.items() if np.abs(t - implied_by_pairs(s, pairs)).sum() > _STRONG}
    by_strong = replace(estimates, sets=strong)
    for k in tree.order:
        parent = tree.parents[k]
        above = cells[:, parent] if parent >= 0 else np.zeros(n, dtype=np.intp)
        table = ones[k][None] if parent < 0 else table_of(estimates.pairs, parent, k)
        table, above = _by_set(by_strong, k, known, parent, table, cells, above)
        patterns, which = _patterns(allowed, cells, k, known)
        order = np.argsort(above, kind="stable")
        starts = np.flatnonzero(np.diff(above[order], prepend=-1))
        for rows in np.split(order, starts[1:]):
            shares = table[above[rows[0]]]
            if shares.sum() <= 0:
                shares = np.maximum(ones[k], _TINY)
            for some, own in _shared_out(shares / shares.sum(), rows, patterns, which):
                cells[some, k] = rng.permutation(systematic_indices(own, len(some), rng))
        known |= {k}
    return cells if allowed is None else _completed(allowed, cells, rng)


def _by_set(
    estimates: TableEstimates, k: int, known: frozenset[int], parent: int, table: Array, cells: Array, above: Array
) -> tuple[Array, Array]:
    """Shares (b, a) of column k by its parent's cell, and the cell of each row; by a larger set's as well, if one was measured.

    The set that has column k, and otherwise columns that are drawn, gives its table (…, a): if the parent is not in it, the
    column is independent of the parent given the set but for what their pair's table says.
    """
    own = next((s for s in estimates.sets if k in s and set(s) - {k} <= known), ())
    others = [j for j in own if j != k]
    if not own:
        return table, above
    wide = np.moveaxis(estimates.sets[own], own.index(k), -1)
    place = np.ravel_multi_index(tuple(cells[:, others].T), wide.shape[:-1])
    wide = wide.reshape(-1, wide.shape[-1])
    if parent in own:
        return wide, place
    given = table[:, None] / np.maximum(estimates.ones[k], _TINY)
    return (given * wide).reshape(-1, wide.shape[-1]), above * len(wide) + place


def _patterns(allowed: AllowedCells | None, cells: Array, k: int, known: frozenset[int]) -> tuple[Array, Array]:
    """Different sets of values (patterns, size) that column k may take, and which (n,) of them each row has: one without rules."""
    if allowed is None:
        return np.ones((1, 1), dtype=bool), np.zeros(len(cells), dtype=np.intp)
    may = allowed.values(cells, k, known)
    packed = np.packbits(may, axis=1)
    _, first, which = np.unique(packed.view([("", f"V{packed.shape[1]}")]).ravel(), return_index=True, return_inverse=True)
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


def _completed(allowed: AllowedCells, cells: Array, rng: np.random.Generator) -> Array:
    keeps = allowed.keeps(cells)
    if keeps.any():
        cells[~keeps] = cells[rng.choice(np.flatnonzero(keeps), int((~keeps).sum()))]
        return cells
    row = allowed.row()
    if row is None:  # `publish` refuses such rules before it opens a table
        raise DomainError("no row keeps all rules of the table: together they exclude everything. Leave one out.")
    cells[:, allowed.columns] = row[allowed.columns]
    return cells


def rake_cells(
    estimates: TableEstimates, cells: Array, allowed: AllowedCells, rng: np.random.Generator
) -> tuple[TableEstimates, Array]:
    """Estimates that rules do not contradict, and drawn rows again with the columns' shares, from which rules have moved them.

    Rows that keep the rules are weighted to fit all columns as far as they do; the columns' shares under these weights are the
    new ones.
    """
    weights = _raked(estimates.ones, cells)
    ones = [np.bincount(own, weights, len(one)) for own, one in zip(cells.T, estimates.ones, strict=True)]
    pairs = {
        (i, j): scaled_to(np.where(allowed.together(i, j), np.maximum(table, _TINY), 0.0), ones[i], ones[j])
        for (i, j), table in estimates.pairs.items()
    }
    return replace(estimates, ones=ones, pairs=pairs), cells[systematic_indices(weights, len(weights), rng)]


def _raked(ones: list[Array], cells: Array) -> Array:
    """Weights (n,) of rows under which the columns have nearly these shares (a,)."""
    weights = np.full(len(cells), 1 / len(cells))
    for _ in range(_RAKING_STEPS):
        for one, own in zip(ones, cells.T, strict=True):
            shares = np.bincount(own, weights, minlength=len(one))
            weights = weights * np.clip(one / np.maximum(shares, _TINY), *_RAKED)[own] ** 0.5
            weights /= weights.sum()
    return weights


def move_cells(
    estimates: TableEstimates, cells: Array, rng: np.random.Generator, *, sweeps: int,
    allowed: AllowedCells | None = None, progress: Progress = silent,
) -> Array:  # fmt: skip
    """The cells (n, columns) after `sweeps` over the columns, nearer to the estimates in Σ weight · (difference)² / share.

    allowed   the cells that rules allow together, as they do those given; None without rules.
    """
    cells = cells.copy()
    n, d = cells.shape
    if d < 2:
        return cells
    tables: Tables = dict(estimates.pairs) | estimates.sets
    away = {columns: _counted(cells, columns, table.shape) / n - table for columns, table in tables.items()}
    worth = {
        columns: (1.0 if columns in estimates.measured or len(columns) > 2 else _UNMEASURED) * (table + _RARE) ** _POWER
        for columns, table in tables.items()
    }
    moves = _Moves.of(allowed, worth, away)
    for sweep in range(sweeps):
        share = _FIRST * (_LAST / _FIRST) ** (sweep / max(sweeps - 1, 1))
        count = min(n, max(round(_LOOKED_AT * share * n), 1))
        for j in rng.permutation(d):
            rows = rng.choice(n, count, replace=False)
            moves.alone(cells, int(j), rows, rng)
        if allowed is not None:
            moves.together(cells, rng.choice(n, min(n, _TOGETHER * count), replace=False), rng)
        progress("moving rows", (sweep + 1) / sweeps)
    return cells


@dataclass(frozen=True, eq=False)
class _Moves:
    """Moves of single columns, and of columns that rules tie together: a row then takes the cell of a column from another row, and
    what goes with it.

    away      rows' tables less the estimates', of all pairs and sets one after the other.
    columns   (P, k) of each table, filled up with −1; strides (P, k) how far apart in `away` its neighbours along them are, 0
              where filled up; starts (P,) where each table begins.
    worth     of each cell of these tables, in the sum of squares.
    views     of each column the tables with it: their numbers, and of each its other columns and what is of it in `away` and
              `worth`, with the column along the last axis.
    """

    allowed: AllowedCells | None
    away: Array
    columns: Array
    strides: Array
    starts: Array
    worth: Array
    views: tuple[tuple[Array, list[tuple[list[int], Array, Array]]], ...]

    @classmethod
    def of(cls, allowed: AllowedCells | None, worth: Tables, away: Tables) -> _Moves:
        ends = np.cumsum([0, *(table.size for table in away.values())])
        whole = np.concatenate([table.ravel() for table in away.values()])
        of_tables = np.full((len(away), max(map(len, away))), -1)
        strides = np.zeros(of_tables.shape, dtype=np.intp)
        views: dict[int, Any] = {}
        for t, (columns, table) in enumerate(away.items()):
            own = whole[ends[t] : ends[t + 1]].reshape(table.shape)
            of_tables[t, : len(columns)] = columns
            strides[t, : table.ndim] = np.array(own.strides) // whole.itemsize
            for axis, j in enumerate(columns):
                numbers, lines = views.setdefault(j, ([], []))
                numbers.append(t)
                moved = (np.moveaxis(each, axis, -1) for each in (own, worth[columns]))
                lines.append(([k for k in columns if k != j], *moved))
        return cls(
            allowed, whole, of_tables, strides, ends[:-1], np.concatenate([worth[columns].ravel() for columns in away]),
            tuple((np.array(numbers), lines) for _, (numbers, lines) in sorted(views.items())),
        )  # fmt: skip

    def alone(self, cells: Array, j: int, rows: Array, rng: np.random.Generator) -> None:
        """Move a third of those of the rows that gain by another value in column j."""
        (tables, views), n, seen = self.views[j], len(cells), np.ascontiguousarray(cells[rows].T)
        old, every, lines, pulls, begin = seen[j], np.arange(len(rows)), [], [], 0
        for others, away, worth in views:
            own = tuple(seen[others])
            few = away[..., 0].size < len(rows)  # lines of cells of column j: all of them, or each row's
            lines.append(begin + (np.ravel_multi_index(own, away.shape[:-1]) if few else every))
            pulls.append((away * worth if few else away[own] * worth[own]).reshape(-1, away.shape[-1]))
            begin += len(pulls[-1])
        ends = np.arange(0, len(rows) * len(lines) + 1, len(lines))
        place = np.column_stack(lines).ravel()
        slope = csr_array((np.ones(place.size), place, ends), shape=(len(rows), begin)) @ np.concatenate(pulls)
        if self.allowed is not None:
            slope = np.where(self.allowed.values(cells[rows], j), slope, np.inf)
        best = slope.argmin(axis=1)
        gains = np.flatnonzero(slope[np.arange(len(rows)), best] < slope[np.arange(len(rows)), old])
        gains = gains[rng.random(len(gains)) < 1 / _LOOKED_AT]
        for moved, sign in ((best, 1), (old, -1)):
            cells[rows[gains], j] = moved[gains]
            steps = (cells[rows[gains]][:, self.columns[tables]] * self.strides[tables]).sum(axis=2)
            np.add.at(self.away, (self.starts[tables] + steps).ravel(), sign / n)
        cells[rows[gains], j] = best[gains]

    def together(self, cells: Array, rows: Array, rng: np.random.Generator) -> None:
        """Move a third of those of the rows that gain."""
        rows = rows[: max(_MOST_LOOKED_UP // len(self.starts), 1)]
        new = self._taken_over(cells, rows, rng)
        changed = new != cells[rows]
        kept = changed.sum(axis=1) > 1  # a single column moves by itself
        rows, new, changed = rows[kept], new[kept], changed[kept]
        fixed = np.zeros((len(rows), 1), dtype=bool)
        row, table = np.nonzero(np.hstack([changed, fixed])[:, self.columns].any(axis=2))
        before, after = (self._places(some[row], table) for some in (cells[rows], new))
        pulls = self.away[before] * self.worth[before] - self.away[after] * self.worth[after]
        gain = np.bincount(row, pulls, minlength=len(rows))
        gains = (gain > 0) & (rng.random(len(rows)) < 1 / _LOOKED_AT)
        moved = gains[row]
        np.add.at(self.away, after[moved], 1 / len(cells))
        np.add.at(self.away, before[moved], -1 / len(cells))
        cells[rows[gains]] = new[gains]

    def _places(self, cells: Array, table: Array) -> Array:
        """(k,) where in `away` rows of cells (k, columns) are, each in one of the tables."""
        own = np.take_along_axis(cells, self.columns[table] % cells.shape[1], axis=1)
        return np.asarray(self.starts[table] + (own * self.strides[table]).sum(axis=1))

    def _taken_over(self, cells: Array, rows: Array, rng: np.random.Generator) -> Array:
        """(rows, columns) allowed cells of these rows, each with that of another row in some column."""
        assert self.allowed is not None
        n = len(rows)
        own, given = cells[rows], cells[(rng.random(n) * len(cells)).astype(np.intp)]
        taken = np.zeros(own.shape, dtype=bool)
        taken[np.arange(n), rng.choice(self.allowed.columns, n)] = True
        new = np.where(taken, given, own)
        while (wider := self.allowed.widened(new, taken)).sum() > taken.sum():
            taken, new = wider, np.where(wider, given, own)
        return new


def _counted(cells: Array, columns: tuple[int, ...], shape: tuple[int, ...]) -> Array:
    places = np.ravel_multi_index(tuple(cells[:, list(columns)].T), shape)
    return np.bincount(places, minlength=int(np.prod(shape))).reshape(shape).astype(float)
