"""Rules on a domain: which encoded rows break one, and the values of derived columns.

A condition is read as everywhere in the grammar of expressions. `always` is broken where its condition is definitely false: a
comparison with a missing cell breaks nothing, as in the CHECK of SQL, and missing(column) asks for the cell itself.

The first numbers of an encoded row are one for each column, and rules read these alone. Everything here is public but the rows.
On the private side `with_derived` alone is used: row by row, and it neither raises nor warns by a value.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Protocol

import numpy as np
import pandas as pd

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.cells import Cells
from kmeanalyst.releases.domain.column import KEPT, Column, Columns, DomainError
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import FROM_SCALE, TO_SCALE, Cyclic, Date, Number
from kmeanalyst.releases.expressions import Expression, ExpressionError, parse
from kmeanalyst.releases.expressions.cuts import cuts_of
from kmeanalyst.releases.memo import kept
from kmeanalyst.releases.rules.rule import ALWAYS, COMBINATIONS, DERIVE, MISSING, MOST_COUPLED, Rule

_MOST_POINTS = 2**22  # combinations of values at which a rule is tried
_AT_ONCE = 2**18
_MOST_CUTS = 20  # values of a column of numbers in combinations, up to which ranges end around each
_MOST_VALUES = {1: 100_000, 2: 1000}  # of a column of whole numbers, in a rule of so many columns
_FEW_VALUES = 40  # in a rule of more
_OF_A_RANGE = {1: 9, 2: 9}
_FEW_OF_A_RANGE = 4
_BESIDE_END = 1e-9  # of a range's width


class RuledColumns(Columns, Protocol):
    """A domain: its columns and its rules."""

    @property
    def rules(self) -> tuple[Rule, ...]: ...

    def draw(self, n: int, rng: np.random.Generator | int) -> Array: ...


class Ruled(Protocol):
    @property
    def domain(self) -> RuledColumns: ...


@dataclass(frozen=True)
class CompiledRule:
    """A rule that fits a domain.

    columns     indices of the columns that it couples, increasing.
    expression  of never: true where the rule is broken; of always: the same, its condition denied; of missing and derive as
                written; None of combinations.
    codes       of combinations the encoded rows there are, (m, columns), in the order of `columns`.
    target      the column that is missing or derived; -1 of other kinds.
    """

    rule: Rule
    columns: tuple[int, ...]
    expression: Expression | None = None
    codes: Array = field(default_factory=lambda: np.zeros((0, 0)), repr=False)
    target: int = -1


@dataclass(frozen=True, eq=False)
class Rules:
    """The rules of a domain, in its order, ready to be applied to encoded rows (n, d).

    >>> columns = (ka.Integer(name="age", lower=0, upper=99), ka.Boolean(name="works"))
    >>> rules_of(ka.Domain(columns, rules=(Rule("never", "works and age < 15"),))).broken(np.array([[9.0, 1.0], [40.0, 1.0]]))
    array([ True, False])
    """

    domain: RuledColumns
    compiled: tuple[CompiledRule, ...]

    def __len__(self) -> int:
        return len(self.compiled)

    @property
    def columns(self) -> tuple[tuple[int, ...], ...]:
        return tuple(one.columns for one in self.compiled)

    @cached_property
    def cuts(self) -> Mapping[int, tuple[float, ...]]:
        """For columns of numbers, by index, where a rule changes, in encoded units, increasing: measured ranges can end there."""
        compared = [each for one in self.compiled if one.expression for each in one.expression.compared]
        for one in self.compiled:
            for at, j in enumerate(one.columns if one.rule.kind == COMBINATIONS else ()):
                column, codes = self.domain.columns[j], np.unique(one.codes[:, at])
                if isinstance(column, Number) and len(codes) <= _MOST_CUTS:
                    cells = column.decode(codes[~np.isnan(codes)])
                    written = cells.dt.strftime("%Y-%m-%d") if isinstance(column, Date) else cells.astype(float)
                    compared += [(column.name, "==", value) for value in written]
        found = cuts_of(compared, self.domain)
        return {j: tuple(sorted(own)) for j, own in found.items() if own}

    @cached_property
    def cells(self) -> Cells:
        """Cells of the columns that rules name, cut where a rule changes and nowhere else; of the others, one cell."""
        columns, named = self.domain.columns, {j for own in self.columns for j in own}
        edges = tuple(column.cut_at(self.cuts.get(j, ())) if j in named else () for j, column in enumerate(columns))
        return Cells(edges, ((),) * len(columns), tuple(column.missing for column in columns))

    @property
    def derived(self) -> Mapping[int, Expression]:
        """The expression of each derived column, by its index; each names only columns before it here, or that are not derived."""
        return {one.target: one.expression for one in self._in_order if one.expression}

    @cached_property
    def differences(self) -> list[tuple[int, int, int]]:
        """The columns d, a, b of each derived column d = a - b of numbers."""
        names, columns = self.domain.names, self.domain.columns
        pairs = ((d, own.difference) for d, own in self.derived.items())
        found = [(d, names.index(pair[0]), names.index(pair[1])) for d, pair in pairs if pair]
        return [own for own in found if all(isinstance(columns[j], Number) for j in own)]

    @cached_property
    def comparable(self) -> Mapping[tuple[str, str], tuple[str, float, float]]:
        """Columns a, b → the derived column of a - b, and its bounds: comparisons with numbers between them are those with a - b.

        Of columns whose steps are no coarser than those of the two, and that can be missing if these can.
        """
        columns, found = self.domain.columns, {}
        for own in self.differences:
            d, *sides = (columns[j] for j in own)
            assert isinstance(d, Number)
            finer = d.grain is None or all(_is_multiple(side.grain, d.grain) for side in sides)  # type: ignore[attr-defined]
            if not isinstance(d, Cyclic) and finer and d.missing >= any(side.missing for side in sides):
                found[sides[0].name, sides[1].name] = (d.name, *d.natural_bounds)
        return found

    @cached_property
    def _in_order(self) -> list[CompiledRule]:
        """The rules of derived columns, each after those that it needs, without those that need each other."""
        waiting = {one.target: one for one in self.compiled if one.rule.kind == DERIVE}
        found: list[CompiledRule] = []
        while ready := [j for j, one in waiting.items() if not set(one.columns) - {j} & set(waiting)]:
            found += [waiting.pop(j) for j in ready]
        return found

    def frame(self, cells: Mapping[int, Array]) -> pd.DataFrame:
        own = self.domain.columns
        return pd.DataFrame({own[j].name: own[j].decode(values) for j, values in cells.items()})

    def with_derived(self, X: Array) -> Array:
        """Encoded rows whose derived columns are computed from their other cells; X itself where no column is derived.

        An undefined value becomes missing where that is declared, else the column's default. Row by row, without a warning.
        """
        if not self._in_order:
            return X
        X = X.copy()
        for one in self._in_order:
            X[:, one.target] = self._derived(one, _cells(X, one.columns))
        return X

    def _named(self, one: CompiledRule, cells: Mapping[int, Array]) -> pd.DataFrame:
        return self.frame({j: values for j, values in cells.items() if j != one.target})

    def _derived(self, one: CompiledRule, cells: Mapping[int, Array], frame: pd.DataFrame | None = None) -> Array:
        """The encoded derived cells (n,) of rows with these cells in the rule's other columns; `frame` has them decoded."""
        assert one.expression is not None
        column = self.domain.columns[one.target]
        values = one.expression.evaluate(self._named(one, cells) if frame is None else frame, self.domain)
        if isinstance(column, Boolean):
            return values.astype(np.float64)
        with np.errstate(all="ignore"):
            return column.encode(values.astype(np.float64))[0]

    def broken_by(self, X: Array) -> Array:
        """(n, R) whether each encoded row breaks each rule; a derived cell does that is not what the other cells give."""
        frame = self.frame(_cells(X, sorted({j for one in self.compiled for j in one.columns})))
        found = np.zeros((len(X), len(self)), dtype=bool)
        for i, one in enumerate(self.compiled):
            found[:, i] = self._broken(one, _cells(X, one.columns), frame)
        return found

    def broken(self, X: Array) -> Array:
        return np.asarray(self.broken_by(X).any(axis=1))

    def _broken(self, one: CompiledRule, cells: Mapping[int, Array], frame: pd.DataFrame | None = None) -> Array:
        """(n,) whether rows with these cells in the rule's columns break it; `frame` has them decoded."""
        if one.rule.kind == COMBINATIONS:
            return ~_are_among(np.column_stack([cells[j] for j in one.columns]), one.codes)
        assert one.expression is not None
        if one.rule.kind == DERIVE:
            computed = self._derived(one, cells, frame)
            return ~np.isclose(cells[one.target], computed, rtol=1e-12, atol=0.0, equal_nan=True)
        holds = one.expression.evaluate(self._named(one, cells) if frame is None else frame, self.domain)
        return np.isnan(cells[one.target]) != holds if one.target >= 0 else holds

    def cells_allowed(self, within: Cells, rule: int) -> Array:
        """Of all cells of a rule's columns together, which hold a row that keeps the rule: bool, of shape their sizes.

        within   cells of the domain's columns, in order; the axes are the rule's columns, increasing.

        Exact for levels, missing cells, atoms, whole numbers of at most a thousand values in a rule of one or two columns, and
        ranges that end where the rule changes (`cuts`). Elsewhere a cell is tried at values at its ends and inside it: one where
        none of them keeps the rule counts as forbidden. A range that holds no value of its column is forbidden. Of a derived
        number all cells between the least and the largest value found are allowed; with % in its expression, all cells.
        Errors   DomainError if there are more than four million combinations of values to try.
        """
        one = self.compiled[rule]
        allowed = np.zeros([within.sizes[j] for j in one.columns], dtype=bool)
        if one.rule.kind == DERIVE and "%" in one.rule.text:  # a remainder runs through its range again and again
            return np.ones_like(allowed)
        spans = _Spans(allowed.shape, one.columns.index(one.target)) if one.rule.kind == DERIVE else None
        for tried in self._tried(rule, within):
            held = slice(None) if one.rule.kind in (COMBINATIONS, DERIVE) else ~self._broken(one, tried)
            kept = {j: values[held] for j, values in tried.items()}
            cells = np.column_stack([within.cells_of(j, kept[j]) for j in one.columns])
            allowed[tuple(cells.T)] = True
            if spans is not None:
                spans.add(cells, kept[one.target])
        if spans is not None and self.domain.columns[one.target].is_number:
            allowed |= spans.cells(within.edges[one.target], within.atoms[one.target])
        return allowed

    def _tried(self, rule: int, within: Cells) -> Iterator[dict[int, Array]]:
        """Encoded cells of a rule's columns at which it is tried, in blocks: all values, or some of each cell.

        Of combinations and derived columns these are rows that keep the rule.
        """
        one = self.compiled[rule]
        if one.rule.kind == COMBINATIONS:
            yield dict(zip(one.columns, one.codes.T, strict=True))
            return
        n = self.n_tried(rule, within)
        free, values = self._free_values(one, within)
        sizes = [len(own) for own in values]
        for start in range(0, n, _AT_ONCE):
            at = np.unravel_index(np.arange(start, min(start + _AT_ONCE, n)), sizes)
            cells = {j: own[indices] for j, own, indices in zip(free, values, at, strict=True)}
            yield cells | ({one.target: self._derived(one, cells)} if one.rule.kind == DERIVE else {})

    def n_tried(self, rule: int, within: Cells | None = None) -> int:
        """The number of rows at which `cells_allowed` tries a rule; DomainError if they are more than four million."""
        one = self.compiled[rule]
        n = len(one.codes) or math.prod(len(own) for own in self._free_values(one, within)[1])
        if n > _MOST_POINTS:
            raise DomainError(
                f"{one.rule.named(rule + 1)} couples columns with {n:,} combinations of values, and at most {_MOST_POINTS:,} are "
                "tried. Couple fewer columns, or columns with fewer levels."
            )
        return n

    def _free_values(self, one: CompiledRule, within: Cells | None) -> tuple[list[int], list[Array]]:
        free = [j for j in one.columns if not (one.rule.kind == DERIVE and j == one.target)]
        return free, [self._values(j, free, within) for j in free]

    def _values(self, j: int, free: Sequence[int], within: Cells | None) -> Array:
        coupled = len(free)
        also = [k for k in free if k != j] if coupled == 2 else []  # columns that are compared need values in common
        edges = [*self._ends(j, within), *(end for k in also for end in self._natural_ends(k, within, j))]
        atoms = [*self.equated.get(j, ()), *(within.atoms[j] if within else ())]
        return values_of(self.domain.columns[j], edges, atoms, coupled)

    def _ends(self, j: int, within: Cells | None) -> tuple[float, ...]:
        return (*self.cuts.get(j, ()), *(within.edges[j] if within else ()))

    def _natural_ends(self, k: int, within: Cells | None, j: int) -> list[float]:
        """Where ranges of column k end, in the encoded units of column j, if both are numbers."""
        theirs, own = self.domain.columns[k], self.domain.columns[j]
        if not (isinstance(theirs, Number) and isinstance(own, Number)):
            return []
        with np.errstate(all="ignore"):
            natural = FROM_SCALE[theirs.scale](np.array(self._ends(k, within), dtype=float))
            ends = TO_SCALE[own.scale](natural)
        return [float(end) for end in ends if np.isfinite(end)]

    @cached_property
    def equated(self) -> dict[int, list[float]]:
        found: dict[int, list[float]] = {}
        for one in self.compiled:
            for name, value in one.expression.equated if one.expression else ():
                j = self.domain.names.index(name)
                if isinstance(column := self.domain.columns[j], Number):
                    found.setdefault(j, []).append(float(column.encode(np.array([value]))[0][0]))
        return found


