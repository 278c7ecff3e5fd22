"""The cells that columns are cut into: ranges of numbers, which levels are too, single values, and a missing cell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from kmeanalyst.kernels.base import Array, check_width, is_number

MOST_CELLS = 100_000  # of all columns together


@dataclass(frozen=True)
class Cells:
    """Which cells each column of encoded rows has; a kernel of margins is such cells and heights.

    edges    for each column the inner edges of its ranges, increasing, in encoded units: cells [e_i, e_{i+1}).
    atoms    for each column single values that are cells of their own.
    missing  for each column whether a missing cell (NaN) is one.
    """

    edges: tuple[tuple[float, ...], ...]
    atoms: tuple[tuple[float, ...], ...]
    missing: tuple[bool, ...]

    def __post_init__(self) -> None:
        d = len(self.edges)
        if not (d and all(isinstance(part, tuple) and len(part) == d for part in (self.atoms, self.missing))):
            raise ValueError("margins need edges, atoms and missing for each column. Pass one entry per column.")
        for values in (*self.edges, *self.atoms):
            check_increasing(values)
        if not all(isinstance(missing, bool) for missing in self.missing):
            raise ValueError("missing must be true or false for each column. Pass one of the two for each.")

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of cells of each column.

        >>> Cells(((0.5,),), ((),), (False,)).sizes
        (2,)
        """
        return tuple(
            len(edges) + 1 + len(atoms) + missing
            for edges, atoms, missing in zip(self.edges, self.atoms, self.missing, strict=True)
        )

    def cells(self, X: Array) -> Array:
        """The cell (n, d) of each value: ranges first, then atoms, then missing; a NaN where none is declared is in the first.

        >>> kernel = ka.kernels.Margins(((0.0,), (0.5,)), ((), ()), (True, True), (1.0, 0, 0))
        >>> kernel.cells(np.array([[1.0, 0], [-1.0, np.nan]]))
        array([[1, 0],
               [0, 2]])
        """
        return self._cells_in(X, self._edges)

    def cells_of(self, j: int, values: Array, edges: Sequence[float] | None = None) -> Array:
        """The cell (n,) of each value of one column; with other edges than its own, if some are given.

        >>> Cells(((0.5,),), ((),), (False,)).cells_of(0, np.array([0.0, 1.0])).tolist()
        [0, 1]
        """
        return self._cells_between(np.array(self.edges[j] if edges is None else edges), j, values)

    @cached_property
    def _edges(self) -> list[tuple[int, Array]]:
        return [(j, np.array(edges)) for j, edges in enumerate(self.edges)]

    def _cells_in(self, X: Array, tables: Sequence[tuple[int, Array]]) -> Array:
        check_width(X, len(self.edges), f"these margins are of {len(self.edges)} columns")
        columns = np.ascontiguousarray(X.T)
        cells = np.empty((len(tables), len(X)), dtype=np.intp)  # columns one after the other
        for t, (j, edges) in enumerate(tables):
            cells[t] = self._cells_between(edges, j, columns[j])
        return cells.T

    def _cells_between(self, edges: Array, j: int, values: Array) -> Array:
        found = np.searchsorted(edges, values, side="right")
        if self.atoms[j]:
            atoms = np.array(self.atoms[j])
            nearest = np.minimum(np.searchsorted(atoms, values), len(atoms) - 1)
            found = np.where(atoms[nearest] == values, len(edges) + 1 + nearest, found)
        found[np.isnan(values)] = len(edges) + 1 + len(self.atoms[j]) if self.missing[j] else 0
        return found


def summed_in(table: Array, axis: int, finer: Sequence[float], edges: Sequence[float]) -> Array:
    """Sums along an axis of cells, between finer edges, over ranges between some of these; atoms and missing ones stay.

    >>> summed_in(np.array([1, 2, 4, 8]), 0, [0.5, 1.5], [1.5])  # the last is an atom
    array([3, 4, 8])
    """
    starts = [0, *np.searchsorted(finer, edges) + 1, *range(len(finer) + 1, table.shape[axis])]
    return np.add.reduceat(table, starts, axis=axis)


def check_increasing(values: tuple[float, ...]) -> None:
    if not all(is_finite(value) for value in values) or any(a >= b for a, b in pairwise(values)):
        raise ValueError(f"edges, atoms and fine must be finite and increase, got {str(values)[:80]}.")


def is_finite(value: object) -> bool:
    return is_number(value) and math.isfinite(value)  # type: ignore[arg-type]
