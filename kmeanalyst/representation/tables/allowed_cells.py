"""Which cells of several columns go together under the rules of a table.

Each rule has a table of true and false over the cells of its columns: whether a combination of cells has a row that keeps the
rule. What one rule excludes is taken out of the tables of all others that share columns with it, so that a look at single rules
hardly ever leads to a row that cannot be completed. Columns are numbered as in `TableEstimates`, without the target; the
target is the last one, of one cell where there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import Margins
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.rules.compiled import rules_of

Columns = tuple[int, ...]
_ROUNDS = 20  # of taking what one rule excludes out of the others
_MOST_STEPS = 10**9  # of looking for pairs of columns that rules tie by way of a third


def allowed_cells(domain: Domain, kernel: Margins) -> AllowedCells | None:
    """The cells of this kernel that the rules of a domain allow together; None without rules."""
    return _allowed(domain, kernel.edges, kernel.atoms, kernel.missing, kernel.target) if domain.rules else None


@lru_cache(maxsize=8)
def _allowed(domain: Domain, edges: Any, atoms: Any, missing: Any, target: int) -> AllowedCells:
    kernel, rules = Margins(edges, atoms, missing, (1.0, 0, 0, 0, 0, 0), target), rules_of(domain)
    return AllowedCells.of(((own, rules.cells_allowed(kernel, i)) for i, own in enumerate(rules.columns)), kernel)


@dataclass(frozen=True, eq=False)
class AllowedCells:
    """Tables of true and false over the cells of a few columns each; a row of cells is allowed if all of them are true of it.

    sizes    number of cells of each column, the target's last.
    tables   columns, increasing, and the table over their cells, an axis for each: those of rules, then those that follow.
    n_rules  how many of the tables are those of rules: a row that is allowed by them is allowed.
    order    the columns' numbers in the domain, the target's last; -1 where there is none.
    """

    sizes: tuple[int, ...]
    tables: tuple[tuple[Columns, Array], ...]
    n_rules: int
    order: Columns
    _projected: dict[tuple[int, Columns], Array] = field(default_factory=dict, repr=False)
    _together: dict[Columns, Array] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, tables: Iterable[tuple[Columns, Array]], kernel: Margins) -> AllowedCells:
        """From tables over the cells of this kernel, whose columns are those of the domain."""
        place = {j: n for n, j in enumerate(kernel.others)} | {kernel.target: len(kernel.others)}
        sizes = (*(kernel.sizes[j] for j in kernel.others), kernel.sizes[kernel.target] if kernel.target >= 0 else 1)
        found: dict[Columns, Array] = {}
        for columns, table in tables:
            places = [place[j] for j in columns]
            order = np.argsort(places)
            key, own = tuple(sorted(places)), np.array(table, dtype=bool).transpose(tuple(order.tolist()))
            found[key] = found[key] & own if key in found else own
        known = _with_pairs(_consistent(found))
        return cls(sizes, tuple(known.items()), len(found), (*kernel.others, kernel.target))

    @property
    def columns(self) -> list[int]:
        """The columns other than the target that some rule names."""
        return sorted({j for columns, _ in self.tables for j in columns} - {len(self.sizes) - 1})

    @property
    def tied(self) -> Columns:
        """The columns that some rule names, the target too, by their numbers in the domain."""
        named = sorted({j for columns, _ in self.tables for j in columns})
        return tuple(self.order[j] for j in named if self.order[j] >= 0)

    def arranged(self, cells: Array) -> Array:
        """(n, columns and target) cells in this order, from those of the domain's columns (n, d)."""
        found = cells[:, list(self.order)]
        found[:, -1] *= self.order[-1] >= 0
        return found

    @property
    def any_left(self) -> bool:
        """Whether something is allowed, as far as looks at pairs of rules tell."""
        return all(table.any() for _, table in self.tables)

    def keeps(self, cells: Array) -> Array:
        """(n,) whether rows of cells (n, columns and target) are allowed."""
        found = np.ones(len(cells), dtype=bool)
        for columns, table in self.tables[: self.n_rules]:
            found &= table[tuple(cells[:, list(columns)].T)]
        return found

    def values(self, cells: Array, j: int, known: frozenset[int] | None = None) -> Array:
        """(n, cells of column j) which of them go with the row's cells in the known columns: by default all others."""
        found = np.ones((len(cells), self.sizes[j]), dtype=bool)
        for t, (columns, _) in enumerate(self.tables[: self.n_rules] if known is None else self.tables):
            if j in columns:
                seen = tuple(k for k in columns if k != j and (known is None or k in known))
                found &= self._table(t, (*seen, j))[tuple(cells[:, list(seen)].T)]
        return found

    def widened(self, cells: Array, changed: Array) -> Array:
        """(n, columns and target) the columns that are changed, and those of every rule that the rows of cells break."""
        found = changed.copy()
        for columns, table in self.tables[: self.n_rules]:
            broken = ~table[tuple(cells[:, list(columns)].T)]
            found[np.ix_(broken, list(columns))] = True
        return found

    def together(self, *columns: int) -> Array:
        """(Y, cells of each column) which cells of the target and these columns a rule allows together."""
        if columns not in self._together:
            self._together[columns] = self._found_together(columns)
        return self._together[columns]

    def _found_together(self, columns: Columns) -> Array:
        whole = (len(self.sizes) - 1, *columns)
        found = np.ones([self.sizes[j] for j in whole], dtype=bool)
        for t, (own, _) in enumerate(self.tables):
            if shared := tuple(j for j in whole if j in own):
                shape = [self.sizes[j] if j in shared else 1 for j in whole]
                found &= self._table(t, shared).reshape(shape)
        return found

    def _table(self, t: int, axes: Columns) -> Array:
        """The table of a rule over some of its columns, in this order: whether any cells of the others go with them."""
        if (t, axes) not in self._projected:
            columns, table = self.tables[t]
            left_out = tuple(a for a, j in enumerate(columns) if j not in axes)
            kept = [j for j in columns if j in axes]
            self._projected[t, axes] = np.ascontiguousarray(
                np.asarray(table.any(axis=left_out)).transpose([kept.index(j) for j in axes])
            )
        return self._projected[t, axes]

    def some_row(self, fixed: Sequence[tuple[int, int]] = ()) -> Array | None:
        """An allowed row of cells with these cells in these columns, found by trying one after the other; None without one."""
        row, known = np.zeros((1, len(self.sizes)), dtype=np.intp), frozenset(j for j, _ in fixed)
        for j, cell in fixed:
            row[0, j] = cell
        order = [j for j in (*self.columns, len(self.sizes) - 1) if j not in known]
        return row[0] if self._complete(row, order, known) else None

    def _complete(self, row: Array, order: list[int], known: frozenset[int]) -> bool:
        if not order:
            return bool(self.keeps(row)[0])
        may = {j: self.values(row, j, known)[0] for j in order}
        j = min(order, key=lambda k: int(may[k].sum()))
        left = [k for k in order if k != j]
        for cell in np.flatnonzero(may[j]):
            row[0, j] = cell
            if self._complete(row, left, known | {j}):
                return True
        return False


