"""Rules that a public sample suggests: what would be frequent by chance and is never seen.

Two columns at a time. Levels, ranges and missing cells that independent columns would have together in ten rows or more, and the
sample never has, are joined to conditions that a person reads: a threshold and a list of levels, two lists, two thresholds. A
proposal is a question to the curator. None seen of n rows leaves up to 3/n of them (95 %: 0.05 ≈ e⁻³), and where exactly a
threshold lies the sample does not say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pandas as pd

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Date, Number
from kmeanalyst.releases.expressions import words
from kmeanalyst.releases.rules.compiled import rules_of
from kmeanalyst.releases.rules.rule import ALWAYS, LONGEST_RULE, MISSING, NEVER, Rule

_EXPECTED = 10.0  # rows that a rule would be broken in by chance
_EXPECTED_OF_A_LEVEL = 3.0  # the same for each level of a list
_MOST_PROPOSED = 40
_MOST_LEVELS = 60  # of a column that is looked at
_MOST_VALUES = 200  # of a column of numbers, each with a range of its own; others are cut at their edges
_MOST_COLUMNS, _MOST_ROWS = 60, 100_000
_BLOCKS = 2  # of levels that one threshold each is proposed for
_ALIKE = 0.5  # two columns are compared whose ranges share so much of the wider one


@dataclass(frozen=True)
class Proposal:
    """A rule that no row of a sample breaks.

    expected   rows of the sample that would break it, were the columns independent.
    n_rows     rows of the sample.
    """

    rule: Rule
    expected: float
    n_rows: int

    @property
    def note(self) -> str:
        """What the curator should check, with what the sample can exclude.

        >>> Proposal(Rule("never", "age < 15 and works"), 213.0, 2000).note
        'CHECK rule: none of 2,000 rows breaks it, by chance 213 would; up to 0.15 % of rows may (95 %: 1,500 in a million)'
        """
        return (
            f"CHECK rule: none of {self.n_rows:,} rows breaks it, by chance {self.expected:,.0f} would; up to "
            f"{300 / self.n_rows:.2g} % of rows may (95 %: {3e6 / self.n_rows:,.0f} in a million)"
        )


def propose_rules(sample: pd.DataFrame, domain: Domain) -> tuple[Proposal, ...]:
    """Rules that a public sample suggests, those first that chance would break most often; at most forty.

    sample   with the columns of the domain; of more than sixty columns the first are looked at, and of more than 100,000 rows so
             many, evenly: what these suggest must hold in all.
    """
    X = domain.encode(sample)
    some = X[:: -(-len(X) // _MOST_ROWS)]
    found = [each for each in _proposed(domain, some) if len(each.rule.text) <= LONGEST_RULE]
    most = sorted(found, key=lambda each: -each.expected)[:_MOST_PROPOSED]
    if len(some) == len(X):
        return tuple(most)
    kept = [each for each in most if not rules_of(replace(domain, rules=(each.rule,))).broken(X).any()]
    return tuple(Proposal(each.rule, each.expected * len(X) / len(some), len(X)) for each in kept)


def _proposed(domain: Domain, X: Array) -> list[Proposal]:
    looked_at = [j for j, column in enumerate(domain.columns[:_MOST_COLUMNS]) if not column.is_text]
    axes = [axis for j in looked_at for axis in _axes(domain, j, X[:, j])]
    missing = {axis.column: _exactly_where(axis, axes, len(X)) for axis in axes if axis.is_missing}
    exact = {column: each for column, each in missing.items() if each is not None}
    found = list(exact.values())
    for a, b in combinations([axis for axis in axes if not (axis.is_missing and axis.column in exact)], 2):
        if a.column != b.column:
            found += _of_pair(a, b, len(X))
    return [*found, *_of_order(domain, X)]


# ------------------------------------------------------------------ what a column can be divided by


@dataclass(frozen=True, eq=False)
class _Axis:
    """Cells of a column, or whether it is missing.

    codes    (n,) the cell of each row, -1 where it has none.
    texts    of levels each one's text; of ordered cells the values at which all but the first begin.
    """

    column: int
    name: str
    codes: Array
    size: int
    texts: tuple[str, ...]
    ordered: bool
    is_missing: bool = False

    def below(self, cell: int) -> str:
        """The condition of the cells before this one, of ordered cells."""
        return f"{self.name} < {self.texts[cell - 1]}"

    def above(self, cell: int) -> str:
        """The condition of this cell and those after it."""
        return f"{self.name} >= {self.texts[cell - 1]}"

    def among(self, cells: Sequence[int]) -> str:
        """The condition of some levels."""
        if self.is_missing:
            return f"missing({self.name})" if cells[0] else f"not missing({self.name})"
        texts = [self.texts[cell] for cell in cells]
        return f"{self.name} == {texts[0]}" if len(texts) == 1 else f"{self.name} in [{', '.join(texts)}]"


def _axes(domain: Domain, j: int, x: Array) -> Iterator[_Axis]:
    column, name = domain.columns[j], words.column(domain.columns[j].name)
    absent = np.isnan(x)
    if 0 < absent.sum() < len(x):
        yield _Axis(j, name, absent.astype(int), 2, ("", ""), ordered=False, is_missing=True)
    if isinstance(column, Categorical) and len(column.levels) <= _MOST_LEVELS:
        texts = ("false", "true") if isinstance(column, Boolean) else tuple(map(words.literal, column.levels))
        ordered, codes = column.ordered, np.where(absent, -1.0, x).astype(int)
        yield _Axis(j, name, codes, len(texts), texts[1:] if ordered else texts, ordered)
    if isinstance(column, Number):
        values = np.unique(x[~absent])
        if len(values) > _MOST_VALUES:
            edges, begins = column.cuts(column.edges).tolist(), [_written(column, edge) for edge in column.edges]
        else:
            edges, begins = values[1:].tolist(), _texts(column, values[1:], values[:-1]) if len(values) else []
        if edges:
            cells = np.where(absent, -1, np.searchsorted(edges, x, side="right"))
            yield _Axis(j, name, cells, len(edges) + 1, tuple(begins), ordered=True)


def _written(column: Number, value: Any) -> str:
    """A public value of a column as expressions write it."""
    return words.literal(str(value)) if isinstance(column, Date) else f"{float(value):.15g}"


def _texts(column: Number, begins: Array, before: Array) -> list[str]:
    """The values at which cells begin, as expressions write them: of a continuum a short number above the cell before."""
    first = column.decode(begins)
    if isinstance(column, Date):
        return [_written(column, day) for day in first.dt.strftime("%Y-%m-%d")]
    last = column.decode(before)
    whole = column.kind == "integer"
    return [f"{int(high)}" if whole else _between(low, high) for low, high in zip(last, first, strict=True)]


def _between(low: float, high: float) -> str:
    """The number of fewest digits between two."""
    texts = [f"{(low + high) / 2:.{digits}g}" for digits in range(1, 18)]
    return f"{next((float(text) for text in texts if low < float(text) < high), float(high)):.15g}"


def _table(a: _Axis, b: _Axis) -> Array:
    """Rows in each cell of a and b together, (a, b)."""
    both = (a.codes >= 0) & (b.codes >= 0)
    return np.bincount(a.codes[both] * b.size + b.codes[both], minlength=a.size * b.size).reshape(a.size, b.size)


# ------------------------------------------------------------------ two columns at a time


def _of_pair(a: _Axis, b: _Axis, n: int) -> list[Proposal]:
    table = _table(a, b)
    if not table.any():
        return []
    if a.ordered and b.ordered:
        return list(_corners(a, b, table, n))
    if a.ordered or b.ordered:
        return list(_thresholds(a, b, table, n) if a.ordered else _thresholds(b, a, table.T, n))
    by_a, by_b = list(_lists(a, b, table, n)), list(_lists(b, a, table.T, n))
    return by_a if len(by_a) <= len(by_b) else by_b


def _independent(table: Array) -> Array:
    """Rows that independent columns would have in each cell."""
    return np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()


def _lists(a: _Axis, b: _Axis, table: Array, n: int) -> Iterator[Proposal]:
    """Levels of a that never occur with some levels of b, joined where these are the same."""
    expected = _independent(table)
    forbidden: dict[tuple[int, ...], list[int]] = {}
    for k in range(a.size):
        if cells := tuple(np.flatnonzero((table[k] == 0) & (expected[k] >= _EXPECTED)).tolist()):
            forbidden.setdefault(cells, []).append(k)
    for cells, own in forbidden.items():
        total = float(expected[np.ix_(own, list(cells))].sum())
        yield Proposal(Rule(NEVER, f"{a.among(own)} and {b.among(cells)}"), total, n)


def _thresholds(a: _Axis, b: _Axis, table: Array, n: int) -> Iterator[Proposal]:
    """Levels of b that never occur below, or above, a threshold of a: of all thresholds the one that chance breaks most often."""
    for flipped in (False, True):
        own = table[::-1] if flipped else table
        rows, levels = own.sum(axis=1), own.sum(axis=0)
        before = np.vstack([np.zeros(b.size), np.cumsum(own, axis=0)])  # (a + 1, b): rows in the first cells
        expected = np.outer(np.append(0, np.cumsum(rows)), levels) / own.sum()
        left = np.ones(b.size, dtype=bool)
        for _ in range(_BLOCKS):
            counted = (before == 0) & (expected >= _EXPECTED_OF_A_LEVEL) & left
            totals = np.where(counted, expected, 0).sum(axis=1)
            cell = int(np.argmax(totals))
            if totals[cell] < _EXPECTED or not 0 < cell < a.size:
                break
            cells = np.flatnonzero(counted[cell])
            threshold = a.above(a.size - cell) if flipped else a.below(cell)
            yield Proposal(Rule(NEVER, f"{threshold} and {b.among(cells.tolist())}"), float(totals[cell]), n)
            left &= ~counted[cell]


def _corners(a: _Axis, b: _Axis, table: Array, n: int) -> Iterator[Proposal]:
    """Corners of two ordered columns without a row: in each of the four the one that chance would fill most."""
    for up, right in ((False, False), (False, True), (True, False), (True, True)):
        own = table[:: -1 if up else 1, :: -1 if right else 1]
        counts = own.cumsum(axis=0).cumsum(axis=1)
        expected = np.outer(own.sum(axis=1).cumsum(), own.sum(axis=0).cumsum()) / own.sum()
        expected = np.where(counts == 0, expected, 0.0)
        i, k = (int(at) + 1 for at in np.unravel_index(np.argmax(expected), expected.shape))
        if expected[i - 1, k - 1] >= _EXPECTED:
            first = a.above(a.size - i) if up else a.below(i)
            second = b.above(b.size - k) if right else b.below(k)
            yield Proposal(Rule(NEVER, f"{first} and {second}"), float(expected[i - 1, k - 1]), n)


def _exactly_where(missing: _Axis, axes: Sequence[_Axis], n: int) -> Proposal | None:
    """The rule that a column is missing exactly where a condition on another one holds; thresholds first, then levels."""
    for axis in sorted(axes, key=lambda one: (not one.ordered, one.is_missing)):
        if axis.column == missing.column or missing.codes[axis.codes < 0].any():
            continue
        table = _table(axis, missing)
        present, absent = table.T
        if (present * absent).any() or not (present.any() and absent.any()):
            continue
        expected = _independent(table)
        broken = min(expected[absent > 0, 0].sum(), expected[present > 0, 1].sum())
        condition = _condition(axis, np.flatnonzero(absent), np.flatnonzero(present))
        if broken >= _EXPECTED and condition:
            column = missing.name.strip("`").replace("``", "`")
            return Proposal(Rule(MISSING, condition, (column,)), float(expected[absent > 0, 0].sum()), n)
    return None


def _condition(axis: _Axis, inside: Array, outside: Array) -> str:
    """A condition that holds in some cells and not in others; "" if they are not divided by one threshold."""
    if not axis.ordered:
        return axis.among(inside.tolist())
    if inside.max() < outside.min():
        return axis.below(int(outside.min()))
    return axis.above(int(inside.min())) if inside.min() > outside.max() else ""


def _of_order(domain: Domain, X: Array) -> Iterator[Proposal]:
    """Columns of like range of which one is never below the other."""
    columns = domain.columns[:_MOST_COLUMNS]
    numbers = [j for j, column in enumerate(columns) if isinstance(column, Number) and column.scale == "linear"]
    for i, j in permutations(numbers, 2):
        if isinstance(columns[i], Date) != isinstance(columns[j], Date):
            continue
        both = ~np.isnan(X[:, [i, j]]).any(axis=1)
        a, b = X[both, i], X[both, j]
        if not len(a) or (a < b).any() or (a == b).all():
            continue
        shared = min(a.max(), b.max()) - max(a.min(), b.min())
        expected = float((len(b) - np.searchsorted(np.sort(b), a, side="right")).sum() / len(b))
        if shared >= _ALIKE * max(np.ptp(a), np.ptp(b)) and expected >= _EXPECTED:
            rule = Rule(ALWAYS, f"{words.column(columns[i].name)} >= {words.column(columns[j].name)}")
            yield Proposal(rule, expected, len(X))
