"""The features of the margins kernel: one coordinate for each cell of each table, complete and exact.

φ(x)·φ(y) = k(x, y), and the mean of φ over a table is its one-way and two-way tables, each in units of its height.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import ClassVar

import numpy as np

from kmeanalyst.kernels.base import Array, as_rows
from kmeanalyst.kernels.features.cells import CellFeatures
from kmeanalyst.kernels.margins import Margins

_FEW_ROWS = 1000
KINDS = (
    "one-way",
    "one-way by target",
    "pairs",
    "pairs by target",
    "finer",
    "target",
)  # in the order of the kernel's shares


@dataclass(frozen=True, eq=False)
class MarginFeatures(CellFeatures):
    """One-way tables of all columns; of the others crossed with the target; two-way ones; those crossed; finer ones; the
    target's own once more.

    Groups in this order, those of share 0 left out. The cells of a table of several columns are in the order of an
    array with an axis for each: the target first where it is crossed with, then columns i < j. Pairs are in
    lexicographic order. Finer tables are crossed with the target if there is one.

    kernel   Margins.
    groups   the groups of tables that are measured; they follow from it.
    """

    kernel: Margins
    groups: tuple[Group, ...] = field(init=False, repr=False)
    name: ClassVar[str] = "margins"

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", tuple(_groups(self.kernel)))

    @cached_property
    def starts(self) -> Array:
        return np.concatenate([*(group.starts for group in self.groups), [self.groups[-1].stop]])

    @cached_property
    def heights(self) -> Array:
        return np.concatenate([np.full(len(group.tables), group.height) for group in self.groups])

    @property
    def norm_bound(self) -> float:
        """1: the squared heights of a group's tables add up to its share."""
        return 1.0

    def arrays(self) -> dict[str, Array]:
        """None: the kernel says it all."""
        return {}

    def gram(self, X: Array, Y: Array) -> Array:
        return self.kernel.gram(X, Y)

    def places(self, X: Array) -> Array:
        X = as_rows(X)
        cells = self.kernel.cells(X).T
        if self.kernel.shares[4]:
            cells = np.vstack([cells, self.kernel.fine_cells(X).T])
        places = np.empty((len(self.heights), len(X)), dtype=np.intp)
        first = 0
        for group in self.groups:
            group.find(cells, places[first : first + len(group.tables)])
            first += len(group.tables)
        return places


@dataclass(frozen=True)
class Group:
    """The tables of one kind: where their cells are among the features, and how high.

    kind      one of KINDS.
    height    of the coordinate of a row's cell: the root of the group's share over its number of tables.
    start     the first feature.
    tables    columns of each table, all of one length; finer cells count as columns after the table's own.
    sizes     cells of each column, the finer ones' after the others'.
    crossed   cells of the target, if it is the first column of each table; else 1.
    """

    kind: str
    height: float
    start: int
    tables: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...]
    crossed: int = 1

    @cached_property
    def _shapes(self) -> Array:
        """(tables, columns of a table)."""
        return np.array(self.sizes, dtype=np.intp)[self._tables]

    @cached_property
    def starts(self) -> Array:
        """(tables,) the first feature of each."""
        lengths = self._shapes.prod(axis=1)
        return self.start + np.cumsum(lengths) - lengths

    @property
    def stop(self) -> int:
        """One past the last feature."""
        return int(self.start + self._shapes.prod(axis=1).sum())

    def find(self, cells: Array, places: Array) -> None:
        """Write the feature of each row's cell in each table to places (tables, n), from cells (columns, n)."""
        if places.shape[1] < _FEW_ROWS:
            self._find_at_once(cells, places)
            return
        for own, start, table, shape in zip(places, self.starts, self.tables, self._shapes, strict=True):
            own[:] = cells[table[0]]
            for column, size in zip(table[1:], shape[1:], strict=True):
                own *= size
                own += cells[column]
            own += start

    def _find_at_once(self, cells: Array, places: Array) -> None:
        """The same for few rows of many tables, where a loop over tables would take longer than the sums."""
        tables = self._tables
        places[:] = cells[tables[:, 0]]
        for i in range(1, tables.shape[1]):
            places *= self._shapes[:, i, None]
            places += cells[tables[:, i]]
        places += self.starts[:, None]

    @cached_property
    def _tables(self) -> Array:
        """`tables` as an array (tables, columns of a table)."""
        return np.array(self.tables, dtype=np.intp)

    def by_target(self) -> Array:
        """(crossed, cells) features: a line for each cell of the target, the tables' other cells one after the other."""
        ends = [*self.starts[1:], self.stop]
        parts = [np.arange(a, b).reshape(self.crossed, -1) for a, b in zip(self.starts, ends, strict=True)]
        return np.concatenate(parts, axis=1)


def _groups(kernel: Margins) -> list[Group]:
    others, d = kernel.others, len(kernel.edges)
    pairs = tuple(combinations(others, 2))
    finer = tuple((d + i,) for i in range(len(kernel.finer)))
    alone = tuple((j,) for j in range(d))
    crossed = kernel.target >= 0
    kinds = (
        (alone, False), (tuple((j,) for j in others), True), (pairs, False), (pairs, True), (finer, crossed),
        (((kernel.target,),), False),
    )  # fmt: skip
    sizes = (*kernel.sizes, *kernel.fine_sizes)
    groups: list[Group] = []
    for kind, share, (tables, with_target) in zip(KINDS, kernel.shares, kinds, strict=True):
        if share > 0:
            height, start = float(np.sqrt(share / len(tables))), groups[-1].stop if groups else 0
            if with_target:
                tables = tuple((kernel.target, *table) for table in tables)
            groups.append(Group(kind, height, start, tables, sizes, sizes[kernel.target] if with_target else 1))
    return groups
