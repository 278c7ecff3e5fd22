"""What of a question the measurement does not show, and which measurement would show more.

A single value of a number has the probability that its count shows where it is alone in a cell; else it may have anything up to the
mass of its cell, and that is the resolution of the answer. A level that no row has may have what the noise on its count leaves
possible.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import combinations, product
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import FROM_SCALE, TO_SCALE, Date, Number
from kmeanalyst.releases.domain.tree_column import Tree
from kmeanalyst.releases.expressions import Expression, ExpressionError, parse, words
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.releases.rules.compiled import asked_of
from kmeanalyst.releases.rules.rule import DERIVE
from kmeanalyst.representation.tables.within_cells import heaps, sizes_within

_NEAR = 0.02  # of a column's range: a smooth measurement does not distinguish values that are nearer
AT_EDGES = 0.1  # of a range's mass may be at its first value beyond an even share: .13 to .03 in real tables
_Z, _ROUNDING = 1.96, 1e-9
_RARELY = 0.05  # probability that a level is more frequent than its noisy count leaves possible
_BELOW, _ABOVE = ("<", "<="), (">", ">=")
Ranges = dict[int, Array | None]
_STRINGS = re.compile(r"'[^']*'|\"[^\"]*\"")
_QUOTED, _WORDS = re.compile(r"`([^`]*)`"), re.compile(r"[^\W\d]\w*")


def readable(release: ReleaseData, question: str) -> Expression | None:
    """A question as an expression; None of the name of a function, or of another text."""
    try:
        return asked_of(release, question)
    except ExpressionError:
        return None


def unresolved_mass(
    release: ReleaseData, asked: Expression, frame: pd.DataFrame, weights: Array, probability: float = 1.0,
    given: Sequence[Expression] = (),
) -> float:  # fmt: skip
    """How much probability the values may have that a question asks for, if none of the rows has them.

    frame, weights  (n,) rows in natural units, and their weights. The sum over values, at most 1.
    probability     of the conditions `given`.
    """
    if release.measurement is None:
        return 0.0
    for word, combined in (("or", sum), ("and", min)):
        parts = asked.parts(word)
        if len(parts) > 1 and (word == "or" or len(asked.columns) > 1):
            masses = [unresolved_mass(release, part, frame, weights, probability, given) for part in parts]
            return min(float(combined(masses)), 1.0)
    joint = reduce(Expression.both, (each for each in given if {*each.columns} == {*asked.columns}), asked)
    if not _can_hold(release, joint):
        return 0.0
    mass = _mass_of_cells(release, joint) / probability
    own, beyond = list(_compared(release, asked)), dict[str, list[tuple[str, float]]]()
    equal = [(name, value) for name, sign, value in own if sign in ("==", "in")]
    mass += sum(_mass_near(release, name, value, frame, weights)[-1] for name, value in equal)
    for name, sign, value in own if equal or not own else _compared(release, joint):
        if sign in _BELOW or sign in _ABOVE:
            beyond.setdefault(name, []).append((sign, value))
    return min(mass + sum(_mass_between(release, name, ends) for name, ends in beyond.items()) / probability, 1.0)


def _can_hold(release: ReleaseData, asked: Expression) -> bool:
    """Whether a condition on one column of numbers holds at some value of it, tried at and around those that it names."""
    named, column = sorted({value for _, _, value in _compared(release, asked)}), _only_column(release, asked)
    if not named or not isinstance(column, Number) or not asked.is_plain:
        return True
    low, high = column.natural_bounds
    step, ends = column.grain or 1e-6 * (high - low), np.array([low, *named, high])
    tried = column.multiples(np.concatenate([ends, ends - step, ends + step, (ends[1:] + ends[:-1]) / 2]))
    tried = tried[(tried >= low) & (tried <= high)]
    if isinstance(column, Date):
        return bool(_meets(release, asked, column.decode(np.array([column._encode_one(value) for value in tried]))).any())
    return bool(_meets(release, asked, pd.Series(np.append(tried, [np.nan] * column.missing))).any())


def _only_column(release: ReleaseData, asked: Expression) -> Column | None:
    """The column of a condition on one; None of another question."""
    alone = len(asked.columns) == 1 and asked.check(release.columns) == "condition"
    return _column(release, asked.columns[0]) if alone else None


def _meets(release: ReleaseData, asked: Expression, cells: pd.Series) -> Array:
    """(n,) whether cells of the one column that a condition names meet it."""
    return np.asarray(asked.evaluate(pd.DataFrame({asked.columns[0]: cells}), release.columns)) == 1


def _mass_between(release: ReleaseData, name: str, asked: Sequence[tuple[str, float]]) -> float:
    """The most, at 95 %, that values of a column between others may have, by the counts of ranges that hold them."""
    column: Any = release.domain[name]
    bottom, top = column.natural_bounds
    low = max([bottom, *(value for sign, value in asked if sign in _ABOVE)])
    high = min([top, *(value for sign, value in asked if sign in _BELOW)])
    none = low > high or any(value == {"<": bottom, ">": top}.get(sign) for sign, value in asked)
    if none or (features := _tables(release)) is None:
        return 0.0
    j, codes, found = release.domain.position(name), [column._encode_one(value) for value in (low, high)], []
    for edges in (features.kernel.edges[j], *(own for other, own in features.kernel.finer_tables if other == j)):
        ends = _ends(column, edges)
        first, last = np.searchsorted(ends, codes[0], side="right") - 1, np.searchsorted(ends, codes[1])
        around = ends[[np.clip(first, 0, len(edges)), np.clip(last, 1, len(ends) - 1)]]
        found.append(_most_counted(release, {j: around}))
    return min((mass for mass in found if mass is not None), default=0.0)


def single_values(
    release: ReleaseData, asked: Expression, frame: pd.DataFrame, weights: Array
) -> Iterator[tuple[str, float, Array, float]]:
    """Columns of numbers with the values, no atoms, that it asks for, encoded; the ends (2,) of the range that holds a value; and
    by how much probability the share of it that the rows (n,) have may be wrong.
    """
    if release.measurement is None:
        return
    for name, sign, value in _compared(release, asked):
        column: Any = release.domain[name]
        if sign not in ("==", "!=", "in", "not in") or value in column._numbers(column.atoms):
            continue
        if _is_alone(release, column, value, in_pairs=True):  # a cell like any other
            continue
        share, least, most = _mass_near(release, name, value, frame, weights)
        if _is_alone(release, column, value) or most - share > _ROUNDING:  # else the rows' share is what was measured
            yield name, column._encode_one(value), _ranges_of(release, column, value)[1], max(most - share, share - least)


def _compared(release: ReleaseData, asked: Expression) -> Iterator[tuple[str, str, float]]:
    """The comparisons of columns of numbers with a number, and of days with a day, which is one in natural units."""
    for name, sign, value in asked.compared:
        column = _column(release, name)
        if isinstance(column, Number) and isinstance(value, str if isinstance(column, Date) else float):
            yield name, sign, float(column._numbers([value])[0])


def values_at_edges(release: ReleaseData, asked: Expression) -> Iterator[tuple[str, float, Array, Array]]:
    """Columns of numbers with the values, encoded, that it compares them with, if these begin a range of several, and the ends
    (2,), encoded, of that range and of the one in tables of pairs.

    Ranges begin at round numbers, where values heap: `AT_EDGES` of the wider mass may be there, which decides between < and <=.
    """
    for name, _, value in _compared(release, asked) if _tables(release) else ():
        column: Any = release.domain[name]
        if value in column._numbers(column.atoms) or _is_alone(release, column, value):
            continue
        narrow, wide = _ranges_of(release, column, value)
        first = column.multiples(np.array(value), np.ceil)
        if np.isclose(column._scaled(first - column._half), narrow[0]):
            yield name, column._encode_one(value), narrow, wide


def heaps_cut(release: ReleaseData, asked: Expression) -> Iterator[tuple[str, float, Array]]:
    """Columns of numbers with a value, encoded, of a range that a comparison may cut, and in which values heap by its neighbours'
    counts; and the ends (2,) of the range: all of its mass may be at that value.
    """
    for name, _, value in _compared(release, asked):
        column: Any = release.domain[name]
        fine, (low, high) = _fine_shares(release, column), column.natural_bounds
        if fine is None or not low <= value <= high or _is_alone(release, column, value):
            continue
        ends, shares, noise = fine
        place = int(np.clip(np.searchsorted(ends, column._encode_one(value), side="right") - 1, 0, len(shares) - 1))
        if heaps(sizes_within(column, ends, tuple(column.atom_codes)), shares, noise)[place]:
            within = ends[place] + np.array([_ROUNDING, 1 - _ROUNDING]) * (ends[place + 1] - ends[place])
            tried = dict.fromkeys((*column.rounded(within).tolist(), column._encode_one(value)))
            yield from ((name, one, ends[place : place + 2]) for one in tried if one not in column.atom_codes)


def _fine_shares(release: ReleaseData, column: Number) -> tuple[Array, Array, float] | None:
    """The ends (R + 1,), encoded, of the ranges of a column's finest table, their noisy shares (R,), and the deviation of these."""
    measurement, features, found = release.measurement, _tables(release), None
    if measurement is None or features is None:
        return None
    for group in (group for group in features.groups if group.kind == "finer"):
        for (j, edges), square, (first, last) in zip(features.kernel.finer_tables, group.squares, group.ranges, strict=True):
            if j == release.domain.position(column.name):
                values, variances = (each[first:last][: len(edges) + 1] for each in (measurement.vector, measurement.variances))
                found = _ends(column, edges), values / square**0.5, float(np.sqrt(np.median(variances) / square))
    return found


