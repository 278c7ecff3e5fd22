"""Rules that no row keeps: found before a table is opened.

Cells that a rule forbids are propagated to other rules until none is left or nothing changes (generalised arc consistency,
Mackworth 1977), which proves a contradiction and names the rules; then a local search looks for one row that keeps all rules.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import Margins
from kmeanalyst.releases.domain.column import DomainError
from kmeanalyst.releases.rules.compiled import Rules
from kmeanalyst.releases.rules.rule import COMBINATIONS, DERIVE
from kmeanalyst.releases.rules.values import values_of

_ROWS, _ROUNDS, _WORSE = 300, 200, 0.1  # of the search; probability with which a worse row is taken


def check_compatible(rules: Rules) -> None:
    """DomainError if no row of the domain keeps all rules, or none was found."""
    if not len(rules):
        return
    kernel = _kernel_of(rules)
    tables = [rules.cells_allowed(kernel, i) for i in range(len(rules))]
    named = [one.rule.named(number) for number, one in enumerate(rules.compiled, 1)]
    for name, table in zip(named, tables, strict=True):
        if not table.any():
            raise DomainError(f"{name} excludes every row of the domain: nothing could be released. Correct it.")
    alive = _alive(rules, kernel.sizes, tables, range(len(rules)))
    if alive is None:
        kept = list(range(len(rules)))
        for i in range(len(rules)):  # what is left contradicts itself, and nothing less does
            if _alive(rules, kernel.sizes, tables, others := [k for k in kept if k != i]) is None:
                kept = others
        raise DomainError(
            f"no row keeps these rules together: {'; '.join(named[i] for i in kept)}. Correct or remove one of them."
        )
    if row_that_keeps(rules, alive) is None:
        raise DomainError(
            f"no row that keeps all {len(rules)} rules was found, in {_ROUNDS} rounds of a search with {_ROWS} rows: they may "
            "contradict each other. Remove rules until one is found, and correct the one that made the difference."
        )


def _kernel_of(rules: Rules) -> Margins:
    """Margins whose ranges end where a rule changes, and nowhere else."""
    columns = rules.domain.columns
    edges = tuple(
        tuple(np.arange(len(column.levels) - 1) + 0.5) if column.has_levels else rules.cuts.get(j, ())  # type: ignore[attr-defined]
        for j, column in enumerate(columns)
    )
    return Margins(
        edges=edges, atoms=((),) * len(columns), missing=tuple(column.missing for column in columns),
        shares=(1.0, 0.0, 0.0, 0.0, 0.0, 0.0),
    )  # fmt: skip


def _alive(rules: Rules, sizes: Sequence[int], tables: Sequence[Array], which: Sequence[int]) -> list[Array] | None:
    """For each column the cells that some of these rules' tables leave; None where a column has none left."""
    alive: list[Array] = [np.ones(size, dtype=bool) for size in sizes]
    changed = True
    while changed:
        changed = False
        for i in which:
            columns, table = rules.columns[i], tables[i]
            for axis, j in enumerate(columns):
                table = table & alive[j].reshape([-1 if k == axis else 1 for k in range(len(columns))])
            for axis, j in enumerate(columns):
                left = np.any(table, axis=tuple(k for k in range(len(columns)) if k != axis))
                if not left.any():
                    return None
                changed |= bool((left != alive[j]).any())
                alive[j] = left
    return alive


def row_that_keeps(rules: Rules, alive: Sequence[Array] | None = None) -> Array | None:
    """An encoded row (1, d) that keeps all rules, found by min-conflicts (Minton et al. 1992); None if none was found.

    alive   for each column the cells of `_kernel_of` where such a row may be.
    """
    rng, columns = np.random.default_rng(0), rules.domain.columns
    values = [
        np.zeros(1) if column.is_text else values_of(column, rules.cuts.get(j, ()), rules.equated.get(j, ()), 2)
        for j, column in enumerate(columns)
    ]
    if alive is not None:
        kernel = _kernel_of(rules)
        for j, own in enumerate(values):
            X = np.zeros((len(own), len(columns)))
            X[:, j] = own
            values[j] = own[alive[j][kernel.cells(X)[:, j]]]
    rows = rules.with_derived(np.column_stack([rng.choice(own, _ROWS) for own in values]))
    broken = rules.broken_by(rows)
    for _ in range(_ROUNDS):
        if not (counts := broken.sum(axis=1)).all():
            return rows[[int(np.argmin(counts))]]
        moved = rules.with_derived(
            np.array([_moved(rules, *each, values, rng) for each in zip(rows, broken, strict=True)])
        )
        after = rules.broken_by(moved)
        taken = (after.sum(axis=1) <= counts) | (rng.random(_ROWS) < _WORSE)
        rows[taken], broken[taken] = moved[taken], after[taken]
    return None


def _moved(rules: Rules, row: Array, broken: Array, values: Sequence[Array], rng: np.random.Generator) -> Array:
    """The row with one cell changed that a rule it breaks depends on; for combinations with one of those there are."""
    row = row.copy()
    one = rules.compiled[int(rng.choice(np.flatnonzero(broken)))]
    if one.rule.kind == COMBINATIONS:
        row[list(one.columns)] = rng.choice(one.codes)
        return row
    sources = set(one.columns) - ({one.target} if one.rule.kind == DERIVE else set())
    while derived := sources & set(rules.derived):
        for j in derived:
            sources |= {rules.domain.names.index(name) for name in rules.derived[j].columns}
        sources -= derived
    j = int(rng.choice(sorted(sources)))
    row[j] = rng.choice(values[j])
    return row
