"""Cells of weighted rows: which one each row is in, by sets of columns, and sums of rows over the cells of many sets at once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import Margins
from kmeanalyst.representation.tables.estimates import implied_by_pairs, over_pair

NO_ROWS, _SEVERAL = 1e-12, 1e-3  # a share; deviation of ranks within a range of several values
_MOST_PLACES = 10**7  # rows times sets that are looked at: fewer rows of many columns
_TOGETHER = 64  # sets whose cells are summed at once
_PARTS = 4  # of a cell of the finest table, by its values
_HIDDEN, _RIDGE = 4.0, 0.01  # the most that tables of other columns hide of a trend; of their correlations


@dataclass(frozen=True, eq=False)
class CellsOfRows:
    """Rows of weights p, and the cell of each in every column.

    n         rows of the fit; chosen (m,) which of them are looked at; weights (m,) theirs.
    cells     (d, m) of each column; sizes their numbers, of which ranges are the first, in order.
    within    for each column the part of a cell (m,) that a row is in, and the cell (parts,) that it is a part of.
    values    (d, m) by which cells stand in order; None: they do as they are.
    """

    n: int
    chosen: Any
    weights: Array
    cells: Array
    sizes: tuple[int, ...]
    ranges: tuple[int, ...]
    within: tuple[tuple[Array, Array], ...]
    values: Array | None = None

    @classmethod
    def of(cls, kernel: Margins, rows: Array, weights: Array, sets: int) -> CellsOfRows:
        """Those of encoded rows (n, d): of some of them, where there are many and so many sets of columns."""
        n, m = len(rows), int(min(len(rows), max(_MOST_PLACES // max(sets, 1), 1)))
        chosen: Any = slice(None)
        if m < n:  # evenly by weight, for the same sums
            ends = np.cumsum(weights) / weights.sum()
            chosen = np.minimum(np.searchsorted(ends, (np.arange(m) + 0.5) / m), n - 1)
            weights = np.full(m, 1 / m)
        rows, ranges = rows[chosen], tuple(len(edges) + 1 for edges in kernel.edges)
        cells = np.ascontiguousarray(kernel.cells(rows).T.astype(np.int32))
        finest = dict(zip(kernel.finer, kernel.fine_cells(rows).T, strict=True))
        within = tuple(_parts(own, finest.get(j, own), rows[:, j], weights) for j, own in enumerate(cells))
        return cls(n, chosen, weights, cells, kernel.sizes, ranges, within, rows.T)

    @cached_property
    def shares(self) -> list[Array]:
        """(size,) of the cells of each column."""
        return [np.bincount(own, self.weights, minlength=size) for own, size in zip(self.cells, self.sizes, strict=True)]

    @cached_property
    def ranks(self) -> list[Array]:
        """Of the cells of each column the shares below them, of mean 0 and variance 1."""
        found, in_order = [], self.cells if self.values is None else self.values
        for own, mass, values in zip(self.cells, self.shares, in_order, strict=True):
            order = np.argsort(np.bincount(own, self.weights * values, minlength=len(mass)) / np.maximum(mass, 1e-300))
            ranks = np.empty(len(mass))
            ranks[order] = np.cumsum(mass[order]) - mass[order] / 2 - mass.sum() / 2
            found.append(ranks / math.sqrt(max(float(mass @ ranks**2), 1e-300)))
        return found

    @cached_property
    def ranks_within(self) -> dict[int, Array]:
        """For each column whose ranges have several values the ranks (m,) of rows within theirs, of mean 0 and variance 1."""
        found, in_order = {}, self.cells if self.values is None else np.nan_to_num(self.values)
        for j, (cells, values) in enumerate(zip(self.cells, in_order, strict=True)):
            each, number = np.unique(cells + 1j * values, return_inverse=True)  # by cells, and values in each
            cell, mass = each.real.astype(np.intp), np.bincount(number, self.weights)
            whole = np.bincount(cell, mass)
            ranks = np.cumsum(mass) - mass / 2 - (np.cumsum(whole) - whole / 2)[cell]
            roots = np.sqrt(np.bincount(cell, mass * ranks**2) / np.maximum(whole, NO_ROWS))
            several = roots > _SEVERAL * whole
            if several.any():
                found[j] = np.where(several[cell], ranks / np.maximum(roots[cell], NO_ROWS), 0.0)[number]
        return found

    def hidden(self, j: int, others: Iterable[int]) -> float:
        """By how much less is left of a trend in a column where tables of others are held: 1/(1 − R²) of ranks, up to `_HIDDEN`."""
        others = sorted({*others} - {j})
        found = self._correlations[np.ix_(others, others)] + _RIDGE * np.eye(len(others))
        own = self._correlations[j, others]
        return min(1 / max(1 - float(own @ np.linalg.solve(found, own)), 1e-300), _HIDDEN)

    @cached_property
    def _correlations(self) -> Array:
        """(d, d) of ranks."""
        ranks = np.array([own[cells] for own, cells in zip(self.ranks, self.cells, strict=True)])
        return np.asarray((ranks * self.weights) @ ranks.T)

    def places(self, columns: tuple[int, ...]) -> tuple[Array, Array]:
        """The cell of each row (m,) in a set of columns, and the cells' shares."""
        places = self.cells[columns[0]]
        for j in columns[1:]:
            places = places * self.sizes[j] + self.cells[j]
        return places, np.bincount(places, self.weights, minlength=math.prod(self.sizes[j] for j in columns))

    def table(self, columns: tuple[int, ...]) -> Array:
        """Shares (a, b, …) of the cells of a set of columns."""
        return self.places(columns)[1].reshape([self.sizes[j] for j in columns])

    def apart(self, columns: tuple[int, ...]) -> Array:
        """How far the table of these columns is from what its pairs say."""
        table = self.table(columns)
        pairs = {pair: over_pair(table, columns, pair) for pair in combinations(columns, 2)}
        return np.asarray(table - implied_by_pairs(columns, pairs))

    def expected(self, sets: Iterable[tuple[int, ...]]) -> Array:
        """Σ √E over the cells of each set of columns, if they are independent."""
        roots = [float(np.sqrt(own).sum()) for own in self.shares]
        return np.array([math.prod(roots[j] for j in own) for own in sets])

    def sums_of(self, sets: Sequence[tuple[int, ...]]) -> Iterator[SumsOfSets]:
        """What sums rows over the cells of sets of columns, some sets at a time, in order."""
        for first in range(0, len(sets), _TOGETHER):
            some = [self.places(columns) for columns in sets[first : first + _TOGETHER]]
            used = [np.flatnonzero(shares > 0) for _, shares in some]
            ends = np.cumsum([0, *map(len, used)])
            number = [np.cumsum(shares > 0).clip(1) - 1 + start for (_, shares), start in zip(some, ends, strict=False)]
            places = np.stack([new[own] for (own, _), new in zip(some, number, strict=True)], axis=1)
            roots = [np.sqrt(shares[cells]) for (_, shares), cells in zip(some, used, strict=True)]
            of_sets = zip((slice(*own) for own in pairwise(ends)), roots, used, strict=True)
            yield SumsOfSets(summing(places, int(ends[-1])), list(of_sets))

    def between(self, of_sets: Iterable[SumsOfSets], weighted: Array, total: Array) -> Iterator[tuple[Array, Array, Array, Array]]:
        """For each set the variance (k,) between its cells beyond chance, means (c, k) times roots (c,) of shares, these, and which
        cells (c,) they are of: of values times weights (m, k), of variances total (k,).
        """
        effective = 1 / float(self.weights @ self.weights)
        for some in of_sets:
            sums = some.sums @ weighted
            for own, roots, cells in some.of_sets:
                means = sums[own] / roots[:, None]
                between = (means**2).sum(axis=0)
                chance = (len(cells) - 1) * np.maximum(total - between, 0.0) / max(effective - len(cells), 1.0)
                yield np.maximum(between - chance, 0.0), means, roots, cells


