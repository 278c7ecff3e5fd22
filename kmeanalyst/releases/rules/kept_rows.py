"""Encoded rows that keep the rules of a domain: drawn from it, found by a search, or put in the place of those that break one.

The search is a function of public facts alone and of bounded length. `publish` makes it before it opens a table, and refuses rules
for which it finds no row: what is drawn after the door then has a row to fall back on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.cells import Cells
from kmeanalyst.releases.domain.column import DomainError
from kmeanalyst.releases.memo import kept
from kmeanalyst.releases.rules.compiled import RuledColumns, Rules, rules_of, values_of
from kmeanalyst.releases.rules.rule import COMBINATIONS, DERIVE

_TRIES = 100
_DRAWN = 2000  # rows that are drawn first
_EVERY_VALUE = 40  # values of a number that are cells of their own where it is compared with other columns
_MOST_WORK = 10**8  # cells of rules' tables that a search looks at, in a second or two,
_OF_A_LOOK = 10_000  # with so many for each look at a table
_STARTS = 10  # rows of cells that values are drawn in
_ROWS, _MOST_ROUNDS, _MOST_EVALUATED = 300, 100, 2000  # of the search for values, and rules that it evaluates
_WORSE, _SAME = 0.1, 0.3  # probabilities with which a worse row is taken, and another column's value

Left = dict[int, Array]  # column → which of its cells are left


def draw_kept(domain: RuledColumns, n: int, rng: np.random.Generator) -> Array:
    """Rows (n or fewer, d) drawn evenly from those of the domain that keep its rules; fewer where hardly any do."""
    rows = domain.draw(n, rng)
    rules = rules_of(domain)
    broken = rules.broken(rows)
    for _ in range(_TRIES if broken.any() else 0):
        rows[broken] = domain.draw(int(broken.sum()), rng)
        broken[broken] = rules.broken(rows[broken])
    return rows[~broken]


def kept_or(domain: RuledColumns, rows: Array, instead: Array) -> Array:
    """The rows (n, d), derived columns computed again; those that break a rule are replaced by the same of `instead` (n, d)."""
    if not domain.rules:
        return rows
    rules = rules_of(domain)
    rows = rules.with_derived(rows)
    return np.where(rules.broken(rows)[:, None], instead, rows)


def check_kept(domain: RuledColumns) -> None:
    """DomainError unless a row that keeps all rules is found, or for a rule that couples columns with too many combinations."""
    if not domain.rules:
        return
    for i in range(len(domain.rules)):
        rules_of(domain).n_tried(i)  # which readers limit too
    broken = _best_row(domain)[1]
    if broken.any():
        named = [rule.named(number) for number, rule in enumerate(domain.rules, 1) if broken[number - 1]]
        raise DomainError(
            f"no row that keeps all {len(domain.rules)} rules of the domain was found by a search of a few seconds, and without "
            f"one nothing could be released. The best row that was found breaks {'; '.join(named[:3])}. Correct or remove a rule."
        )


def kept_row(domain: RuledColumns) -> Array | None:
    """An encoded row (d,) that keeps all rules. None if none was found.

    The same for equal domains, whatever was asked before; found once for each.
    """
    row, broken = _best_row(domain)
    return None if broken.any() else row


def _best_row(domain: RuledColumns) -> tuple[Array, Array]:
    """A row (d,) that keeps all rules, or the best that was found, and which rules it breaks (R,)."""

    def make() -> tuple[Array, Array]:
        rows, rules = domain.draw(_DRAWN, np.random.default_rng(0)), rules_of(domain)
        broken = rules.broken_by(rows)
        first = int(broken.any(axis=1).argmin())
        return (rows[first], broken[first]) if not broken[first].any() else _Search(rules).best()

    return kept(domain, "kept row", make)  # type: ignore[arg-type]  # every Domain is Memoised


class _Search:
    """A search for a row that keeps all rules.

    First for rows of cells, by assigning one column after the other and taking out what rules then exclude (maintained arc
    consistency, Sabin & Freuder 1994); then for values in them, by min-conflicts (Minton et al. 1992). The work of both is bounded.
    """

    def __init__(self, rules: Rules) -> None:
        self.rules, self.rng = rules, np.random.default_rng(0)
        columns = rules.domain.columns
        named = {k for own in rules.columns for k in own}
        every = {k: columns[k].every_value(_EVERY_VALUE) for k in named if columns[k].is_number}
        edges = [
            tuple(((own[:-1] + own[1:]) / 2)[~np.isnan(own[1:])].tolist()) if (own := every.get(k)) is not None else cuts
            for k, cuts in enumerate(rules.cells.edges)
        ]
        self.cells = Cells(tuple(edges), rules.cells.atoms, rules.cells.missing)
        self.tables = [rules.cells_allowed(self.cells, i) for i in range(len(rules))]
        self.work = 0
        self.values = [
            np.zeros(1) if column.is_text else values_of(column, rules.cuts.get(k, ()), rules.equated.get(k, ()), 2)
            for k, column in enumerate(columns)
        ]
        self.cell_of = [self.cells.cells_of(k, own) for k, own in enumerate(self.values)]
        self.sources = [
            self._sources(set(one.columns) - ({one.target} if one.rule.kind == DERIVE else set())) for one in rules.compiled
        ]

    def _sources(self, columns: set[int]) -> Sequence[int]:
        derived, names = self.rules.derived, self.rules.domain.names
        while inner := columns & set(derived):
            columns = columns - inner | {names.index(name) for k in inner for name in derived[k].columns}
        return sorted(columns)

    def best(self) -> tuple[Array, Array]:
        """The best row (d,) that was found, and which rules it breaks (R,)."""
        starts = self._rows_of_cells()
        rows = np.column_stack([self._drawn(k, starts) for k in range(len(self.values))])
        rows = self.rules.with_derived(rows)
        broken = self.rules.broken_by(rows)
        for _ in range(min(_MOST_ROUNDS, max(_MOST_EVALUATED // len(self.rules), 1))):
            counts = broken.sum(axis=1)
            if not counts.all():
                break
            moved = self.rules.with_derived(self._moved(rows, broken))
            after = self.rules.broken_by(moved)
            taken = (after.sum(axis=1) <= counts) | (self.rng.random(_ROWS) < _WORSE)
            rows[taken], broken[taken] = moved[taken], after[taken]
        least = int(broken.sum(axis=1).argmin())
        return rows[least], broken[least]

    # ---------------------------------------------------------------- cells

    def _rows_of_cells(self) -> list[Left]:
        """For each of some rows which cells it may be in: one of each column that a rule names; any where none was found."""
        left = {k: np.ones(self.cells.sizes[k], dtype=bool) for own in self.rules.columns for k in own}
        narrowed = self._narrowed(left, set(left))
        if narrowed is None:
            return [left]
        starts: list[Left] = []
        while len(starts) < _STARTS and self.work < _MOST_WORK:
            start = self._row_of_cells(narrowed)
            if start is None:
                break
            starts.append(start)
        return starts or [narrowed]

    def _row_of_cells(self, left: Left) -> Left | None:
        waiting: list[tuple[Left, set[int]]] = [(left, set())]
        while waiting and self.work < _MOST_WORK:
            narrowed = self._narrowed(*waiting.pop())
            if narrowed is None:
                continue
            undecided = [k for k, own in narrowed.items() if own.sum() > 1]
            if not undecided:
                return narrowed
            k = min(undecided, key=lambda k: int(narrowed[k].sum()))
            one = np.arange(len(narrowed[k])) == self.rng.choice(np.flatnonzero(narrowed[k]))
            waiting += [(narrowed | {k: narrowed[k] & ~one}, {k}), (narrowed | {k: one}, {k})]
        return None

    def _narrowed(self, left: Left, changed: set[int]) -> Left | None:
        """The cells that the rules' tables leave, given which columns have fewer; None where one has none left."""
        left = dict(left)
        while changed and self.work < _MOST_WORK:
            before, changed = changed, set()
            for columns, table in zip(self.rules.columns, self.tables, strict=True):
                if not before & set(columns):
                    continue
                self.work += table.size + _OF_A_LOOK
                for axis, k in enumerate(columns):
                    table = table & left[k].reshape([-1 if a == axis else 1 for a in range(len(columns))])
                for axis, k in enumerate(columns):
                    own = np.any(table, axis=tuple(a for a in range(len(columns)) if a != axis))
                    if not own.any():
                        return None
                    if (own != left[k]).any():
                        left[k] = own
                        changed.add(k)
        return left

    # ---------------------------------------------------------------- values

    def _drawn(self, k: int, starts: Sequence[Left]) -> Array:
        found = self.rng.choice(self.values[k], _ROWS)
        for s, start in enumerate(starts):
            inside = self.values[k][start[k][self.cell_of[k]]] if k in start else self.values[k]
            if len(inside):
                found[s :: len(starts)] = self.rng.choice(inside, len(found[s :: len(starts)]))
        return found

    def _moved(self, rows: Array, broken: Array) -> Array:
        rows, chosen = rows.copy(), np.where(broken, self.rng.random(broken.shape), -1.0).argmax(axis=1)
        for i in np.unique(chosen):
            some = np.flatnonzero(chosen == i)
            one = self.rules.compiled[i]
            if one.rule.kind == COMBINATIONS:
                rows[np.ix_(some, one.columns)] = self.rng.choice(one.codes, len(some))
                continue
            columns = self.rng.choice(self.sources[i], len(some))
            for k in np.unique(columns):
                own = some[columns == k]
                other = rows[own, self.rng.choice(self.sources[i])]  # columns may have to be equal
                same = np.isin(other, self.values[k]) & (self.rng.random(len(own)) < _SAME)
                rows[own, k] = np.where(same, other, self.rng.choice(self.values[k], len(own)))
        return rows
