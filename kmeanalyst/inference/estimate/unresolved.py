"""What of a question the measurement does not show, and which measurement would show more.

A single value of a number has a probability of its own only where it is a cell; else it may be anything up to the mass of its
cell, and that is the resolution of the answer. A level that no row has may have what the noise on its count leaves possible.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.margins import ChosenMargins, MarginFeatures
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import FROM_SCALE, Integer, Number, Real
from kmeanalyst.releases.domain.tree_column import Tree
from kmeanalyst.releases.expressions import Expression, ExpressionError, parse, words
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.releases.rules.compiled import asked_of

_NEAR = 0.02  # of a column's range: a smooth measurement does not distinguish values that are nearer
AT_EDGES = (
    0.1  # of a range's mass may be at its first value beyond an even share: tables of strangers.py have .13 to .03
)
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
    mass, expression = _mass_of_levels(release, question) / probability, _parsed(question, release)
    mass += sum(_mass_of_equals(release, *pair, frame, weights) for pair in _equal_numbers(release, expression))
    for name, value in expression.equated if expression else ():
        column: Any = release.columns[name] if name in release.domain.names else None
        if isinstance(column, Number):
            mass += _mass_near(release, column, value, frame, weights)
    return min(mass, 1.0)


def equates_numbers(release: ReleaseData, question: str) -> bool:
    """Whether it asks for single values of a column of numbers that are no atoms and share their cells, or two to be equal."""
    expression = _parsed(question, release)
    equated = expression.equated if expression else ()
    columns = [(release.domain[name], value) for name, value in equated if name in release.domain.names]
    return bool(columns or _equal_numbers(release, expression)) and all(
        isinstance(column, Number)
        and value not in column._numbers(column.atoms)
        and not _is_alone(release, column, value)
        for column, value in columns
    )


def values_at_edges(release: ReleaseData, question: str) -> Iterator[tuple[str, float, Array, Array]]:
    """Columns of steps with the values that it compares them with, if these begin a range of several, and the ends (2,), encoded,
    of that range and of the one in tables of pairs.

    Ranges begin at round numbers, where values heap: `AT_EDGES` of the wider mass may be there, which decides between < and <=.
    """
    features = None if release.measurement is None else release.measurement.feature_map
    for name, _, value in expression.compared if (expression := _parsed(question, release)) else ():
        column: Any = release.domain[name] if name in release.domain.names else None
        steps = isinstance(features, MarginFeatures) and isinstance(column, Integer | Real) and column.grain
        if not steps or not isinstance(value, float) or value in column.atoms or _is_alone(release, column, value):
            continue
        assert isinstance(features, MarginFeatures)
        code = float(column.encode([value])[0][0])
        ends = _range_of(release, features, column, code)[1]
        if np.isclose(column.cuts([value])[0], ends[0]):
            yield name, value, ends, _around_in(column, features.kernel.edges[release.domain.position(name)], code)


def _equal_numbers(release: ReleaseData, expression: Expression | None) -> list[tuple[str, str]]:
    names = [each for each in release.domain.names if isinstance(release.domain[each], Number)]
    return [pair for pair in (expression.equalled if expression else ()) if len({*pair} & {*names}) == 2]


def _mass_of_equals(release: ReleaseData, one: str, two: str, frame: pd.DataFrame, weights: Array) -> float:
    """How much probability rows have whose ranges of both, in tables of pairs, overlap: in as much may the two be equal."""
    features = None if release.measurement is None else release.measurement.feature_map
    ranges = []
    for name in (one, two):
        column: Any = release.domain[name]
        codes = column.encode(frame[name].iloc[: len(weights)])[0]
        edges = features.kernel.edges[release.domain.position(name)] if isinstance(features, MarginFeatures) else ()
        ends = FROM_SCALE[column.scale](np.array([column.ends[0], *edges, column.ends[1]]))
        place = np.clip(np.searchsorted(edges, codes, side="right"), 0, len(edges))
        ranges.append((np.where(np.isnan(codes), np.nan, ends[place]), ends[place + 1]))
    (low, high), (lower, upper) = ranges
    return float(np.clip(weights @ ((low < upper) & (lower < high)), 0.0, 1.0))


def _is_alone(release: ReleaseData, column: Number, value: float) -> bool:
    features = None if release.measurement is None else release.measurement.feature_map
    if column.grain is None or not isinstance(features, MarginFeatures):
        return False
    below, above = FROM_SCALE[column.scale](
        _range_of(release, features, column, float(column.encode([value])[0][0]))[1]
    )
    return bool(above - below < 1.5 * column.grain)


def _range_of(
    release: ReleaseData, features: MarginFeatures, column: Number, code: float
) -> tuple[tuple[float, ...], Array]:
    """The edges of a column's ranges, and the ends (2,) of the range that holds a code."""
    j, kernel = release.domain.position(column.name), features.kernel
    edges = next((edges for other, edges in reversed(kernel.finer_tables) if other == j), kernel.edges[j])
    return edges, _around_in(column, edges, code)