def compared_columns(release: ReleaseData, asked: Expression) -> Iterator[tuple[str, str]]:
    """Pairs of columns of numbers of which a part of a question is that has no further parts."""
    for word in ("or", "and"):
        if len(parts := asked.parts(word)) > 1:
            for part in parts:
                yield from compared_columns(release, part)
            return
    if len(asked.columns) == 2 and all(isinstance(_column(release, name), Number) for name in asked.columns):
        first, other = asked.columns
        yield first, other


def corners(
    release: ReleaseData, names: tuple[str, str], frame: pd.DataFrame, weights: Array
) -> tuple[list[dict[str, pd.Series]], Array]:
    """The values of two columns at the corners of the ranges, in tables of pairs, in which each row is, and where both are equal;
    and by how much (n,) of their mass they may depend on each other within these: all where both ranges are twice as likely
    together as by chance, or more.
    """
    features, columns = _tables(release), list[Any](release.domain[name] for name in names)
    if features is None:
        return [], np.zeros(len(frame))
    sides, ends, cells = list[list[pd.Series]](), list[Array](), list[Array]()
    for column in columns:
        j, codes = release.domain.position(column.name), column.encode(frame[column.name])[0]
        bounds = _ends(column, features.kernel.edges[j])
        place = np.clip(np.searchsorted(bounds[1:-1], codes, side="right"), 0, len(bounds) - 2)
        slack = _ROUNDING * (bounds[place + 1] - bounds[place])
        alone = np.isnan(codes) | np.isin(codes, column.atom_codes)
        own = np.where(alone, codes, column.rounded(np.stack([bounds[place] + slack, bounds[place + 1] - slack])))
        sides.append([column.decode(each) for each in own])
        ends.append(FROM_SCALE[column.scale](own))
        cells.append(features.kernel.cells_of(j, codes))
    first, last = np.maximum(ends[0][0], ends[1][0]), np.minimum(ends[0][1], ends[1][1])
    meet = {
        column.name: column.decode(column.rounded(TO_SCALE[column.scale](np.where(first <= last, first, own[0]))))
        for column, own in zip(columns, ends, strict=True)
    }
    _, both = np.unique(np.stack(cells), axis=1, return_inverse=True)
    one, other, joint = (np.bincount(own, weights)[own] for own in (*cells, both))
    lifted = np.clip(2 - 2 * np.divide(one * other, joint, out=np.ones_like(joint), where=joint > 0), 0.0, 1.0)
    return [*(dict(zip(names, pair, strict=True)) for pair in product(*sides)), meet], lifted