class _Spans:
    """The least and the largest derived value that was found in each combination of the other columns' cells.

    shape   cells of the rule's columns.
    axis    the derived one among them.
    """

    def __init__(self, shape: tuple[int, ...], axis: int) -> None:
        self.shape, self.axis = shape, axis
        self.others = tuple(np.delete(np.array(shape), axis).tolist())
        self.least, self.largest = np.full(math.prod(self.others), np.inf), np.full(math.prod(self.others), -np.inf)

    def add(self, cells: Array, values: Array) -> None:
        """Rows in these cells (n, columns), with these derived values (n,), NaN for a missing one."""
        at = np.ravel_multi_index(tuple(np.delete(cells, self.axis, axis=1).T), self.others)
        np.fmin.at(self.least, at, values)
        np.fmax.at(self.largest, at, values)

    def cells(self, edges: Sequence[float], atoms: Sequence[float]) -> Array:
        """The cells, of `shape`, between them: ranges that end at `edges`, and atoms."""
        below = np.array([-np.inf, *edges, *atoms])
        highest = np.array([*np.nextafter(np.array(edges, dtype=float), -np.inf), np.inf, *atoms])  # of each cell
        inside = np.zeros((*self.others, self.shape[self.axis]), dtype=bool)
        found = (below <= self.largest[:, None]) & (highest >= self.least[:, None])
        inside[..., : len(below)] = found.reshape(*self.others, len(below))
        return np.moveaxis(inside, -1, self.axis)