def _around_in(column: Number, edges: Sequence[float], code: float) -> Array:
    after = int(np.searchsorted(edges, code, side="right"))
    return np.array([column.ends[0], *edges, column.ends[1]])[after : after + 2]


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
    ranges: dict[int, Array] = {}
    for name, texts in filter(None, (parse(each).asked_of for each in conditions)):
        column: Any = release.domain[name] if name in release.domain.names else None
        plain = len(texts) == 1 and isinstance(column, Categorical) and not isinstance(column, Tree)
        if plain and (code := column.parse(texts[0])) is not None:
            ranges[release.domain.position(name)] = _around(int(code), int(code) + 1)
    both = release.measurement is not None and len(conditions) == len(ranges) == 2
    return _most_counted(release, ranges) if both else None


def _around(first: int, end: int) -> Array:
    """The ends (2,) of a range of codes of levels, the last of which is before `end`."""
    return np.array([first - 0.5, end - 0.5])


def _most_counted(release: ReleaseData, ranges: dict[int, Array]) -> float | None:
    """The most, at 95 %, that rows within ranges of one or two columns may be: by the noisy table that shows it best.

    ranges   by the column's index, the ends (2,) of a range of codes. None where none has the ranges as unions of its cells.
    """
    found = min(_noisy_shares(release, ranges), key=lambda share: share[1], default=None)
    if found is None:
        return None
    share, deviation = found  # the end of a one-sided 95 % interval of a share that is at least 0
    return share + deviation * float(-ndtri(_RARELY * ndtr(share / deviation)))


def _noisy_shares(release: ReleaseData, ranges: dict[int, Array]) -> Iterator[tuple[float, float]]:
    """The share within the ranges and the deviation of its noise, in each table that has the ranges' columns."""
    assert release.measurement is not None
    measurement, features, domain = release.measurement, release.measurement.feature_map, release.domain
    if not isinstance(features, MarginFeatures):
        return
    kernel, variances = features.kernel, measurement.variances
    columns = [*range(len(kernel.edges)), *kernel.finer]
    edges = [*kernel.edges, *(edges for _, edges in kernel.finer_tables)]
    for group in features.groups:
        for table, square, (first, last) in zip(group.tables, group.squares, group.ranges, strict=True):
            asked = table[-2:] if group.kind.startswith("pairs") else table[-1:]
            if sorted(columns[t] for t in asked) != sorted(ranges):
                continue
            inside = [_inside(domain.columns[columns[t]], edges[t], ranges[columns[t]]) for t in asked]
            if None not in inside:
                shape = (-1, *(group.sizes[t] for t in asked))
                sums = [
                    float(each[first:last].reshape(shape)[:, *inside].sum()) for each in (measurement.vector, variances)
                ]
                yield sums[0] / square**0.5, (sums[1] / square) ** 0.5