def _is_alone(release: ReleaseData, column: Number, value: float, *, in_pairs: bool = False) -> bool:
    """Whether a value of steps is the only one in the narrowest range that holds it, or in its range in tables of pairs."""
    if column.grain is None or _tables(release) is None:
        return False
    ends = _ranges_of(release, column, value)[int(in_pairs)]
    below, above = FROM_SCALE[column.scale](ends)
    return bool(above - below < 1.5 * column.grain)


def _ranges_of(release: ReleaseData, column: Number, value: float) -> tuple[Array, Array]:
    """The ends (2,), encoded, of the narrowest range that holds a value, and of the one in tables of pairs; around it in smooth
    features.
    """
    features, j, code = _tables(release), release.domain.position(column.name), column._encode_one(value)
    if features is None:
        around = code + _NEAR * np.ptp(column.bounds) * np.array([-1.0, 1.0])
        return around, around
    narrow, wide = (
        _ends(column, edges)[after : after + 2]
        for edges in (_finest(features, j), features.kernel.edges[j])
        for after in [int(np.searchsorted(edges, code, side="right"))]
    )
    return narrow, wide


def _ends(column: Number, edges: Sequence[float]) -> Array:
    """(R + 1,) of a column's ranges between inner edges, encoded."""
    return np.array([column.ends[0], *edges, column.ends[1]])


