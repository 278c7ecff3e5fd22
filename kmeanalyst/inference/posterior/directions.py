"""Single directions along which tables may depart by more than a κ, which is for all directions alike.

Trends of pairs of columns, and functions of the cells of larger sets; tables of other columns hide a part of both.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import NamedTuple, TypeAlias

import numpy as np

from kmeanalyst.inference.posterior.cells_of_rows import NO_ROWS, CellsOfRows
from kmeanalyst.kernels.base import Array

_OF_EVEN = 0.75  # E|f| E|g| of even ranks: of these a correlation is about the distance
_ROUNDS = 10  # of taking away what fewer columns say
_SHOWN, _MOST_CELLS = 0.01, 20_000  # distance, and cells, of a set of three that is looked at

Sets: TypeAlias = tuple[tuple[int, ...], ...]


class Trend(NamedTuple):
    """Departures p ρ f g of a pair: f (a, size) and g (b, size) functions of a column's cells, ρ (a, b) their correlations."""

    f: Array
    g: Array
    rho: Array

    def moved(self, cells: Array, sums: Array) -> Array:
        """(t, k) how far answers move, of E[r; cell] (c, k) in these cells of the pair."""
        table = np.zeros((self.f.shape[1] * self.g.shape[1], sums.shape[1]))
        table[cells] = sums
        moved = self.g @ (self.f @ table.reshape(self.f.shape[1], -1)).reshape(len(self.f), self.g.shape[1], -1)
        return (self.rho[:, :, None] * moved).reshape(-1, sums.shape[1])

    def draws(self, k: int, rng: np.random.Generator) -> Array:
        """k draws (cells, k) of how the pair's cells may depart, relative to their shares."""
        z = self.rho[:, :, None] * rng.standard_normal((*self.rho.shape, k))
        return np.einsum("fa,fgk,gb->abk", self.f, z, self.g, optimize=True).reshape(-1, k)


def beside(counted: Iterable[tuple[int, ...]], columns: int) -> list[set[int]]:
    """Of each column those that it was counted with, and itself."""
    return [{j}.union(*(each for each in counted if j in each)) for j in range(columns)]


def trends(rows: CellsOfRows, counted: Sets, pairs: Sets, squared: Array, usual: Array) -> dict[tuple[int, ...], Trend]:
    """Of pairs those that squared correlations (P,) of ranks, and usual distances (P,) by scores, leave possible.

    The distance from independent columns is ρ E|f| E|g|. All that a score leaves likely may be in one trend of ranks, or
    parts of it in trends of levels, as far as shares let them be correlated: so rare levels have more than the average cell.
    Where other columns' tables are held, a trend moves answers by more than what these leave of it (`CellsOfRows.hidden`).
    """
    found, of_columns, held = {}, [_functions(rows, j) for j in range(len(rows.cells))], beside(counted, len(rows.cells))
    for pair, square, distance in zip(pairs, np.nan_to_num(squared).tolist(), usual, strict=True):
        if square == 0:  # and of larger sets
            continue
        (f, mean_f, apart_f, part_f), (g, mean_g, apart_g, part_g) = (of_columns[j] for j in pair)
        rho = np.full((1, 1), math.sqrt(min(square, 1.0)))
        if distance > 0:
            largest = np.minimum.outer(apart_f, apart_g) / np.maximum.outer(apart_f, apart_g)
            rho = np.minimum(_OF_EVEN * math.sqrt(square) / np.outer(mean_f, mean_g), largest) * np.outer(part_f, part_g)
        one, other = pair
        factor = 1.0 if other in held[one] else max(rows.hidden(one, held[other]), rows.hidden(other, held[one]))
        found[pair] = Trend(f[: len(rho)], g[: rho.shape[1]], factor * rho)
    return found


def _functions(rows: CellsOfRows, j: int) -> tuple[Array, Array, Array, Array]:
    """Functions f of a column's cells (f, size), E|f|, √(share · rest), which is 1/√3 of ranks, and the root of the part of a
    distance that may be in each.
    """
    mass = rows.shares[j]
    levels = np.flatnonzero(mass)
    levels = levels[: 0 if len(levels) < 3 or j in rows.ranks_within else None]  # of two, ranks say which it is
    apart = np.sqrt(mass[levels] * (1 - mass[levels]))
    functions = np.vstack([rows.ranks[j], (np.eye(len(mass))[levels] - mass[levels][:, None]) / apart[:, None]])
    means = np.maximum(np.abs(functions) @ mass, NO_ROWS)
    parts = np.append(1.0, np.full(len(levels), 1 / math.sqrt(max(len(levels) - 1, 1))))
    return functions, means, np.append(1 / math.sqrt(3), apart), parts


def shown_through_others(rows: CellsOfRows, counted: Sets) -> list[tuple[tuple[int, ...], Array]]:
    """Sets of three columns, and functions g of their cells, so that p (1 − g) may be the table: it has no such dependence as rows
    have because two were counted with a column that the third hangs on.
    """
    found, among, held = dict[tuple[int, ...], Array](), dict[tuple[int, int], set[int]](), beside(counted, len(rows.cells))
    for two in {two for own in counted if len(own) > 2 for two in combinations(own, 2)}:
        among[two] = set().union(*(own for own in counted if {*two} < {*own})) - {*two}
    for two, those in sorted(among.items()):
        for c in sorted(set().union(*(held[x] for x in those)) - those - {*two}):
            columns = tuple(sorted((*two, c)))
            if math.prod(rows.sizes[j] for j in columns) <= _MOST_CELLS:
                apart = rows.hidden(c, those) * rows.apart(columns).ravel()
                if np.abs(apart).sum() > max(_SHOWN, np.abs(found.get(columns, 0.0)).sum()):
                    found[columns] = apart
    return [(columns, own / np.maximum(rows.places(columns)[1], NO_ROWS)) for columns, own in found.items()]


def scored_trends(rows: CellsOfRows, scored: Mapping[tuple[int, ...], float]) -> list[tuple[tuple[int, ...], Array]]:
    """The same of sets that were scored: a trend along the product of their columns' ranks, as far as the score lets it."""
    return [(each, _along_ranks(rows, each, distance)) for each, distance in scored.items() if distance > _SHOWN]


def _along_ranks(rows: CellsOfRows, columns: tuple[int, ...], distance: float) -> Array:
    """(cells,) the product of the columns' ranks less what fewer of them say of it, as far as this distance."""
    shares, g = rows.table(columns), functools.reduce(np.multiply.outer, (rows.ranks[j] for j in columns))
    for axis in _ROUNDS * [*range(len(columns))]:
        g = g - (shares * g).sum(axis=axis, keepdims=True) / np.maximum(shares.sum(axis=axis, keepdims=True), NO_ROWS)
    return np.asarray(distance / max(float((shares * np.abs(g)).sum()), NO_ROWS) * g.ravel())
