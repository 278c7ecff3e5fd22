"""All one-way and two-way tables of some rows, and those crossed with a group, as one vector of counts; scores of two vectors.

A column's cells are its levels, the ranges between its declared edges, its atoms and its missing cell; a text has none, and is left
out. Counts of pieces of a table add up to those of the table. The scores are those of NIST's SDNist report: they compare shares
of cells, so that a score of 1000 says that all these tables agree, and says nothing about what three columns do together.

Source   Task, Bhagat & Howarth 2023, SDNist v2: Deidentified Data Report Tool (k-marginal and its groups).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import Margins
from kmeanalyst.releases.domain.cell_names import cell_names
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import one_way_kernel

_MOST_CELLS = 10**7  # cells of all pairs, and again of all pairs crossed with the group: 80 MB for a vector of each
_MOST_PAIRS = 20_000  # all pairs of 200 columns
_ORDER_OF_PAIRS = 27  # seed of the order in which pairs are taken where not all can be counted
_BLOCK_ROWS = 2**17  # rows whose codes are in memory at a time


@dataclass(frozen=True, eq=False)
class ScoreTables:
    """Which tables a score compares, and where each is in a vector of their cells.

    domain   of the rows. Its texts have no cells, and `columns` lists the others by their index in the domain.
    group    index in the domain of the column that pairs of the others are crossed with; None for none.

    The vector has the one-way tables of `columns`, then the tables of `pairs`, then those of `crossed`, all in C order, with
    the group first in the last ones. `starts` has the start of each, and the length of the vector at its end. With more than
    20,000 pairs, or 10⁷ cells of pairs or of crossed pairs, as many as fit are taken in an order that a fixed seed shuffles:
    `notes` says so.

    >>> two = Domain((ka.Boolean(name="a"), ka.Boolean(name="b"), ka.Boolean(name="c")))
    >>> tables = ScoreTables(two, group=2)
    >>> tables.pairs, tables.crossed, tables.starts
    (((0, 1), (0, 2), (1, 2)), ((0, 1),), array([ 0,  2,  4,  6, 10, 14, 18, 26]))
    >>> tables.counts(np.array([[0.0, 1, 1], [1, 1, 1]]))[6:10]
    array([0, 1, 0, 1])
    """

    domain: Domain
    group: int | None = None

    def __post_init__(self) -> None:
        if self.group is not None and (column := self.domain.columns[self.group]).is_text:
            raise ValueError(
                f"column {column.name} holds texts, which have no cells, so that it divides no rows into groups. Name a "
                "column of levels or of numbers as the group."
            )

    @cached_property
    def columns(self) -> tuple[int, ...]:
        """The columns that have cells, by their index in the domain."""
        return tuple(j for j, column in enumerate(self.domain.columns) if not column.is_text)

    @cached_property
    def _margins(self) -> Margins:
        kernel = one_way_kernel(self.domain, self.columns, ranged=True).kernel
        assert isinstance(kernel, Margins)
        return kernel

    @cached_property
    def sizes(self) -> dict[int, int]:
        """Column → its number of cells."""
        return dict(zip(self.columns, self._margins.sizes, strict=True)) if self.columns else {}

    @cached_property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Pairs (i, j), i < j, whose tables are counted: all of `columns` where their cells are few enough."""
        return self._few_enough(list(combinations(self.columns, 2)), 1)

    @cached_property
    def crossed(self) -> tuple[tuple[int, int], ...]:
        """Those of the pairs without the group that are counted in each group too."""
        return () if self.group is None else self._few_enough(self._without_group, self.sizes[self.group])

    @property
    def _without_group(self) -> list[tuple[int, int]]:
        return [pair for pair in self.pairs if self.group not in pair]

    def _few_enough(self, pairs: list[tuple[int, int]], groups: int) -> tuple[tuple[int, int], ...]:
        """At most _MOST_PAIRS with at most _MOST_CELLS cells together, in the order given."""
        cells = np.array([self.sizes[i] * self.sizes[j] * groups for i, j in pairs], dtype=np.int64)
        if cells.sum() <= _MOST_CELLS and len(pairs) <= _MOST_PAIRS:
            return tuple(pairs)
        kept, left = np.zeros(len(pairs), dtype=bool), _MOST_CELLS
        for k in np.random.default_rng(_ORDER_OF_PAIRS).permutation(len(pairs)):
            kept[k] = cells[k] <= left and kept.sum() < _MOST_PAIRS
            left -= int(cells[k]) * bool(kept[k])
        return tuple(pair for pair, keep in zip(pairs, kept, strict=True) if keep)

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shape of each table, in the order of the vector."""
        sizes = self.sizes
        groups = () if self.group is None else (sizes[self.group],)
        ones, twos = [(sizes[j],) for j in self.columns], [(sizes[i], sizes[j]) for i, j in self.pairs]
        return (*ones, *twos, *((*groups, sizes[i], sizes[j]) for i, j in self.crossed))

    @cached_property
    def starts(self) -> Array:
        """(tables + 1,) where each table starts, and the length of the vector."""
        return np.concatenate([[0], np.cumsum([int(np.prod(shape)) for shape in self.shapes])]).astype(np.int64)

    @property
    def one_way(self) -> slice:
        """The indices of the tables of single columns."""
        return slice(0, len(self.columns))

    @property
    def two_way(self) -> slice:
        """The indices of the tables of pairs."""
        return slice(len(self.columns), len(self.columns) + len(self.pairs))

    @property
    def compared(self) -> slice:
        """The indices of the tables that `k_marginal` compares: those of pairs, crossed with the group if there is one."""
        return self.two_way if self.group is None else slice(self.two_way.stop, len(self.shapes))

    def table(self, vector: Array, index: int) -> Array:
        """One table of the vector, in its shape."""
        return vector[self.starts[index] : self.starts[index + 1]].reshape(self.shapes[index])

    @property
    def notes(self) -> list[str]:
        """What is left out of the scores, from the domain alone."""
        notes = []
        if len(self.columns) < len(self.domain):
            texts = ", ".join(column.name for column in self.domain.columns if column.is_text)
            notes.append(f"columns of texts have no cells and are left out of these scores: {texts}")
        every = len(self.columns) * (len(self.columns) - 1) // 2
        if len(self.pairs) < every:
            notes.append(
                f"{len(self.pairs)} of {every} pairs of columns are compared, taken in a fixed random order: all of them are "
                f"more than {_MOST_PAIRS:,} or have more than {_MOST_CELLS:,} cells"
            )
        if self.group is not None and len(self.crossed) < len(self._without_group):
            notes.append(
                f"{len(self.crossed)} of {len(self._without_group)} pairs are compared within the groups, taken in a fixed "
                f"random order: all of them have more than {_MOST_CELLS:,} cells there"
            )
        return notes

    def cells(self, X: Array) -> Array:
        """The cell (n, columns) of each value of encoded rows (n, width), columns of texts left out."""
        return self._margins.cells(X[:, list(self.columns)]) if self.columns else np.zeros((len(X), 0), dtype=np.intp)

    def counts(self, X: Array, weights: Array | None = None) -> Array:
        """The vector of counts of encoded rows (n, width): int64, or sums (float64) of their weights (n,)."""
        total = np.zeros(self.starts[-1], dtype=np.int64 if weights is None else np.float64)
        for start in range(0, len(X), _BLOCK_ROWS):
            block = slice(start, start + _BLOCK_ROWS)
            codes = dict(zip(self.columns, np.ascontiguousarray(self.cells(X[block]).T), strict=True))
            for index, table in enumerate(self._tables(codes, None if weights is None else weights[block])):
                total[self.starts[index] : self.starts[index + 1]] += table
        return total

    def _tables(self, codes: dict[int, Array], weights: Array | None) -> Iterator[Array]:
        ones, twos = [(j,) for j in self.columns], [*self.pairs]
        in_groups = [] if self.group is None else [(self.group, *pair) for pair in self.crossed]
        for columns, shape in zip([*ones, *twos, *in_groups], self.shapes, strict=True):
            cells = np.ravel_multi_index([codes[j] for j in columns], shape)
            yield np.bincount(cells, weights, minlength=math.prod(shape))


def shares_of(tables: ScoreTables, counts: Array) -> Array:
    """Counts as shares of their sum in each table; zeros where there are no rows."""
    total = float(counts[: tables.starts[1]].sum()) if len(tables.columns) else 0.0
    return counts / total if total else np.zeros(len(counts))


def total_variations(tables: ScoreTables, p: Array, q: Array) -> Array:
    """(tables,) ½Σ|p − q| of each table; p and q are vectors of shares."""
    return np.add.reduceat(np.abs(p - q), tables.starts[:-1]) / 2 if len(tables.starts) > 1 else np.zeros(0)


def k_marginal(tables: ScoreTables, p: Array, q: Array) -> float | None:
    """1000·(1 − mean TV) over pairs of columns crossed with the group, or over pairs if there is none; None without a pair.

    It is 500·(2 − mean Σ|p − q|), SDNist's overall score. Groups count by their size.
    """
    tv = total_variations(tables, p, q)[tables.compared]
    return 500 * (2 - float(np.mean(2 * tv))) if len(tv) else None


def group_scores(tables: ScoreTables, p: Array, q: Array) -> dict[int, float]:
    """Cell of the group → 1000·(1 − mean over pairs of min(Σ_{cells of the group}|p − q| / p_g, 1)), for groups with p_g > 0.

    p is of the table and q of the release. They are not on the scale of `k_marginal`: the distance is not halved, as the whole
    of a group can be missing, and is at most the group's share.
    Source   SDNist 2.x, metrics/kmarginal.py, KMarginal._compute_score_grouped.
    """
    if tables.group is None or not tables.crossed:
        return {}
    share = tables.table(p, tables.columns.index(tables.group))
    kept = np.flatnonzero(share > 0)
    total = np.zeros(len(kept))
    for index in range(tables.compared.start, tables.compared.stop):
        difference = np.abs(tables.table(p, index) - tables.table(q, index)).sum(axis=(1, 2))
        total += np.minimum(difference[kept] / share[kept], 1)
    return dict(zip(kept.tolist(), (1000 * (1 - total / len(tables.crossed))).tolist(), strict=True))


def names_of_cells(domain: Domain, column: int) -> list[str]:
    """What each cell of a column is, in the order of its table: levels or nodes, ranges, atoms, "missing"."""
    kernel, chosen = one_way_kernel(domain, (column,), ranged=True).kernel, domain.columns[column]
    assert isinstance(kernel, Margins)
    return [*cell_names(chosen, kernel.edges[0], kernel.atoms[0]), *["missing"] * chosen.missing]