def _consistent(tables: dict[Columns, Array]) -> dict[Columns, Array]:
    """The tables, each without what another excludes by the columns that they share."""
    tables = dict(tables)
    for _ in range(_ROUNDS):
        before = sum(int(table.sum()) for table in tables.values())
        for one, other, shared in _overlaps(list(tables)):
            excluding = _over(tables[other], other, shared)
            shape = [size if j in shared else 1 for j, size in zip(one, tables[one].shape, strict=True)]
            tables[one] = tables[one] & excluding.reshape(shape)
        if sum(int(table.sum()) for table in tables.values()) == before:
            break
    return tables


def _with_pairs(tables: dict[Columns, Array]) -> dict[Columns, Array]:
    """The tables, and those of pairs of columns that rules tie together by way of a third column (path consistency)."""
    named = sorted({j for columns in tables for j in columns})
    sizes = {j: size for columns, table in tables.items() for j, size in zip(columns, table.shape, strict=True)}
    if sum(sizes.values()) ** 3 > _MOST_STEPS:
        return tables
    pairs: dict[Columns, Array] = {}
    for i, k in combinations(named, 2):
        pair: Columns = (i, k)
        pairs[pair] = np.ones([sizes[j] for j in pair], dtype=bool)
        for columns, table in tables.items():
            if shared := tuple(j for j in pair if j in columns):
                shape = [sizes[j] if j in shared else 1 for j in pair]
                pairs[pair] &= _over(table, columns, shared).reshape(shape)
    direct = {pair: int(may.sum()) for pair, may in pairs.items()}
    for _ in range(_ROUNDS):
        before = sum(int(may.sum()) for may in pairs.values())
        for i, k in pairs:
            for j in set(named) - {i, k}:
                first = pairs[i, j] if i < j else pairs[j, i].T
                second = pairs[j, k] if j < k else pairs[k, j].T
                pairs[i, k] &= (first.astype(np.float32) @ second.astype(np.float32)) > 0
        if sum(int(may.sum()) for may in pairs.values()) == before:
            break
    found = dict(tables)
    for pair, may in pairs.items():
        if int(may.sum()) < direct[pair]:
            found[pair] = found[pair] & may if pair in found else may
    return _consistent(found)


def _overlaps(keys: list[Columns]) -> Iterator[tuple[Columns, Columns, Columns]]:
    for one in keys:
        for other in keys:
            if one != other and (shared := tuple(j for j in one if j in other)):
                yield one, other, shared


def _over(table: Array, columns: Columns, shared: Columns) -> Array:
    return np.asarray(table.any(axis=tuple(a for a, j in enumerate(columns) if j not in shared)))