def _cells(X: Array, columns: Sequence[int]) -> dict[int, Array]:
    return {j: X[:, j] for j in columns}


def _are_among(rows: Array, codes: Array) -> Array:
    both = np.vstack([codes, rows])
    numbers = np.zeros(len(both), dtype=np.intp)
    for column in both.T:
        _, own = np.unique(column, return_inverse=True, equal_nan=True)
        _, numbers = np.unique(numbers * (own.max() + 1) + own, return_inverse=True)
    return np.isin(numbers[len(codes) :], numbers[: len(codes)])


# ------------------------------------------------------------------ values at which rules are tried


def values_of(column: Column, edges: Sequence[float], atoms: Sequence[float], coupled: int) -> Array:
    """Encoded values of a column, increasing, NaN last where a cell can be missing.

    edges     where ranges end, in encoded units: each range has values at its ends and inside.
    atoms     single values to have in any case.
    coupled   columns that are tried together: the more, the fewer values of each.

    >>> values_of(ka.Integer(name="age", lower=0, upper=500), (14.5,), (40,), 4)
    array([  0.,   4.,   9.,  14.,  15.,  40., 176., 338., 500.])
    """
    if column.has_levels:
        return column.with_missing(np.arange(len(column.levels), dtype=float))  # type: ignore[attr-defined]
    every = column.every_value(_MOST_VALUES.get(coupled, _FEW_VALUES))
    if every is not None:
        return every
    assert isinstance(column, Number)
    low, high = column.ends
    ends = np.unique([low, high, *(edge for edge in edges if low < edge < high)])
    inside = [_of_range(column, a, b, _OF_A_RANGE.get(coupled, _FEW_OF_A_RANGE)) for a, b in pairwise(ends)]
    own = [*atoms, *column.atom_codes, *([low, high] if column.grain is None else [])]
    return column.with_missing(np.unique(column.rounded(np.concatenate([*inside, np.array(own, dtype=float)]))))


