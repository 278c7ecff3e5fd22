"""The features of the margins kernel: one coordinate for each cell of each table, complete and exact.

φ(x)·φ(y) = k(x, y), and the mean of φ over a table is its one-way and two-way tables, each in units of its height.
Every coordinate is non-negative, so two rows are at most √2 apart, not 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import ClassVar

import numpy as np

from kmeanalyst.kernels.base import Array, as_rows
from kmeanalyst.kernels.embedding import row_blocks
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.margins import Margins


@dataclass(frozen=True, eq=False)
class MarginFeatures(FeatureMap):
    """One-way tables of all columns; of the others crossed with the target; two-way ones; those crossed with the target.

    Groups in this order, those of share 0 left out. In a crossed group the target's cell is the slowest index; pairs
    i < j are in lexicographic order, the cell of i slower than that of j.

    kernel   Margins.
    groups   the groups of tables that are measured; they follow from it.
    """

    kernel: Margins
    groups: tuple[Group, ...] = field(init=False, repr=False)
    name: ClassVar[str] = "margins"

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", tuple(_groups(self.kernel)))

    @property
    def dimension(self) -> int:
        return self.groups[-1].stop

    @property
    def norm_bound(self) -> float:
        """1: a row is in one cell of each table, and the squared heights of a group's tables add up to its share."""
        return 1.0

    @property
    def nonnegative(self) -> bool:
        return True

    def arrays(self) -> dict[str, Array]:
        """None: the kernel says it all."""
        return {}

    def __call__(self, X: Array) -> Array:
        cells = self.kernel.cells(as_rows(X))
        out = np.zeros((len(cells), self.dimension))
        rows = np.arange(len(cells))[:, None]
        for group in self.groups:
            out[rows, group.places(cells)] = group.height
        return out

    def mean(self, X: Array, weights: Array) -> Array:
        """Σ w_i φ(x_i) (F,), by counting: no feature is written down."""
        cells, total = self.kernel.cells(as_rows(X)), np.zeros(self.dimension)
        for block in row_blocks(len(cells), sum(len(group.tables) for group in self.groups)):
            for group in self.groups:
                places = group.places(cells[block]).ravel()
                counts = np.bincount(places - group.start, np.repeat(weights[block], len(group.tables)))
                total[group.start : group.start + len(counts)] += group.height * counts
        return total


@dataclass(frozen=True)
class Group:
    """The tables of one kind: where their cells are among the features, and how high.

    height     of the coordinate of a row's cell: the root of the group's share over its number of tables.
    start      the first feature; `length` features for each cell of the target (one, if not crossed).
    tables     columns of each table, one or two.
    sizes      cells of each column.
    target     the column that is crossed with, −1 for none.
    """

    height: float
    start: int
    length: int
    tables: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...]
    target: int

    @property
    def crossed(self) -> int:
        """How often the tables are repeated, once for each cell of the target."""
        return self.sizes[self.target] if self.target >= 0 else 1

    @property
    def stop(self) -> int:
        """One past the last feature."""
        return self.start + self.length * self.crossed

    @cached_property
    def _layout(self) -> tuple[Array, Array, Array]:
        """For each table its columns (tables, 1 or 2), their strides, and where its cells begin."""
        columns = np.array(self.tables, dtype=np.intp)
        sizes = np.array(self.sizes, dtype=np.intp)[columns]
        strides = np.ones_like(columns)
        strides[:, :-1] = sizes[:, 1:]
        lengths = sizes.prod(axis=1)
        return columns, strides, np.cumsum(lengths) - lengths

    def places(self, cells: Array) -> Array:
        """(n, tables) the feature of each row's cell in each table."""
        columns, strides, begins = self._layout
        at = self.start + begins + (cells[:, columns] * strides).sum(axis=2)
        return at + self.length * cells[:, [self.target]] if self.target >= 0 else at


def _groups(kernel: Margins) -> list[Group]:
    others, every = kernel.others, range(len(kernel.edges))
    pairs = tuple(combinations(others, 2))
    kinds = (
        (tuple((j,) for j in every), -1), (tuple((j,) for j in others), kernel.target),
        (pairs, -1), (pairs, kernel.target),
    )  # fmt: skip
    groups: list[Group] = []
    for share, (tables, target) in zip(kernel.shares, kinds, strict=True):
        if share > 0:
            length = sum(math.prod(kernel.sizes[j] for j in table) for table in tables)
            start = groups[-1].stop if groups else 0
            groups.append(Group(float(np.sqrt(share / len(tables))), start, length, tables, kernel.sizes, target))
    return groups