def _finest(features: MarginFeatures, j: int) -> Sequence[float]:
    kernel = features.kernel
    return next((edges for other, edges in reversed(kernel.finer_tables) if other == j), kernel.edges[j])


def finest_ranges(release: ReleaseData, question: object, values: Array, weights: Array) -> Array | None:
    """(c, 3) of each range of a column of numbers in its finest table the first and the last value, increasing, and the mass of
    rows there, of these values (n,) and weights, that are no atoms; None of another question, and without tables.
    """
    name = question[1:-1] if isinstance(question, str) and question.startswith("`") else question
    column, features = _column(release, name) if isinstance(name, str) else None, _tables(release)
    if not isinstance(column, Number) or features is None:
        return None
    ends = FROM_SCALE[column.scale](_ends(column, _finest(features, release.domain.position(column.name))))
    first, last = column.multiples(ends[:-1], np.ceil), column.multiples(ends[1:], np.floor)
    ranges = np.clip(np.column_stack([first, np.maximum(first, last)]), *column.natural_bounds)
    here = np.clip(np.searchsorted(ranges[:, 0], values, side="right") - 1, 0, len(ranges) - 1)
    smooth = np.where(np.isin(values, column._numbers(column.atoms)), 0.0, weights)
    return np.column_stack([ranges, np.bincount(here, smooth, minlength=len(ranges))])


def conditions_joined(asked: Expression) -> list[str]:
    """The conditions of which all must hold, as texts, those of the same columns as one."""
    by_columns: dict[frozenset[str], list[str]] = {}
    for part in asked.joined:
        by_columns.setdefault(frozenset(parse(part).columns), []).append(part)
    return [parts[0] if len(parts) == 1 else " and ".join(f"({part})" for part in parts) for parts in by_columns.values()]


def mass_of_pair(release: ReleaseData, conditions: Sequence[str]) -> float | None:
    """The most, at 95 %, that a level of one column may have with one of another; None unless their table was measured."""
    ranges: Ranges = {}
    for name, texts in filter(None, (parse(each).asked_of for each in conditions)):
        column: Any = _column(release, name)
        plain = len(texts) == 1 and isinstance(column, Categorical) and not isinstance(column, Tree)
        if plain and (code := column.parse(texts[0])) is not None:
            ranges[release.domain.position(name)] = _around(int(code), int(code) + 1)
    return _most_counted(release, ranges) if len(conditions) == len(ranges) == 2 else None