def _of_range(column: Number, below: float, above: float, most: int) -> Array:
    """Values of [below, above): its ends and some inside; none where no value lies in it."""
    if column.grain is None:
        # not the end itself: a cell where a comparison holds at its end alone has hardly a row for which it does
        inside = np.linspace(below, above, most)[:-1] + _BESIDE_END * (above - below) * (np.arange(most - 1) == 0)
        return np.append(inside, np.nextafter(above, below))
    first, last = column.multiples(FROM_SCALE[column.scale](np.array([below, above])), np.ceil) - (0.0, column.grain)
    if first > last:
        return np.zeros(0)
    return np.asarray(column._scaled(np.unique(column.multiples(np.linspace(first, last, most), np.floor))))


# ------------------------------------------------------------------ texts → rules that fit the domain


def rules_of(domain: RuledColumns) -> Rules:
    """The rules of a domain, compiled once; DomainError for the first that does not fit it, before any table is opened."""

    def make() -> Rules:
        compiled = tuple(_compiled(rule, domain, number) for number, rule in enumerate(domain.rules, 1))
        rules = Rules(domain, compiled)
        _check_together(rules)
        return rules

    return kept(domain, "rules", make)  # type: ignore[arg-type]  # every Domain is Memoised


def asked_of(release: Ruled, question: str) -> Expression:
    """A question by derived columns of differences, which were measured by themselves, where that has the same meaning."""
    return parse(question).through(rules_of(release.domain).comparable)


