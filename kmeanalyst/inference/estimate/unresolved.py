"""What of a question the measurement does not show, what the rules decide of it, and which measurement would show more.

A single value of a number has a probability of its own only where it is a cell; else it may be anything up to the mass of its
cell, and that is the resolution of the answer. A level that no row has may have what the noise on its count leaves possible.

An event is impossible if no combination of cells of its columns and of the rules' columns is left when it is one more rule, and
certain if its opposite is impossible. Only questions and rules that compare cells with values, or with each other, take part.
The answer then holds given the rules: with v the share of recorded rows that break one, it may be off by up to v/(1 − v).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.domain.column import DomainError
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Number
from kmeanalyst.releases.domain.tree_column import Tree
from kmeanalyst.releases.expressions import Expression, ExpressionError, any_of, parse, words
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.releases.memo import kept
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.releases.rules.compiled import CompiledRule, rules_of
from kmeanalyst.releases.rules.rule import ALWAYS, COMBINATIONS, NEVER, Rule
from kmeanalyst.releases.rules.violations import Violation, violations_of
from kmeanalyst.representation.tables.allowed_cells import AllowedCells

_NEAR = 0.02  # of a column's range: a smooth measurement does not distinguish values that are nearer
_RARELY = 0.05  # probability that a level is more frequent than its noisy count leaves possible
_STRINGS = re.compile(r"'[^']*'|\"[^\"]*\"")
_QUOTED, _WORDS = re.compile(r"`([^`]*)`"), re.compile(r"[^\W\d]\w*")


def unresolved_mass(
    release: ReleaseData, question: str, frame: pd.DataFrame, weights: Array, probability: float = 1.0
) -> float:
    """How much probability the values may have that a question equates columns with, if none of the rows has them.

    frame, weights  (n,) rows in natural units, and their weights. The sum over values, at most 1.
    probability     of the condition that weights are given.
    """
    if release.measurement is None:
        return 0.0
    mass = _mass_of_levels(release, release.measurement, question) / probability
    for name, value in expression.equated if (expression := _parsed(question)) else ():
        column: Any = release.columns[name] if name in release.domain.names else None
        if isinstance(column, Number):
            mass += _mass_near(release, column, value, frame, weights)
    return min(mass, 1.0)


def equates_numbers(release: ReleaseData, question: str) -> bool:
    """Whether a question asks for single values of a column of numbers that are no atoms."""
    equated = expression.equated if (expression := _parsed(question)) else ()
    columns = [(release.domain[name], value) for name, value in equated if name in release.domain.names]
    return bool(columns) and all(
        isinstance(column, Number) and value not in column._numbers(column.atoms) for column, value in columns
    )


def conditions_joined(question: str) -> list[str]:
    """The conditions of which all must hold, as texts, those of the same columns as one; none of a text that is no expression."""
    by_columns: dict[frozenset[str], list[str]] = {}
    for part in expression.joined if (expression := _parsed(question)) else ():
        by_columns.setdefault(frozenset(parse(part).columns), []).append(part)
    return [
        parts[0] if len(parts) == 1 else " and ".join(f"({part})" for part in parts) for parts in by_columns.values()
    ]


def mass_of_pair(release: ReleaseData, conditions: Sequence[str]) -> float | None:
    """The most, at 95 %, that a level of one column may have with one of another; None unless their table was measured."""
    asked, measurement, cell = [parse(each).asked_of for each in conditions], release.measurement, dict[int, int]()
    if measurement is None or len(asked) != 2 or not isinstance(measurement.feature_map, MarginFeatures):
        return None
    for one in asked:
        column = release.domain[one[0]] if one is not None and one[0] in release.domain.names else None
        if one is None or len(one[1]) != 1 or not isinstance(column, Categorical) or isinstance(column, Tree):
            return None
        code = column.parse(one[1][0])
        if code is None:
            return None
        cell[release.domain.position(one[0])] = int(code)
    return _most_by(_noisy_cells(measurement, measurement.feature_map, cell)) if len(cell) == 2 else None


def _noisy_cells(
    measurement: Measurement, features: MarginFeatures, cell: dict[int, int]
) -> Iterator[tuple[float, float]]:
    """The noisy share of a cell of two columns, by index, and its standard deviation, in each table that counts it."""
    columns = sorted(cell)
    for group in features.groups:
        for table, square, (first, last) in zip(group.tables, group.squares, group.ranges, strict=True):
            if group.kind.startswith("pairs") and sorted(table[-2:]) == columns:
                shares = measurement.vector[first:last].reshape(-1, *(group.sizes[j] for j in table[-2:]))
                own = shares[:, cell[table[-2]], cell[table[-1]]]
                yield float(own.sum()) / np.sqrt(square), measurement.noise_scale / np.sqrt(square) * np.sqrt(own.size)


def _most_by(shares: Iterable[tuple[float, float]]) -> float | None:
    """The end of the interval of the share whose standard deviation is least; None where there is no share."""
    found = min(shares, key=lambda share: share[1], default=None)
    return None if found is None else _upper_end(*found)


def _upper_end(share: float, deviation: float) -> float:
    """The end of a one-sided 95 % interval of a share that is at least 0, from its noisy value."""
    return share + deviation * float(-ndtri(_RARELY * ndtr(share / deviation)))


def _parsed(question: str) -> Expression | None:
    try:
        return parse(question)
    except ExpressionError:
        return None


def _mass_near(release: ReleaseData, column: Number, value: float, frame: pd.DataFrame, weights: Array) -> float:
    """The most probability that the values may have which the measurement does not tell from this one."""
    assert release.measurement is not None
    features = release.measurement.feature_map
    if not float(column.lower) <= value <= float(column.upper):
        return 0.0
    codes, own = column.encode(frame[column.name].iloc[: len(weights)])[0], float(column.encode([value])[0][0])
    if not isinstance(features, MarginFeatures):
        return float(np.clip(weights @ (np.abs(codes - own) <= _NEAR * np.ptp(column.bounds)), 0.0, 1.0))
    j = release.domain.position(column.name)
    kernel, ends = features.kernel, column.ends
    edges = next((edges for other, edges in reversed(kernel.finer_tables) if other == j), kernel.edges[j])
    mass = float(weights @ (kernel.cells_of(j, codes, edges) == kernel.cells_of(j, np.array([own]), edges)))
    after = int(np.searchsorted(edges, own, side="right"))
    around = np.array([ends[0], *edges, ends[1]])[after : after + 2]
    counted = _most_by(_noisy_shares(release.measurement, features, j, around, ends))
    return float(np.clip(max(mass, counted or 0.0), 0.0, 1.0))


def _mass_of_levels(release: ReleaseData, measurement: Measurement, question: str) -> float:
    """The most that levels may add up to by their noisy counts, at 95 % each; 0 for a question that asks for more than levels."""
    expression, features = _parsed(question), measurement.feature_map
    asked = expression.asked_of if expression else None
    if asked is None or asked[0] not in release.domain.names or not isinstance(features, MarginFeatures):
        return 0.0
    name, texts = asked
    column = release.domain[name]
    if not isinstance(column, Categorical):
        return 0.0
    j, mass = release.domain.position(name), 0.0
    for text in texts:
        code = column.parse(text)
        span = column.span(text) if isinstance(column, Tree) else None if code is None else (int(code), int(code) + 1)
        ends = np.array(span or (0, 0)) - 0.5  # a text that is no level is an empty range
        mass += _most_by(_noisy_shares(measurement, features, j, ends, (-0.5, len(column.levels) - 0.5))) or 0.0
    return mass


def _noisy_shares(
    measurement: Measurement, features: MarginFeatures, j: int, ends: Array, limits: tuple[float, float]
) -> Iterator[tuple[float, float]]:
    """The noisy share of a range of codes, and its standard deviation, in each one-way table of which it is a union of cells.

    ends   where the range starts and ends; limits: where the column does.
    """
    kernel, d = features.kernel, len(features.kernel.edges)
    edges_of = {d + t: edges for t, (column, edges) in enumerate(kernel.finer_tables) if column == j}
    edges_of[j] = kernel.edges[j]
    for group in features.groups:
        for table, square, (first, last) in zip(group.tables, group.squares, group.ranges, strict=True):
            if group.kind.startswith("pairs") or table[-1] not in edges_of:
                continue
            bounds = np.array([limits[0], *edges_of[table[-1]], limits[1]])
            inside = np.flatnonzero((bounds[:-1] >= ends[0]) & (bounds[1:] <= ends[1]))
            if len(inside) and bounds[inside[0]] == ends[0] and bounds[inside[-1] + 1] == ends[1]:
                cells = measurement.vector[first:last].reshape(-1, group.sizes[table[-1]])[:, inside]
                height = np.sqrt(square)
                yield float(cells.sum()) / height, measurement.noise_scale / height * np.sqrt(cells.size)


def what_would_help(release: ReleaseData, question: str) -> str:
    """A note on an answer whose error is mostly resolution: which measurement would show more; "" where none is known."""
    assert release.measurement is not None
    columns = [name for name in release.domain.names if name in _names(release, question)]
    if not columns:
        return ""
    together = " × ".join(map(words.written, columns))
    missing = _missing(release, columns, together)
    return missing and f"more than half of its variance is resolution: {missing}"


def _missing(release: ReleaseData, columns: list[str], together: str) -> str:
    assert release.measurement is not None
    feature_map: FeatureMap = release.measurement.feature_map
    numbers = [words.written(name) for name in columns if isinstance(release.domain[name], Number)]
    if not isinstance(feature_map, MarginFeatures):
        crossed = len(columns) > 2
        option = f"--target {words.written(columns[-1])}" if crossed else "--kernel margins"
        return f"a release with {option} counts cells of {together}, where this one has smooth features of all columns"
    target = feature_map.kernel.target
    places = [release.domain.names.index(name) for name in columns]
    if not all(release.measurement.counted_together(i, j) for i, j in combinations(places, 2)):
        which = "A release with --workload counts the pairs that it names, one with --kernel margins all"
        return f"{together} was not counted, as scores did not show a relation. {which}"
    others = [name for name in columns if target < 0 or name != release.domain.names[target]]
    if len(others) > 2 and target < 0:
        return f"{together} was not counted together. A release with one of them as --target counts pairs of the others with it"
    if len(others) > 2:
        return f"{together} was not counted together, and no release counts so many columns"
    if numbers:
        which = " and ".join(numbers)
        return f"values within the ranges of {which} were not distinguished. A domain with edges where the question changes does"
    return ""  # its cells were counted


def _names(release: ReleaseData, question: str) -> set[str]:
    bare = _STRINGS.sub(" ", question)
    found = set(_QUOTED.findall(bare)) | set(_WORDS.findall(_QUOTED.sub(" ", bare)))
    for derived in reversed(release.derived):
        if derived.column.name in found:
            found |= set(parse(derived.expression).columns)
    return found


_MOST_ASKED = 6  # columns that a question names


@dataclass(frozen=True)
class Declared:
    """What rules decide of a question.

    holds   whether its event is certain; else it is impossible.
    rules   the indices of the rules that decide it.
    """

    holds: bool
    rules: tuple[int, ...]


@lru_cache(maxsize=256)
def declared(domain: Domain, question: str, where: tuple[str, ...] = ()) -> Declared | None:
    """What the rules of a domain decide of a condition, given conditions; None where they leave it open.

    >>> from kmeanalyst.releases.rules.rule import Rule
    >>> columns = ka.Integer(name="age", lower=0, upper=99), ka.Boolean(name="works")
    >>> own = ka.Domain(columns, (Rule("never", "works and age < 15"),))
    >>> declared(own, "age >= 12", ("works",))
    Declared(holds=True, rules=(0,))
    >>> declared(own, "age >= 18", ("works",)) is None
    True
    """
    given = " and ".join(f"({condition})" for condition in where)
    with_given = f"{given} and " if given else ""
    for holds, event in ((False, f"{with_given}({question})"), (True, f"{with_given}not ({question})")):
        if rules := _excluding(domain, event):
            return Declared(holds, rules)
    return None


def declared_by(release: ReleaseData, question: object, where: Sequence[object]) -> Declared | None:
    """The same for a question that was asked of a release: None for one that is no text, or names a column that was added."""
    conditions = tuple(one for one in where if isinstance(one, str))
    if not release.domain.rules or not isinstance(question, str) or len(conditions) < len(where):
        return None
    try:
        named = {name for text in (question, *conditions) for name in parse(text).columns}
    except ExpressionError:
        return None
    return declared(release.domain, question, conditions) if named <= set(release.domain.names) else None


def note_of(release: ReleaseData, found: Declared) -> str:
    """What an answer by declaration says of itself."""
    rules = rules_of(release.domain)
    names = "; ".join(rules.compiled[i].rule.named(i + 1) for i in found.rules)
    seen = [violation for violation in violations(release) if violation.rule in found.rules]
    broken = "; ".join(violation.describe() for violation in seen) or "the measurement does not show how many do"
    return (
        f"by declaration ({names}): exact given the rules. Against the table as recorded it may be off by v/(1 - v), v the "
        f"share of its rows (of those that meet the condition, if there is one) that break them: {broken}"
    )


def impossible_condition(release: ReleaseData, where: Sequence[object]) -> str:
    """Which rules exclude conditions together, as part of a message; "" where they do not."""
    found = declared_by(release, where[0], where[1:])
    if found is None or found.holds:
        return ""
    rules = rules_of(release.domain)
    return "; ".join(rules.compiled[i].rule.named(i + 1) for i in found.rules)


def contradiction_notes(release: ReleaseData) -> tuple[str, ...]:
    """A note where the measurement contradicts a rule."""
    found = "; ".join(violation.describe() for violation in violations(release) if violation.is_contradicted)
    return (f"the measurement contradicts a rule that the answer assumes: {found}",) if found else ()


def violations(release: ReleaseData) -> tuple[Violation, ...]:
    return kept(release, "violations", lambda: violations_of(release.domain, release.measurement))


def _excluding(domain: Domain, event: str) -> tuple[int, ...]:
    """The rules that exclude an event, as few as removing one after the other finds; () if they do not."""
    try:
        expression, otherwise = parse(event), parse(f"not ({event})")
    except ExpressionError:  # too long, together
        return ()
    if not expression.compares_alone or len(expression.columns) > _MOST_ASKED:
        return ()
    columns = [domain.position(name) for name in expression.columns]
    if any(domain.columns[j].is_text for j in columns):
        return ()
    rules = rules_of(domain)
    asked = CompiledRule(Rule(NEVER, event), tuple(sorted(columns)), otherwise)
    plain = [
        i
        for i, one in enumerate(rules.compiled)
        if one.rule.kind == COMBINATIONS or (one.expression is not None and one.expression.compares_alone)
    ]
    together = replace(rules, compiled=(*(rules.compiled[i] for i in plain), asked))
    cells = together.cells
    try:
        tables = [(own, together.cells_allowed(cells, i)) for i, own in enumerate(together.columns)]
    except DomainError:  # too many values to try
        return ()

    def impossible(some: Sequence[int]) -> bool:
        # conditions on the event's columns alone: in a cell, both may have rows, and none in common
        own = [one for one in (together.compiled[i] for i in some) if set(one.columns) <= set(asked.columns)]
        inside = [one.expression for one in own if one.rule.kind in (NEVER, ALWAYS) and one.expression is not None]
        joint = replace(asked, expression=any_of(otherwise, *inside))
        left = replace(together, compiled=(joint,)).cells_allowed(cells, 0) if inside else tables[-1][1]
        return not AllowedCells.of([*(tables[i] for i in some), (asked.columns, left)], cells).any_left

    excluding = list(range(len(plain)))
    if impossible([]) or not impossible(excluding):  # the event is impossible by itself, or possible
        return ()
    for i in range(len(plain)):
        if impossible(fewer := [k for k in excluding if k != i]):
            excluding = fewer
    return tuple(plain[i] for i in excluding)
