"""Values within cells that keep rules, where cells alone do not decide: columns that are compared, and derived ones.

Rows that break a rule, or whose derived cell is not the one drawn for it, get other values in the same cells until they do not:
by themselves (the sides of a difference from each other and from it), then of many drawn for all rows of the same cells. A row
that keeps no rule then takes the values of one that does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import Margins
from kmeanalyst.releases.domain.column import DomainError
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.numbers import FROM_SCALE, TO_SCALE, Number
from kmeanalyst.releases.rules.compiled import Rules, rules_of
from kmeanalyst.releases.rules.kept_rows import kept_row
from kmeanalyst.representation.tables.within_cells import FineRanges, values_in_cells

_TRIES = 8  # of each row by itself
_POOLS = 512, 8192  # values drawn for all rows of the same cells; for those that these leave
_MOST_POOLED = 2**18  # values drawn for all such groups together


def rows_that_keep_rules(
    rows: Array, kernel: Margins, domain: Domain, cells: Array, fine: dict[int, FineRanges], rng: np.random.Generator
) -> Array:
    """Encoded rows (n, d) that keep all rules of the domain, in the given cells (n, d) as far as these allow.

    rows   in these cells, for columns that no rule ties.
    """
    rules = rules_of(domain)
    rows = rules.with_derived(rows)
    broken = rules.broken_by(rows)
    derived = np.array(list(rules.derived), dtype=np.intp)
    wrong = broken.any(axis=1) | (kernel.cells(rows)[:, derived] != cells[:, derived]).any(axis=1)
    loose = _loose_columns(rules, np.asarray(broken.any(axis=0)))
    if loose and wrong.any():
        search = _Redrawn(rows, kernel, domain, cells, fine, rules, derived, loose, rng)
        search.improve(np.flatnonzero(wrong))
        rows = search.rows
    return without_broken(rows, domain, rng)


def _loose_columns(rules: Rules, broken: Array) -> list[int]:
    derived = set(rules.derived)
    named = [own for own, some in zip(rules.columns, broken, strict=True) if some or set(own) & derived]
    return sorted({j for own in named for j in own} - derived)


@dataclass(eq=False)
class _Redrawn:
    """Rows whose values in the loose columns are drawn again, in the same cells."""

    rows: Array
    kernel: Margins
    domain: Domain
    cells: Array
    fine: dict[int, FineRanges]
    rules: Rules
    derived: Array
    loose: list[int]
    rng: np.random.Generator

    def improve(self, left: Array) -> None:
        """Other values for these rows: by themselves, then from pools; then values that rules name; then any derived cell."""
        for _ in range(_TRIES):
            tried = self.drawn(left)
            kept = ~self.wrong(left, tried)
            self.rows[left[kept]] = tried[kept]
            left = left[~kept]
        for size, named in ((_POOLS[0], False), (_POOLS[1], False), (_POOLS[0], True)):
            left = self.from_pools(left, size, self.wrong, named=named)
        left = left[self._ruled.broken(self.rows[left])]
        self.from_pools(left, _POOLS[1], lambda _, tried: self._ruled.broken(tried), named=True)

    @cached_property
    def _ruled(self) -> Rules:
        changed = {*self.loose, *self.derived.tolist()}
        return replace(self.rules, compiled=tuple(one for one in self.rules.compiled if set(one.columns) & changed))

    def wrong(self, like: Array, tried: Array) -> Array:
        """Which of the rows, tried in the place of others, break a rule or have another derived cell than those."""
        elsewhere = self.kernel.cells(tried)[:, self.derived] != self.cells[np.ix_(like, self.derived)]
        return np.asarray(self._ruled.broken(tried) | elsewhere.any(axis=1))

    def drawn(self, like: Array, *, named: bool = False) -> Array:
        """Rows with other values in the cells of these; if `named`, half of them values that rules name, where there are some."""
        tried = self.rows[like]
        for j in self.loose:
            cells = self.cells[like, j]
            own = values_in_cells(self.kernel, self.domain, j, cells, self.fine.get(j), self.rng)
            tried[:, j] = _with_named(own, self._special[j], cells, self.rng) if named else own
        for of_two in self.rules.differences:
            self._set_apart(tried, like, *of_two)
        return self.rules.with_derived(tried)

    def _set_apart(self, tried: Array, like: Array, d: int, a: int, b: int) -> None:
        """Draw d in its cell, and a = b + d or b = a - d where that is in its own: draws of a and b seldom give a narrow d."""
        own = values_in_cells(self.kernel, self.domain, d, self.cells[like, d], self.fine.get(d), self.rng)
        apart = self._natural(d, own)
        for j, other, sign in ((b, a, -1), (a, b, 1)):
            column: Any = self.domain.columns[j]
            values = self._natural(other, tried[:, other]) + sign * apart
            with np.errstate(all="ignore"):
                codes = column.rounded(np.clip(TO_SCALE[column.scale](values), *column.bounds))
            inside = ~np.isnan(codes) & (self.kernel.cells_of(j, codes) == self.cells[like, j])
            tried[inside, j] = codes[inside]

    def _natural(self, j: int, codes: Array) -> Array:
        column: Any = self.domain.columns[j]
        return FROM_SCALE[column.scale](codes)

    @cached_property
    def _special(self) -> dict[int, dict[int, Array]]:
        return {j: _special_values(self.rules, self.kernel, j) for j in self.loose}

    def from_pools(self, left: Array, size: int, wrong: Callable[[Array, Array], Array], *, named: bool) -> Array:
        """Give these rows values of a pool that is drawn for all with the same cells; returns the rows that it has none for."""
        if not len(left):
            return left
        _, groups = np.unique(self.cells[left][:, [*self.loose, *self.derived]], axis=0, return_inverse=True)
        members = np.split(left[np.argsort(groups, kind="stable")], np.cumsum(np.bincount(groups))[:-1])
        members.sort(key=len, reverse=True)
        tried_for = members[: max(_MOST_POOLED // size, 1)]
        like = np.concatenate([self.rng.choice(some, size) for some in tried_for])
        tried = self.drawn(like, named=named)
        good = ~wrong(like, tried).reshape(-1, size)
        without = members[len(tried_for) :]
        for some, own, values in zip(tried_for, good, tried.reshape(-1, size, tried.shape[1]), strict=True):
            found = values[own]
            if len(found):
                chosen = found[self.rng.integers(len(found), size=len(some))]
                self.rows[np.ix_(some, np.array(self.loose))] = chosen[:, self.loose]
            else:
                without.append(some)
        self.rows[left] = self.rules.with_derived(self.rows[left])
        return np.concatenate(without) if without else left[:0]


def _special_values(rules: Rules, kernel: Margins, j: int) -> dict[int, Array]:
    """Cell → the values in it that a rule compares column j with by ==, and the column's bounds: hardly any draw gives them."""
    column = rules.domain.columns[j]
    if not isinstance(column, Number):
        return {}
    values = np.unique([*rules.equated.get(j, ()), *column.bounds])
    rows = np.zeros((len(values), len(rules.domain.columns)))
    rows[:, j] = values
    cells = kernel.cells(rows)[:, j]
    return {int(cell): values[cells == cell] for cell in np.unique(cells)}


def _with_named(values: Array, special: dict[int, Array], cells: Array, rng: np.random.Generator) -> Array:
    found = values.copy()
    for cell, values in special.items():
        chosen = (cells == cell) & (rng.random(len(cells)) < 0.5)
        found[chosen] = rng.choice(values, int(chosen.sum()))
    return found


def without_broken(rows: Array, domain: Domain, rng: np.random.Generator) -> Array:
    """The rows (n, d), those that break a rule replaced by others of them; by one that was found before where all do."""
    broken = rules_of(domain).broken(rows) if domain.rules else np.zeros(len(rows), dtype=bool)
    if not broken.any():
        return rows
    rows = rows.copy()
    if broken.all():
        row = kept_row(domain)
        if row is None:  # which `publish` refuses before it opens a table
            raise DomainError("no row was found that keeps all rules of the table: correct the rules, or leave one out.")
        rows[0], broken[0] = row, False
    rows[broken] = rows[rng.choice(np.flatnonzero(~broken), int(broken.sum()))]
    return rows