def _is_multiple(step: float | None, of: float) -> bool:
    return step is not None and math.isclose(step / of, round(step / of), rel_tol=1e-9)


def _compiled(rule: Rule, domain: RuledColumns, number: int) -> CompiledRule:
    try:
        one = _with_codes(rule, domain) if rule.kind == COMBINATIONS else _with_expression(rule, domain)
    except (ExpressionError, DomainError) as error:
        raise DomainError(f"{rule.named(number)}: {error}") from None
    if len(one.columns) > MOST_COUPLED:
        raise DomainError(
            f"{rule.named(number)} couples {len(one.columns)} columns, and at most {MOST_COUPLED} can be kept in the fit. Write "
            "several rules of fewer columns."
        )
    return one


def _check_column(name: str, domain: Columns) -> int:
    if name not in domain.names:
        raise DomainError(f"there is no column {name!r:.200}: name one of {', '.join(domain.names)[:500]}.")
    j = domain.names.index(name)
    if domain.columns[j].is_text:
        raise DomainError(f"column {name} holds strings, and rules are about levels, numbers and days. Leave it out.")
    return j


def _with_expression(rule: Rule, domain: Columns) -> CompiledRule:
    expression = parse(rule.text)
    kind = expression.check(domain)
    named = [_check_column(name, domain) for name in expression.columns]
    if not named:
        raise DomainError("it names no column, so that it says nothing of a row. Name one.")
    target = _check_column(rule.columns[0], domain) if rule.columns else -1
    if target in named:
        raise DomainError(f"{rule.columns[0]} would depend on itself. Name other columns, or write never or always.")
    if rule.kind == DERIVE:
        _check_derived(domain, target, kind)
    elif kind != "condition":
        raise DomainError(f"a condition is needed here, and {rule.text} is a number. Compare it, as in {rule.text} > 0.")
    if rule.kind == MISSING and not domain.columns[target].missing:
        raise DomainError(f"{rule.columns[0]} has no missing cells in this domain. Write missing = true in its [[column]].")
    if rule.kind == ALWAYS:
        expression = expression.denied()
    return CompiledRule(rule, tuple(sorted({*named, target} - {-1})), expression, target=target)


