"""Derived columns: expressions over the columns of a release, computed from its rows whenever rows are needed.

The measurement is of the table's own columns, and nothing here changes that. A derived column is a name for an
expression. It is computed at every row that represents the population, so a question about the column is the question
about its expression, value and error. It depends on public values only: the expression, the domain, the released points.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean
from kmeanalyst.releases.domain.numbers import Integer, Number, Real
from kmeanalyst.releases.expressions import Expression, Extent, parse, words
from kmeanalyst.releases.texts import flaw_of

_ROWS = 2**16  # rows at a time: an expression of many parts needs as many arrays
_FAR_WIDER = 100.0  # bounds this many times as wide as the released values are uninformative
_MARGIN = 0.1  # margin on either side, as a share of the range of the released values
_EXACT = 2.0**53


@dataclass(frozen=True, kw_only=True)
class Derived:
    """A derived column.

    column      its name, kind and public bounds: a condition is boolean; a number is whole (kind integer) where its
                expression gives whole numbers within ±2^53 on the whole domain, else real; missing where a column it
                names can be, or a level that it reads as a number is not one. Bounds are those of the expression over the
                domain, or, where these are infinite or 100 times as wide as the released values, the range of the released
                values and a tenth of it on either side.
    expression  over the table's columns and the derived columns before this one.
    """

    column: Column
    expression: str

    def __post_init__(self) -> None:
        flaw = flaw_of(self.expression)
        if flaw is not None:
            raise ValueError(
                f"the expression of {words.written(self.column.name)} has {flaw}: shown on a terminal or in a report, it could "
                "change or hide what else is shown. Write the expression on one line, without it."
            )

    @cached_property
    def parsed(self) -> Expression:
        return parse(self.expression)

    @property
    def uses(self) -> tuple[str, ...]:
        return self.parsed.columns

    def to_dict(self) -> dict[str, Any]:
        return {"column": self.column.to_dict(), "expression": self.expression, "uses": list(self.uses)}

    def describe(self) -> str:
        return f"{self.column.describe()}; = {words.short(self.expression)}"


def sources_of(derived: Sequence[Derived], names: Iterable[str]) -> set[str]:
    """These columns and all that they are computed from, directly or through others."""
    sources = set(names)
    for one in reversed(derived):
        if one.column.name in sources:
            sources |= set(one.uses)
    return sources


def derive(frame: pd.DataFrame, known: Domain, expressions: Mapping[str, str]) -> tuple[Derived, ...]:
    """New derived columns, each of which may use those before it.

    frame        (M, d) released points with the columns of `known`.
    known        the existing columns.
    expressions  name → expression, in order.
    Errors       ValueError for a name that is taken, and for an expression that fits no column or is infinite or undefined
                 at a point.
    """
    if not isinstance(expressions, Mapping) or not expressions:
        raise ValueError(
            f"transform needs a name and an expression for each new column, got {expressions!r:.80}. "
            'Write {"bmi": "mass / height**2"}.'
        )
    new: list[Derived] = []
    cells: dict[str, pd.Series] = {}
    for name, text in expressions.items():
        if name in known.names:
            raise ValueError(
                f"there is a column {words.written(name)} already, and two columns of one name cannot be distinguished. "
                "Choose another name."
            )
        one, values = _derived(frame, cells, known, name, text)
        cells[name], known = _series(one.column, values, frame.index), Domain((*known.columns, one.column))
        new.append(one)
    return tuple(new)


def with_derived(
    frame: pd.DataFrame, known: Domain, derived: Sequence[Derived], *, check: bool = False
) -> tuple[pd.DataFrame, Domain]:
    """Rows in natural units with their derived columns, and the domain of both.

    check   ValueError unless each column has the kind and bounds of its expression at these rows.
    """
    new: dict[str, pd.Series] = {}
    for one in derived:
        column = one.column
        if check:
            _check_kind(one, known)
        cells = _named(one.parsed, frame, new)
        values = values_of(one.parsed, cells, known)
        if check:
            check_finite(column.name, one.parsed, cells, values)
            _check_bounds(column, values[~np.isnan(values)])
        new[column.name], known = _series(column, values, frame.index), Domain((*known.columns, column))
    return _with_columns(frame, new), known


def _check_kind(one: Derived, known: Domain) -> None:
    (kind, extent), column = kind_of(one.parsed, known), one.column
    if type(column) is not kind or column.missing != (extent.missing and kind is not Boolean):
        raise ValueError(
            f"the derived column {words.written(column.name)} is said to be {column.describe()}, and its expression gives "
            f"{kind.kind} cells{', which may be missing' if extent.missing else ''}. Derive it with transform."
        )


def _check_bounds(column: Column, values: Array) -> None:
    if isinstance(column, Number) and len(values) and not (column.lower <= values.min() <= values.max() <= column.upper):
        raise ValueError(
            f"the derived column {words.written(column.name)} is said to lie within {column.lower} and {column.upper}, and at the "
            f"points its expression gives {values.min():.6g} to {values.max():.6g}. Derive it with transform."
        )


def values_of(expression: Expression, frame: pd.DataFrame, known: Domain) -> Array:
    """The expression at every row, (n,) float64, in blocks."""
    blocks = [frame.iloc[start : start + _ROWS] for start in range(0, max(len(frame), 1), _ROWS)]
    return np.concatenate([expression.evaluate(block, known).astype(np.float64) for block in blocks])


def check_finite(name: str, expression: Expression, frame: pd.DataFrame, values: Array) -> None:
    """ValueError where a value is infinite, or undefined though no cell in its expression is missing."""
    bad = np.isinf(values) | (np.isnan(values) & ~expression.undefined_at(frame))
    if bad.any():
        used = words.written(_suspect(expression, frame[bad])) if expression.columns else "a column"
        raise ValueError(
            f"{words.written(name)} = {words.short(expression.text)} is infinite or undefined at {int(bad.sum())} of "
            f"{len(values)} points (a division by zero, the logarithm or root of a number that has none, a number too "
            f"large): a column has a number in each cell. Say what it is there, such as where({used} > 0, ..., 0); missing "
            f"cells by themselves give missing ones."
        )


def _suspect(expression: Expression, bad: pd.DataFrame) -> str:
    """A column that may be why the expression is undefined at these rows: the first that is at most 0 at all of them."""
    numbers = (name for name in expression.columns if pd.api.types.is_numeric_dtype(bad[name]))
    return next((name for name in numbers if (bad[name] <= 0).all()), expression.columns[0])


def kind_of(expression: Expression, known: Domain) -> tuple[type[Column], Extent]:
    """The kind of column that an expression gives on a domain, and its extent; ExpressionError if it does not fit."""
    if expression.check(known) == "condition":
        return Boolean, Extent(0.0, 1.0, whole=True)
    extent = expression.extent(known)
    exact = extent.bounded and max(abs(extent.low), abs(extent.high)) < _EXACT
    return (Integer if extent.whole and exact else Real), extent


def _derived(frame: pd.DataFrame, new: Mapping[str, pd.Series], known: Domain, name: str, text: str) -> tuple[Derived, Array]:
    expression = parse(text)
    kind, extent = kind_of(expression, known)
    named = _named(expression, frame, new)
    values = values_of(expression, named, known)
    if kind is Boolean:
        return Derived(column=Boolean(name=name), expression=text), values
    check_finite(name, expression, named, values)
    low, high = _bounds(extent, values[~np.isnan(values)], kind)
    column = kind(name=name, lower=low, upper=high, missing=extent.missing)  # type: ignore[call-arg]
    return Derived(column=column, expression=text), values


def _bounds(extent: Extent, values: Array, kind: type[Column]) -> tuple[float, float]:
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    width = high - low
    if not (extent.bounded and extent.high - extent.low <= _FAR_WIDER * width):
        margin = _MARGIN * width or max(abs(low) * _MARGIN, 0.5)
        low, high = _outward(low - margin, high + margin)
        if extent.bounded:
            low, high = max(low, extent.low), min(high, extent.high)
    else:
        low, high = extent.low, extent.high
    if kind is Integer:
        low, high = math.floor(low), math.ceil(high)
    return (low, high) if low < high else (low, low + 1)


def _outward(low: float, high: float) -> tuple[float, float]:
    """Numbers of about three digits around a range."""
    digits = 2 - math.floor(math.log10(high - low))
    if not -300 < digits < 300:
        return low, high
    unit = 10.0**digits
    found = round(math.floor(low * unit) / unit, digits), round(math.ceil(high * unit) / unit, digits)
    return found if all(map(math.isfinite, found)) and found[0] <= low and high <= found[1] else (low, high)


def _named(expression: Expression, frame: pd.DataFrame, new: Mapping[str, pd.Series]) -> pd.DataFrame:
    there = frame[[name for name in expression.columns if name not in new]]
    return _with_columns(there, {name: new[name] for name in expression.columns if name in new})


def _with_columns(frame: pd.DataFrame, new: Mapping[str, pd.Series]) -> pd.DataFrame:
    return pd.concat([frame, pd.DataFrame(dict(new))], axis=1) if new else frame


def _series(column: Column, values: Array, index: pd.Index) -> pd.Series:
    if isinstance(column, Boolean):
        return pd.Series(values > 0, index)
    if isinstance(column, Integer):
        if not column.missing:
            return pd.Series(values.astype(np.int64), index)
        absent = np.isnan(values)
        return pd.Series(pd.arrays.IntegerArray(np.where(absent, 0, values).astype(np.int64), absent), index)
    return pd.Series(values, index)


# ---------------------------------------------------------------- as text, for the command line

_ASSIGNMENT = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^`'\"()\[\]=<>!,*/+%]+?))\s*=(?!=)(.*)", re.DOTALL)
_SIGNS = {
    "**": "to", "==": "is", "!=": "is not", "<=": "at most", ">=": "at least", "<": "below", ">": "above",
    "+": "plus", "-": "minus", "*": "times", "/": "over", "%": "mod",
}  # fmt: skip


def named_expressions(texts: Sequence[str]) -> dict[str, str]:
    """Name → expression of texts "bmi = mass / height**2"; an expression alone is named after its text.

    >>> named_expressions(["bmi = mass / height**2", "mass / height**2"])
    {'bmi': 'mass / height**2', 'mass_over_height_to_2': 'mass / height**2'}
    """
    named: dict[str, str] = {}
    for text in texts:
        assigned = _ASSIGNMENT.fullmatch(text)
        quoted, plain, expression = assigned.groups() if assigned else (None, _slug(text), text)
        name = quoted.replace("``", "`") if quoted else plain
        if name in named:
            raise ValueError(
                f"two new columns would be named {words.written(name)}: one would hide the other. Name each of them "
                'otherwise, as in "name = expression".'
            )
        named[name] = expression.strip()
    return named


def _slug(text: str) -> str:
    spelled = re.sub("|".join(map(re.escape, _SIGNS)), lambda sign: f" {_SIGNS[sign[0]]} ", text)
    return "_".join(re.findall(r"\w+", spelled))[:60] or "derived"