def _inside(column: Any, edges: Sequence[float], ends: Array) -> slice | None:
    limits = column.ends if isinstance(column, Number) else _around(0, len(column.levels))
    bounds = np.array([limits[0], *edges, limits[1]])
    first, last = np.searchsorted(bounds, ends)
    exact = last < len(bounds) and first < last and bounds[first] == ends[0] and bounds[last] == ends[1]
    return slice(int(first), int(last)) if exact else None


def _parsed(question: str, release: ReleaseData | None = None) -> Expression | None:
    try:
        return asked_of(release, question) if release else parse(question)
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
    j, kernel = release.domain.position(column.name), features.kernel
    edges, around = _range_of(release, features, column, own)
    mass = float(weights @ (kernel.cells_of(j, codes, edges) == kernel.cells_of(j, np.array([own]), edges)))
    return float(np.clip(max(mass, _most_counted(release, {j: around}) or 0.0), 0.0, 1.0))


def _mass_of_levels(release: ReleaseData, question: str) -> float:
    """The most that levels may add up to by their noisy counts, at 95 % each; 0 for a question that asks for more than levels."""
    expression = _parsed(question, release)
    name, texts = (expression and expression.asked_of) or ("", ())
    column: Any = release.domain[name] if name in release.domain.names else None
    if not isinstance(column, Categorical):
        return 0.0
    j, mass = release.domain.position(name), 0.0
    for text in texts:
        code = column.parse(text)
        span = column.span(text) if isinstance(column, Tree) else None if code is None else (int(code), int(code) + 1)
        mass += _most_counted(release, {j: _around(*span)}) or 0.0 if span else 0.0  # a text may be no level
    return mass


def what_would_help(release: ReleaseData, question: str) -> str:
    """A note on an answer whose error is mostly resolution: which measurement would show more; "" where none is known."""
    named = _names(release, question)
    missing = _missing(release, [name for name in release.domain.names if name in named])
    return missing and f"more than half of its variance is resolution: {missing}"


def _missing(release: ReleaseData, columns: list[str]) -> str:
    assert release.measurement is not None
    feature_map: FeatureMap = release.measurement.feature_map
    together = " × ".join(map(words.written, columns))
    numbers = [words.written(name) for name in columns if isinstance(release.domain[name], Number)]
    if not columns:
        return ""
    if not isinstance(feature_map, MarginFeatures):
        option = "--kernel adaptive" if len(columns) == 1 else "a --workload that names them"
        return f"a release with {option} counts cells of {together}, where this one has smooth features of all columns"
    places = [release.domain.names.index(name) for name in columns]
    if not all(release.measurement.counted_together(i, j) for i, j in combinations(places, 2)):
        if release.statement is not None and release.statement.declared_by:
            return f"{together} is in none of the tables together"
        which = "A release with --workload counts the pairs that it names, one with --target all pairs of a column"
        scored = "its score did not outweigh its table's noise" if release.measurement.scores else "others were drawn"
        return f"{together} was not counted, as {scored}. {which}"
    kernel = feature_map.kernel
    counted = isinstance(kernel, ChosenMargins) and any(set(places) <= set(each) for each in kernel.chosen)
    if len(places) > 2 and not counted:
        how = "A release with one of them as --target looks for sets of columns with it first"
        return f"{together} was not counted together. {how}"
    if numbers:
        how = ", or a table with a column of what compares them" if len(numbers) == 2 else ""
        which, edges = " and ".join(numbers), f"A domain with edges where the question changes{how} does"
        return f"values within the ranges of {which} were not distinguished. {edges}"
    return ""  # its cells were counted


def _names(release: ReleaseData, question: str) -> set[str]:
    bare = _STRINGS.sub(" ", question)
    found = set(_QUOTED.findall(bare)) | set(_WORDS.findall(_QUOTED.sub(" ", bare)))
    for derived in reversed(release.derived):
        if derived.column.name in found:
            found |= set(parse(derived.expression).columns)
    return found
