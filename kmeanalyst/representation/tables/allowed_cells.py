"""Which cells of several columns go together under the rules of a table: a table of true and false for each rule.

What one rule excludes is taken out of the tables of all others that share columns with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import combinations

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.cells import Cells
from kmeanalyst.kernels.margins import Margins
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.rules.compiled import rules_of
from kmeanalyst.releases.rules.kept_rows import kept_row

Columns = tuple[int, ...]
_EXCHANGES = 5  # of the values of each column that a rule names
_ROUNDS = 20  # of taking what one rule excludes out of the others
_MOST_STEPS = 10**9  # of looking for pairs of columns that rules tie by way of a third


def allowed_cells(domain: Domain, kernel: Margins) -> AllowedCells | None:
    """The cells of this kernel that the rules of a domain allow together; None without rules."""
    return _allowed(domain, Cells(kernel.edges, kernel.atoms, kernel.missing)) if domain.rules else None


@lru_cache(maxsize=8)
def _allowed(domain: Domain, cells: Cells) -> AllowedCells:
    rules = rules_of(domain)
    tables = [(columns, rules.cells_allowed(cells, i)) for i, columns in enumerate(rules.columns)]
    return replace(AllowedCells.of(tables, cells), row=partial(_row, domain, cells))


def _row(domain: Domain, cells: Cells) -> Array | None:
    row = kept_row(domain)
    return None if row is None else cells.cells(row[None])[0]


@dataclass(frozen=True, eq=False)
class AllowedCells:
    """Tables of true and false over the cells of a few columns each; a row of cells is allowed if all of them are true of it.

    sizes    number of cells of each column.
    tables   columns, increasing, and the table over their cells: the first `n_rules` are those of rules, the others follow from
             them.
    row      a row of cells to fall back on where none that was drawn is allowed: one that `publish` has found before it spends
             (see `rules.kept_rows`). None where there is none.
    """

    sizes: tuple[int, ...]
    tables: tuple[tuple[Columns, Array], ...]
    n_rules: int
    row: Callable[[], Array | None] = field(default=lambda: None, repr=False)
    _projected: dict[tuple[int, Columns], Array] = field(default_factory=dict, repr=False)
    _together: dict[Columns, Array] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, tables: Iterable[tuple[Columns, Array]], cells: Cells) -> AllowedCells:
        together: dict[Columns, Array] = {}
        for columns, table in tables:
            axes = np.argsort(columns)
            key, own = tuple(sorted(columns)), np.array(table, dtype=bool).transpose(tuple(axes.tolist()))
            together[key] = together[key] & own if key in together else own
        consistent = _with_pairs(_consistent(together))
        return cls(tuple(cells.sizes), tuple(consistent.items()), len(together))

    @property
    def columns(self) -> list[int]:
        return sorted({j for columns, _ in self.tables for j in columns})

    @property
    def any_left(self) -> bool:
        return all(table.any() for _, table in self.tables)

    def keeps(self, cells: Array) -> Array:
        """(n,) whether rows of cells (n, columns) are allowed."""
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
        """(n, columns) the columns that are changed, and those of every rule that the rows of cells break."""
        found = changed.copy()
        for columns, table in self.tables[: self.n_rules]:
            broken = ~table[tuple(cells[:, list(columns)].T)]
            found[np.ix_(broken, list(columns))] = True
        return found

    def together(self, *columns: int) -> Array:
        """(a, b, …) which cells of these columns rules allow together."""
        if columns not in self._together:
            self._together[columns] = self._found_together(columns)
        return self._together[columns]

    def _found_together(self, columns: Columns) -> Array:
        found = np.ones([self.sizes[j] for j in columns], dtype=bool)
        for t, (own, _) in enumerate(self.tables):
            if shared := tuple(j for j in columns if j in own):
                shape = [self.sizes[j] if j in shared else 1 for j in columns]
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


def _consistent(tables: dict[Columns, Array]) -> dict[Columns, Array]:
    """Each without what another excludes by the columns that they share."""
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


def independent_rows(rows: Array, domain: Domain, kernel: Margins, rng: np.random.Generator) -> Array:
    """Encoded rows (n, d) of independent columns with the same values; as independent as rules allow where there are some."""
    allowed, n = allowed_cells(domain, kernel), len(rows)
    tied = [] if allowed is None else allowed.columns
    found = np.empty_like(rows)
    for j in range(len(domain)):
        own = domain.column_of == j
        found[:, own] = rows[:, own] if j in tied else rows[rng.permutation(n)][:, own]
    if allowed is None:
        return found
    cells = kernel.cells(found)
    for j in tied * _EXCHANGES:  # two rows exchange their values where the rules allow both
        first, second = rng.permutation(n)[: n // 2 * 2].reshape(2, -1)
        moved = cells.copy()
        moved[first, j], moved[second, j] = cells[second, j], cells[first, j]
        kept = allowed.keeps(moved)
        both = kept[first] & kept[second]
        first, second = first[both], second[both]
        for values in (found, cells):
            values[first, j], values[second, j] = values[second, j], values[first, j]
    return found