class SumsOfSets(NamedTuple):
    """Cells of some sets that have rows: what sums rows over them (c, m), and of each set its own, roots of shares, and numbers."""

    sums: Any
    of_sets: list[tuple[slice, Array, Array]]


def summing(places: Array, size: int) -> Any:
    """(size, m) what sums values of m rows over the place (m,), or the places (m, c), of each."""
    m, *others = places.shape
    count = math.prod(others)
    ends = np.arange(0, m * count + 1, count, dtype=np.int32)
    return csr_array((np.ones(m * count, np.int8), places.ravel().astype(np.int32), ends), (m, size)).T


def _parts(cells: Array, finest: Array, values: Array, weights: Array) -> tuple[Array, Array]:
    """The part of a cell of the finest table (m,) that each row is in, a quarter of it by its values; and its cell (parts,)."""
    values = np.nan_to_num(values, nan=np.inf)
    order = np.lexsort((values, finest, cells))
    cell, fine, value = cells[order], finest[order], values[order]
    begins = np.concatenate([[True], (cell[1:] != cell[:-1]) | (fine[1:] != fine[:-1])])
    number = np.cumsum(begins) - 1
    before = np.cumsum(weights[order]) - weights[order]
    mass = np.bincount(number, weights[order])
    same = np.concatenate([[False], (value[1:] == value[:-1]) & ~begins[1:]])
    first = np.maximum.accumulate(np.where(same, 0, np.arange(len(order))))  # rows of one value stay together
    share = (before[first] - before[begins][number]) / np.maximum(mass, 1e-300)[number]
    quarter = np.minimum((_PARTS * share).astype(int), _PARTS - 1)
    _, part = np.unique(_PARTS * number + quarter, return_inverse=True)
    parts = np.empty(len(order), dtype=np.int32)
    parts[order] = part
    parents = np.zeros(int(part.max()) + 1, dtype=np.int32)
    parents[part] = number
    return parts, parents