def _around(first: int, end: int) -> Array:
    """The ends (2,) of a range of codes of levels, the last of which is before `end`."""
    return np.array([first - 0.5, end - 0.5])


def _most_counted(release: ReleaseData, ranges: Ranges) -> float | None:
    """The most, at 95 %, that rows within ranges of one or two columns may be: by the noisy table that shows it best.

    ranges   by the column's index, the ends (2,) of a range of codes, None for the missing cell. Returns None where no table has
             the ranges as unions of its cells.
    """
    found = _best_count(release, ranges)
    return None if found is None else _most(*found)


def _best_count(release: ReleaseData, ranges: Ranges) -> tuple[float, float] | None:
    """The share of rows within the ranges in the noisy table that shows it best, and its standard deviation, sampling included."""
    best = min(_noisy_shares(release, ranges), key=lambda share: share[1], default=None)
    if best is None or release.measurement is None:
        return None
    share = min(max(best[0], 0.0), 1.0)
    return best[0], float(np.hypot(best[1], np.sqrt(share * (1 - share) / release.measurement.n_rows)))


def _most(share: float, deviation: float) -> float:
    """The end of a one-sided 95 % interval of a share that is at least 0."""
    return share + deviation * float(-ndtri(_RARELY * ndtr(share / deviation)))


def _noisy_shares(release: ReleaseData, ranges: Ranges) -> Iterator[tuple[float, float]]:
    """The share within the ranges and the deviation of its noise, in each table that has the ranges' columns."""
    measurement, features, domain = release.measurement, _tables(release), release.domain
    if measurement is None or features is None:
        return
    kernel, variances = features.kernel, measurement.variances
    edges = [*kernel.edges, *(edges for _, edges in kernel.finer_tables)]
    for group in features.groups:
        for table, square, (first, last) in zip(group.tables, group.squares, group.ranges, strict=True):
            own = kernel.named(table)
            if not ranges.keys() <= {*own}:
                continue
            inside = [
                _inside(domain.columns[j], edges[t], ranges[j]) if j in ranges else slice(None)
                for j, t in zip(own, table, strict=True)
            ]
            if None not in inside:
                shape = [group.sizes[t] for t in table]
                sums = [float(v[first:last].reshape(shape)[*inside].sum()) for v in (measurement.vector, variances)]
                yield sums[0] / square**0.5, (sums[1] / square) ** 0.5


def _inside(column: Any, edges: Sequence[float], ends: Array | None) -> slice | None:
    if ends is None:  # the missing cell, the last
        return slice(-1, None)
    limits = column.ends if isinstance(column, Number) else _around(0, len(column.levels))
    bounds = np.array([limits[0], *edges, limits[1]])
    first, last = np.searchsorted(bounds, ends)
    exact = last < len(bounds) and first < last and bounds[first] == ends[0] and bounds[last] == ends[1]
    return slice(int(first), int(last)) if exact else None


def _tables(release: ReleaseData) -> MarginFeatures | None:
    features = None if release.measurement is None else release.measurement.feature_map
    return features if isinstance(features, MarginFeatures) else None


def _column(release: ReleaseData, name: str) -> Column | None:
    return release.domain[name] if name in release.domain.names else None


def _mass_near(release: ReleaseData, name: str, value: float, frame: pd.DataFrame, weights: Array) -> tuple[float, float, float]:
    """The rows' share of a value, and the least and the most probability of those that the measurement does not tell from it.

    By the rows, and by the noisy counts of the narrowest range that holds it, and of the one in tables of pairs.
    """
    column: Any = release.domain[name]
    codes, own = column.encode(frame[name].iloc[: len(weights)])[0], column._encode_one(value)
    share = float(weights @ (codes == own))
    low, high = column.natural_bounds
    if not low <= value <= high:
        return share, 0.0, 0.0
    narrow, wide = _ranges_of(release, column, value)
    mass = float(weights @ ((codes >= narrow[0]) & (codes < narrow[1])))
    counts = [_best_count(release, {release.domain.position(name): ends}) for ends in (narrow, wide)]
    least = counts[0][0] - _Z * counts[0][1] if counts[0] and _is_alone(release, column, value) else 0.0
    most = max(mass, min((_most(*count) for count in counts if count), default=0.0))
    return share, max(least, 0.0), float(np.clip(most, 0.0, 1.0))