def _check_derived(domain: Columns, target: int, kind: str) -> None:
    column = domain.columns[target]
    if isinstance(column, Boolean) and kind != "condition":
        raise DomainError(f"{column.name} is boolean, and the expression is a number. Compare it, as in ... > 0.")
    if isinstance(column, Date) or (isinstance(column, Categorical) and not isinstance(column, Boolean) and kind == "condition"):
        raise DomainError(
            f"{column.name} is {column.kind}, and the expression gives a {kind}. Derive a column of numbers, a boolean from a "
            "condition, or levels that are written as numbers."
        )


def _with_codes(rule: Rule, domain: Columns) -> CompiledRule:
    indices = [_check_column(name, domain) for name in rule.columns]
    order = np.argsort(indices)
    codes = np.empty((len(rule.rows), len(indices)))
    for at, j in enumerate(indices):
        column, cells = domain.columns[j], [row[at] for row in rule.rows]
        codes[:, at], status = column.encode(cells)
        absent = np.array([not cell for cell in cells])
        if (wrong := (status != KEPT) | (absent & (not column.missing))).any():
            cell = cells[int(np.flatnonzero(wrong)[0])]
            raise DomainError(
                f"{cell!r:.80} is not a value of column {column.name}, which is {column.describe():.200}. Remove the row, or widen "
                "the column."
            )
    return CompiledRule(rule, tuple(indices[k] for k in order), codes=codes[:, order])


def _check_together(rules: Rules) -> None:
    """DomainError where two rules say how one column comes about, or derived columns depend on each other in a circle."""
    names = rules.domain.names
    for kind in (MISSING, DERIVE):
        targets = Counter(one.target for one in rules.compiled if one.rule.kind == kind)
        if twice := [names[j] for j, times in targets.items() if times > 1]:
            raise DomainError(
                f"two rules of kind {kind} are about the column {twice[0]}: they would contradict each other. Write one."
            )
    derived = [one.target for one in rules.compiled if one.rule.kind == DERIVE]
    if circular := [names[j] for j in derived if j not in rules.derived]:
        raise DomainError(
            f"the derived columns {', '.join(circular)} depend on each other in a circle. Compute one of them from others."
        )
