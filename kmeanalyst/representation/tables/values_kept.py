"""Values within cells that keep rules, where cells alone do not decide: columns that are compared, and derived ones.

Rows that break a rule, or whose derived cell is not the one that was drawn for it, get other values in the same cells until they do
not. Where hardly any values do (a stay of one day between two ranges of three months), many are drawn once for all rows of the
same cells. A derived cell that no values give is left as it is computed; a row that keeps no rule then takes the values of one that
does.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import Margins
from kmeanalyst.releases.domain.column import DomainError
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.numbers import Number
from kmeanalyst.releases.rules.compiled import Rules, rules_of
from kmeanalyst.representation.mixture.within_cells import FineRanges, values_in_cells

_TRIES = 8  # of each row by itself
_POOL, _MOST_POOLED = 4096, 2**20  # values drawn for all rows of the same cells, and for all such groups together


def rows_that_keep_rules(
    rows: Array, kernel: Margins, domain: Domain, cells: Array, target: Array, fine: dict[int, FineRanges],
    rng: np.random.Generator,
) -> Array:  # fmt: skip
    """Encoded rows (n, d) that keep all rules of the domain, in the given cells (n, d) as far as these allow.

    rows      in these cells, for columns that no rule ties.
    target    (n,) the target's cell of each row, 0 without one.
    """
    rules = rules_of(domain)
    rows, derived = rules.with_derived(rows), np.array(list(rules.derived), dtype=np.intp)

    def wrong(some: Array, tried: Array) -> Array:
        elsewhere = (kernel.cells(tried)[:, derived] != cells[np.ix_(some, derived)]).any(axis=1)
        return np.asarray(rules.broken(tried) | elsewhere)

    def drawn(some: Array) -> Array:
        tried = rows[some]
        for j in loose:
            own = values_in_cells(kernel, domain, j, cells[some, j], target[some], fine.get(j), rng)
            named = _named_value(special.get(j, {}), cells[some, j], rng)
            tried[:, j] = np.where(np.isnan(named), own, named)
        return rules.with_derived(tried)

    everyone = np.arange(len(rows))
    left = everyone[wrong(everyone, rows)]
    loose = _loose_columns(rules, rows[left])
    special = {j: _special_values(rules, kernel, j) for j in loose}
    for _ in range(_TRIES if loose else 0):
        tried = drawn(left)
        kept = ~wrong(left, tried)
        rows[left[kept]] = tried[kept]
        left = left[~kept]
    if len(left) and loose:
        _from_pools(rows, left, cells[:, [*loose, *derived]], loose, drawn, wrong, rules, rng)
    return without_broken(rows, domain, rng)


def _loose_columns(rules: Rules, rows: Array) -> list[int]:
    """The columns, not derived ones, of the rules that some of these rows break, and those from which others are derived."""
    broken = np.asarray(rules.broken_by(rows).any(axis=0))
    derived = rules.derived
    found = {
        j
        for columns, some in zip(rules.columns, broken, strict=True)
        if some or set(columns) & set(derived)
        for j in columns
    }
    return sorted(found - set(derived))


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


def _named_value(special: dict[int, Array], cells: Array, rng: np.random.Generator) -> Array:
    """(n,) for half of the rows in cells with special values one of these; NaN for the others."""
    found = np.full(len(cells), np.nan)
    for cell, values in special.items():
        chosen = (cells == cell) & (rng.random(len(cells)) < 0.5)
        found[chosen] = rng.choice(values, int(chosen.sum()))
    return found


def _from_pools(
    rows: Array, left: Array, keys: Array, loose: list[int], drawn: Callable[[Array], Array],
    wrong: Callable[[Array, Array], Array], rules: Rules, rng: np.random.Generator,
) -> None:  # fmt: skip
    """Give rows `left` values of a pool that is drawn for all of them with the same cells `keys`.

    A value that keeps the rules, though its derived cell is another one, is taken where there is none that does both.
    """
    _, groups = np.unique(keys[left], axis=0, return_inverse=True)
    members = np.split(left[np.argsort(groups, kind="stable")], np.cumsum(np.bincount(groups))[:-1])
    members.sort(key=len, reverse=True)
    for some in members[: _MOST_POOLED // _POOL]:
        like = rng.choice(some, _POOL)
        tried = drawn(like)
        found = tried[~wrong(like, tried)]
        if not len(found):
            found = tried[~rules.broken(tried)]
        if len(found):
            chosen = found[rng.integers(len(found), size=len(some))]
            rows[np.ix_(some, np.array(loose))] = chosen[:, loose]
            rows[some] = rules.with_derived(rows[some])


def without_broken(rows: Array, domain: Domain, rng: np.random.Generator) -> Array:
    """The rows (n, d), those that break a rule replaced by others of them; DomainError where all do."""
    broken = rules_of(domain).broken(rows) if domain.rules else np.zeros(len(rows), dtype=bool)
    if not broken.any():
        return rows
    if broken.all():
        raise DomainError(
            "no row was found that keeps all rules of the table: together they leave hardly any. Correct the rules, or write a "
            "column that is compared with another as one that is derived."
        )
    rows = rows.copy()
    rows[broken] = rows[rng.choice(np.flatnonzero(~broken), int(broken.sum()))]
    return rows