def _mass_of_cells(release: ReleaseData, asked: Expression) -> float:
    """The most that levels next to each other, and a missing cell, may have that meet a condition on one column, at 95 % each."""
    column: Any = _only_column(release, asked)
    if column is None or _tables(release) is None:
        return 0.0
    j, size = release.domain.position(column.name), len(column.levels) if column.has_levels else 0
    meets = _meets(release, asked, column.decode(np.append(np.arange(size), [np.nan] * column.missing)))
    runs = np.flatnonzero(np.diff(meets[:size], prepend=False, append=False)).reshape(-1, 2).tolist()
    ranges = [*(_around(*run) for run in runs), *[None] * int(meets[size:].sum())]
    return sum(_most_counted(release, {j: ends}) or 0.0 for ends in ranges)


def what_would_help(release: ReleaseData, question: str) -> str:
    """A note on an answer whose error is mostly resolution: which measurement would show more; "" where none is known."""
    named = _names(release, question)
    missing = _missing(release, [name for name in release.domain.names if name in named])
    return missing and f"more than half of its variance is resolution: {missing}"


def _missing(release: ReleaseData, columns: list[str]) -> str:
    measurement, features = release.measurement, _tables(release)
    assert measurement is not None
    together = " × ".join(map(words.written, columns))
    numbers = [words.written(name) for name in columns if isinstance(release.domain[name], Number)]
    if not columns:
        return ""
    if features is None:
        option = "--kernel adaptive" if len(columns) == 1 else "a --workload that names them"
        return f"a release with {option} counts cells of {together}, where this one has smooth features of all columns"
    places = [release.domain.names.index(name) for name in columns]
    by_others = release.statement is not None and release.statement.declared_by
    if not all(measurement.counted_together(i, j) for i, j in combinations(places, 2)):
        if by_others:
            return f"{together} is in none of the tables together"
        which = "A release with --workload counts the pairs that it names, one with --target all pairs of a column"
        scored = "its score did not outweigh its table's noise" if measurement.scores else "others were drawn"
        return f"{together} was not counted, as {scored}. {which}"
    if len(places) > 2 and not any({*places} <= {*each} for each in features.kernel.counted):
        if by_others:
            return f"{together} is in none of the tables together"
        if measurement.drawn is not None and any({*places} <= {*each} for each in measurement.drawn.sets):
            return f"{together} was not counted together, as its score did not outweigh its table's noise beside what pairs say"
        how = "A release with one of them as --target looks for sets of columns with it first"
        return f"{together} was not counted together. {how}"
    for rule in release.domain.rules:
        if rule.kind == DERIVE and {*parse(rule.text).columns} == {*columns}:
            return (
                f"values within ranges were not distinguished. {words.written(rule.columns[0])} = {rule.text} was measured: ask it"
            )
    if numbers:
        how = ", or a table with a column of what compares them" if len(numbers) == 2 else ", or an atom where values heap,"
        which, edges = " and ".join(numbers), f"A domain with edges where the question changes{how} does"
        return f"values within the ranges of {which} were not distinguished. {edges}"
    trees = [words.written(name) for name in columns if isinstance(release.domain[name], Tree)]
    if trees and len(columns) > 1:
        which = "A table with a column of its finer nodes has them"
        return f"{together} was counted in coarser nodes of {trees[0]}, and not within them. {which}"
    return ""  # its cells were counted


def _names(release: ReleaseData, question: str) -> set[str]:
    bare = _STRINGS.sub(" ", question)
    found = set(_QUOTED.findall(bare)) | set(_WORDS.findall(_QUOTED.sub(" ", bare)))
    for derived in reversed(release.derived):
        if derived.column.name in found:
            found |= set(parse(derived.expression).columns)
    return found
