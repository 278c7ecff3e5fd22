"""The kernel whose mean is a table's margins: how many cells two rows share, one column or two at a time; and its features.

The features φ have a coordinate for each cell of each table: their mean over a table is its tables, each in units of its height.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, combinations, groupby, islice, pairwise
from typing import Any, ClassVar

import numpy as np

from kmeanalyst.kernels.base import Array, as_rows, checked_pair, is_whole, slices
from kmeanalyst.kernels.cells import MOST_CELLS, Cells, check_increasing, is_finite
from kmeanalyst.kernels.continuous import UnitDiagonal
from kmeanalyst.kernels.features.base import CellFeatures

_MOST_IN_PAIRS = 1000  # columns whose pairs are all measured
_MOST_IN_CHOSEN = 10**9  # cells of all tables
_ROUNDING = 1e-9
_MOST_COUNTED = 10**6  # cells of all tables that a sum over pairs of rows is found by counting in
_BLOCK_ENTRIES = 2**20  # entries of the Gram matrix at a time


@dataclass(frozen=True)
class Margins(Cells, UnitDiagonal):
    """A mean of matches: in one column, two columns, one in finer ranges.

    With n the number of columns (of d) whose cells agree, and n″ that of the d″ columns with finer ranges whose finer cells agree,
    k = s₁ n/d + s₂ C(n, 2)/C(d, 2) + s₃ n″/d″.

    edges, atoms, missing   the cells of each column: see `Cells`.
    shares   (s₁, s₂, s₃), at least 0, of sum 1.
    fine     for each column the inner edges of its finer ranges; none for a column that has no finer table. Atoms and
             missing cells are cells of its finer table too.
    deeper   further finer tables, of columns that have one: (column, inner edges), which are those of the column's table
             before it and more.

    >>> kernel = ka.kernels.Margins(((0.0,), (0.5,)), ((), ()), (True, True), (1.0, 0, 0))
    >>> kernel.gram([[1.0, 0]], [[2.0, 0], [2.0, 1], [-1.0, 1]])
    array([[1. , 0.5, 0. ]])
    >>> kernel.sizes, kernel.n_tables, kernel.n_cells
    ((3, 3), 2, 6)
    >>> kernel.n_pairs, kernel.pairs, kernel.counted, kernel.squared_heights
    (1, ((0, 1),), (), ((0.5, 0.5), (), ()))
    >>> kernel.finer, kernel.fine_sizes, kernel.finer_tables, kernel.finer_sets, kernel.columns, kernel.named((1,))
    ((), (), (), (), (0, 1), (1,))
    >>> kernel.coarser(1), kernel.is_within(1)
    (array([0, 1, 2]), True)
    """

    shares: tuple[float, float, float]
    fine: tuple[tuple[float, ...], ...] = ()
    deeper: tuple[tuple[int, tuple[float, ...]], ...] = field(default=(), kw_only=True)
    name: ClassVar[str] = "margins"

    def __post_init__(self) -> None:
        d = len(self.edges)
        if self.fine == ():
            object.__setattr__(self, "fine", ((),) * d)
        if not (isinstance(self.fine, tuple) and len(self.fine) == d):
            raise ValueError("fine must have an entry for each column if it is given. Pass () for those without finer ranges.")
        super().__post_init__()
        for values in self.fine:
            check_increasing(values)
        self._check_deeper()
        if (cells := sum(self.sizes) + sum(self.fine_sizes)) > MOST_CELLS:
            raise ValueError(f"margins have at most {MOST_CELLS} cells in all columns, got {cells}.")
        self._check_shares()
        if self.n_pairs > _MOST_IN_PAIRS * (_MOST_IN_PAIRS - 1) // 2 and self.shares[1]:
            raise ValueError(f"margins of two columns are for at most {_MOST_IN_PAIRS} columns, got {d}.")

    def _check_deeper(self) -> None:
        if not (isinstance(self.deeper, tuple) and all(isinstance(one, tuple) and len(one) == 2 for one in self.deeper)):
            raise ValueError(f"deeper must be pairs of a column and edges, got {self.deeper!r:.80}. Write (0, (0.5,)).")
        last = dict(enumerate(self.fine))
        for j, edges in self.deeper:
            if not is_whole(j) or not 0 <= j < len(self.edges) or not isinstance(edges, tuple):
                raise ValueError(f"deeper names no column by {j!r:.80}. Pass its number.")
            check_increasing(edges)
            if not last[j] or not set(last[j]) < set(edges):
                raise ValueError(
                    f"deeper edges of column {j} must be those of its table before and more. Add the edges that are left out."
                )
            last[j] = edges

    def _check_shares(self) -> None:
        if len(self.shares) != 3 or not all(is_finite(share) and share >= 0 for share in self.shares):
            raise ValueError(f"shares must be three numbers of at least 0, got {self.shares!r}.")
        if abs(sum(self.shares) - 1) > _ROUNDING:
            raise ValueError(f"shares must add up to 1, got {sum(self.shares)!r}: they are parts of k(x, x).")
        _, pairs, finely = self.shares
        if not self.n_pairs and pairs:
            raise ValueError("margins of two columns need two columns. Give their share 0.")
        if not self.finer and finely:
            raise ValueError("no column has finer ranges. Give the third share 0.")

    @property
    def fine_sizes(self) -> tuple[int, ...]:
        """Number of cells of each finer table."""
        return tuple(len(edges) + 1 + len(self.atoms[j]) + self.missing[j] for j, edges in self.finer_tables)

    @property
    def n_cells(self) -> int:
        sizes = (*self.sizes, *self.fine_sizes)
        finely = sum(math.prod(sizes[j] for j in own) for own in self.finer_sets)
        cells = (sum(self.sizes), self._cells_of_pairs(), finely)
        return sum(n for n, share in zip(cells, self.shares, strict=True) if share)

    def _cells_of_pairs(self) -> int:
        return (sum(self.sizes) ** 2 - sum(size**2 for size in self.sizes)) // 2

    @property
    def n_tables(self) -> int:
        return sum(n for n, share in zip(self._counts(), self.shares, strict=True) if share)

    def _counts(self) -> tuple[int, ...]:
        return len(self.edges), self.n_pairs, len(self.finer_sets)

    @property
    def n_pairs(self) -> int:
        """Number of pairs of columns whose tables are measured; of chosen ones with larger sets."""
        return math.comb(len(self.edges), 2)

    @property
    def pairs(self) -> tuple[tuple[int, ...], ...]:
        return tuple(combinations(range(len(self.edges)), 2))

    @property
    def counted(self) -> tuple[tuple[int, ...], ...]:
        """The sets of two columns and more that are counted together, in whatever cells, each once."""
        return self.pairs if self.shares[1] else ()

    @property
    def squared_heights(self) -> tuple[tuple[float, ...], ...]:
        """For each share the squared heights of its tables: even parts of it."""
        counts = zip(self.shares, self._counts(), strict=True)
        return tuple((share / max(n, 1),) * n if share else () for share, n in counts)

    @property
    def finer(self) -> tuple[int, ...]:
        """The column of each finer table: one with deeper tables is there several times."""
        return tuple(j for j, _ in self.finer_tables)

    @property
    def finer_sets(self) -> tuple[tuple[int, ...], ...]:
        """The numbers of each table of the third share: of one finer table; of chosen ones also those that are crossed."""
        return tuple((len(self.edges) + i,) for i in range(len(self.finer)))

    @cached_property
    def columns(self) -> tuple[int, ...]:
        """Of each number in a table's set its column: the finer tables' are after the d columns'."""
        return (*range(len(self.edges)), *self.finer)

    def named(self, table: Sequence[int]) -> tuple[int, ...]:
        """The columns of a table, in its order."""
        return tuple(self.columns[j] for j in table)

    def is_within(self, number: int) -> bool:
        """Whether the cells of a number in a table's set lie within the column's own: all edges of these are among theirs."""
        j, d = self.columns[number], len(self.edges)
        return number < d or {*self.edges[j]} <= {*self.finer_tables[number - d][1]}

    def coarser(self, number: int) -> Array:
        """(cells,) the column's own cell that holds each cell of a number in a table's set."""
        j, d = self.columns[number], len(self.edges)
        if number < d:
            return np.arange(self.sizes[j])
        inside = np.searchsorted(self.edges[j], [-math.inf, *self.finer_tables[number - d][1]], side="right")
        return np.append(inside, np.arange(len(self.edges[j]) + 1, self.sizes[j]))

    @property
    def finer_tables(self) -> tuple[tuple[int, tuple[float, ...]], ...]:
        """Column and inner edges of each finer table: those of `fine`, then the deeper ones."""
        return (*((j, edges) for j, edges in enumerate(self.fine) if edges), *self.deeper)

    def fine_cells(self, X: Array) -> Array:
        """The cell (n, d″) of each finer table, numbered likewise.

        >>> kernel = ka.kernels.Margins(((0.0,),), ((),), (False,), (0.5, 0, 0.5), fine=((-1.0, 0.0, 1.0),))
        >>> kernel.fine_cells(np.array([[0.5], [7.0]]))
        array([[2],
               [3]])
        """
        return self._cells_in(X, self._finer_edges)

    @cached_property
    def _finer_edges(self) -> list[tuple[int, Array]]:
        return [(j, np.array(edges)) for j, edges in self.finer_tables]

    def to_dict(self) -> dict[str, Any]:
        """As other kernels; `deeper` is there where there are such tables."""
        written = super().to_dict()
        return written if self.deeper else {key: value for key, value in written.items() if key != "deeper"}

    def mean_product(self, X: Array, u: Array, Y: Array, v: Array) -> float | None:
        if self.n_cells > max(_MOST_COUNTED, len(X) * len(Y)):
            return None
        features = MarginFeatures(self)
        return float(features.mean(X, u) @ features.mean(Y, v))

    def gram(self, X: Array, Y: Array) -> Array:
        X, Y = checked_pair(X, Y)
        x, y = (np.hstack([self.cells(rows), self.fine_cells(rows)]).astype(np.int32) for rows in (X, Y))
        K = np.empty((len(X), len(Y)))
        for block in slices(len(X), _BLOCK_ENTRIES // max(1, len(Y))):
            K[block] = self._block(x[block], y)
        return K

    def _block(self, x: Array, y: Array) -> Array:
        """The kernel of rows in these cells (n, ·) and (m, ·), finer ones after the others."""
        d = len(self.edges)
        matches = _matches(x, y, range(d))
        alone, pairs, finely = self.shares
        K = matches * (alone / d) + matches * (matches - 1) * (pairs / max(d * (d - 1), 1))
        return K + _matches(x, y, range(d, x.shape[1])) * (finely / len(self.finer)) if finely else K


@dataclass(frozen=True)
class ChosenMargins(Margins):
    """Margins of chosen sets of columns, with a height for each table: k = Σ_t h_t² (whether the cells of table t agree).

    chosen    the pairs (i, j), i < j, and after them larger sets, whose tables are measured.
    crossed   sets of two or more columns whose tables have finer cells: d + i in place of a column is its finer table i.
    squares   for each of the three shares the squared heights h_t² of its tables, of the third the finer ones and then those
              that are crossed: they are positive, and their sum is the share.

    >>> alone, together = (0.25, 0.15), (0.6,)
    >>> kernel = ka.kernels.ChosenMargins(
    ...     ((0.0,), (0.5,)), ((), ()), (True, True), (0.4, 0.6, 0),
    ...     chosen=((0, 1),), squares=(alone, together, ()),
    ... )
    >>> kernel.gram([[1.0, 0]], [[2.0, 0], [2.0, 1], [-1.0, 1]])
    array([[1.  , 0.25, 0.  ]])
    >>> kernel.pairs, kernel.counted, kernel.n_pairs, kernel.n_tables
    (((0, 1),), ((0, 1),), 1, 3)
    """

    chosen: tuple[tuple[int, ...], ...] = ()
    squares: tuple[tuple[float, ...], ...] = ()
    crossed: tuple[tuple[int, ...], ...] = field(default=(), kw_only=True)
    name: ClassVar[str] = "chosen-margins"

    def __post_init__(self) -> None:
        for given in (self.chosen, self.crossed):
            for each in given if isinstance(given, tuple) else [None]:
                if not (isinstance(each, tuple) and len(each) >= 2 and all(map(is_whole, each))):
                    raise ValueError(
                        f"chosen must be sets of two or more columns' numbers, got {given!r:.80}. Pass e.g. ((0, 1),)."
                    )
        super().__post_init__()
        d, sets = len(self.edges), (*self.chosen, *self.crossed)
        known = all(0 <= min(own) <= max(own) < (len(self.columns) if own in self.crossed else d) for own in sets)
        increasing = known and all(list(own) == sorted({*own}) for own in map(self.named, sets))
        orders = [list(map(len, own)) for own in (self.chosen, self.crossed)]
        different = len({*sets}) == len(sets) and all(max(own) >= d for own in self.crossed)
        if not (increasing and different and orders == list(map(sorted, orders))):
            raise ValueError(
                "chosen and crossed must be different sets i < j < … of columns, those of fewest columns first. Order them so."
            )
        if not all(map(self.is_within, {*chain(*self.crossed)})):
            raise ValueError("a finer table that is crossed must have all edges of its column. Add those that are left out.")
        if self.n_cells > _MOST_IN_CHOSEN:
            raise ValueError(f"margins of chosen sets have at most {_MOST_IN_CHOSEN} cells, got {self.n_cells}.")
        self._check_squares()

    def _check_squares(self) -> None:
        counts = [n if share else 0 for n, share in zip(self._counts(), self.shares, strict=True)]
        given = self.squares
        if not (isinstance(given, tuple) and all(isinstance(each, tuple) for each in given)):
            raise ValueError(f"squares must be a tuple for each of the three shares, got {given!r:.80}.")
        if [len(each) for each in given] != counts:
            raise ValueError(f"squares must hold a number for each table: {counts}, got {[len(each) for each in given]}.")
        if not all(is_finite(square) and square > 0 for each in given for square in each):
            raise ValueError("squares must be positive numbers: they are squared heights. Leave tables of height 0 out.")
        for share, each in zip(self.shares, given, strict=True):
            if abs(sum(each) - share) > _ROUNDING:
                raise ValueError(f"the squares of a share must add up to it, got {sum(each)!r} for {share!r}.")

    @property
    def n_pairs(self) -> int:
        return len(self.chosen)

    @property
    def pairs(self) -> tuple[tuple[int, ...], ...]:
        return self.chosen

    @property
    def squared_heights(self) -> tuple[tuple[float, ...], ...]:
        return self.squares

    @property
    def counted(self) -> tuple[tuple[int, ...], ...]:
        found = dict.fromkeys((*self.chosen, *map(self.named, self.crossed)))
        return tuple(sorted(found, key=len))

    @property
    def finer_sets(self) -> tuple[tuple[int, ...], ...]:
        return (*super().finer_sets, *self.crossed)

    def _cells_of_pairs(self) -> int:
        return sum(math.prod(self.sizes[j] for j in each) for each in self.chosen)

    def to_dict(self) -> dict[str, Any]:
        written = super().to_dict()
        return written if self.crossed else {key: value for key, value in written.items() if key != "crossed"}

    def _block(self, x: Array, y: Array) -> Array:
        kinds = [(j,) for j in range(len(self.edges))], self.chosen, self.finer_sets
        K = np.zeros((len(x), len(y)))
        for tables, squares in zip(kinds, self.squares, strict=True):
            for table, square in zip(tables, squares, strict=False):  # none of a share of 0
                same = np.ones(K.shape, dtype=bool)
                for j in table:
                    same &= x[:, j, None] == y[None, :, j]
                K += square * same
        return K


def _matches(x: Array, y: Array, columns: Sequence[int]) -> Array:
    """In how many of the columns the cells of rows of x (n, ·) and y (m, ·) agree, (n, m) float64."""
    count = np.zeros((len(x), len(y)), dtype=np.uint8 if len(columns) < 256 else np.uint16)  # the cost is memory
    for j in columns:
        count += x[:, j, None] == y[None, :, j]
    return count.astype(np.float64)


KINDS = ("one-way", "pairs", "finer")  # the order of `shares`


@dataclass(frozen=True, eq=False)
class MarginFeatures(CellFeatures):
    """One-way tables of all columns; two-way ones; finer ones.

    Groups in this order, those of share 0 left out; tables of larger chosen sets are groups after the two-way ones, one for each
    number of columns. Cells of a table are in the order of an array with an axis for each column i < j < …. Pairs and sets are in
    the order of the kernel.
    """

    kernel: Margins
    groups: tuple[Group, ...] = field(init=False, repr=False)
    name: ClassVar[str] = "margins"

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", tuple(_groups(self.kernel)))

    @property
    def sets(self) -> tuple[tuple[int, ...], ...]:
        """The pairs and larger sets of columns that have tables."""
        return self.kernel.counted

    @cached_property
    def starts(self) -> Array:
        return np.concatenate([*(group.starts for group in self.groups), [self.groups[-1].stop]])

    @cached_property
    def heights(self) -> Array:
        return np.sqrt(np.concatenate([group.squares for group in self.groups]))

    @property
    def norm_bound(self) -> float:
        """1: the squared heights of a group's tables add up to its share."""
        return 1.0

    def gram(self, X: Array, Y: Array) -> Array:
        return self.kernel.gram(X, Y)

    def cell_indices(self, X: Array) -> Array:
        X = as_rows(X)
        narrow = np.int32 if self.dimension < 2**31 else np.intp  # half the memory is half the time
        finer = self.kernel._finer_edges if self.kernel.shares[2] else []
        cells = self.kernel._cells_in(X, [*self.kernel._edges, *finer]).T.astype(narrow)
        indices = np.empty((len(self.heights), len(X)), dtype=narrow)
        ends = np.cumsum([len(group.tables) for group in self.groups])
        for group, end in zip(self.groups, ends, strict=True):
            group.find(cells, indices[end - len(group.tables) : end])
        return indices


@dataclass(frozen=True)
class Group:
    """The tables of one kind: the indices of their cells among the features, and their heights.

    kind      one of KINDS; of larger sets than pairs "sets".
    squares   of each table the squared height of the coordinate of a row's cell: their sum is the group's share.
    start     the first feature.
    tables    columns of each table, all of one length; finer cells count as columns after the table's own.
    sizes     cells of each column, the finer ones' after the others'.
    """

    kind: str
    squares: tuple[float, ...]
    start: int
    tables: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...]

    @property
    def is_of_sets(self) -> bool:
        return self.kind in ("pairs", "sets")

    @property
    def height(self) -> float:
        assert len(set(self.squares)) == 1
        return math.sqrt(self.squares[0])

    @cached_property
    def _shapes(self) -> Array:
        return np.array(self.sizes, dtype=np.intp)[np.array(self.tables, dtype=np.intp)]

    @cached_property
    def starts(self) -> Array:
        """(tables,) the first feature of each."""
        lengths = self._shapes.prod(axis=1)
        return self.start + np.cumsum(lengths) - lengths

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The first feature of each table, and one past its last."""
        return list(pairwise([*map(int, self.starts), self.stop]))

    @property
    def stop(self) -> int:
        return int(self.start + self._shapes.prod(axis=1).sum())

    def find(self, cells: Array, indices: Array) -> None:
        """Write the feature of each row's cell in each table to `indices` (tables, n), from cells (columns, n)."""
        for run, leading, last in self._runs:
            shared = np.zeros(cells.shape[1], dtype=indices.dtype)
            for column in leading:
                shared *= self.sizes[column]
                shared += cells[column]
            own = indices[run]
            np.multiply(shared, self._shapes[run, -1:].astype(indices.dtype), out=own)
            own += cells[last]
            own += self.starts[run, None].astype(indices.dtype)

    @cached_property
    def _runs(self) -> list[tuple[slice, tuple[int, ...], Any]]:
        """Tables next to each other that differ in their last column alone: which, their other columns, and the last ones."""
        runs, first = list[tuple[slice, tuple[int, ...], Any]](), 0
        for leading, tables in groupby(self.tables, key=lambda table: table[:-1]):
            last = [table[-1] for table in tables]
            span = slice(last[0], last[0] + len(last))
            in_a_row = last == list(range(span.start, span.stop))
            runs.append((slice(first, first := first + len(last)), leading, span if in_a_row else last))
        return runs


def _groups(kernel: Margins) -> list[Group]:
    kinds: tuple[Sequence[tuple[int, ...]], ...] = [(j,) for j in range(len(kernel.edges))], kernel.pairs, kernel.finer_sets
    sizes = (*kernel.sizes, *kernel.fine_sizes)
    groups: list[Group] = []
    for kind, squares, tables in zip(KINDS, kernel.squared_heights, kinds, strict=True):
        heights = iter(squares)
        for order, alike in groupby(tables if squares else (), key=len):
            own = tuple(alike)
            start = groups[-1].stop if groups else 0
            groups.append(
                Group("sets" if kind == "pairs" and order > 2 else kind, tuple(islice(heights, len(own))), start, own, sizes)
            )
    return groups
