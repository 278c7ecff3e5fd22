"""Tree × domain → where an expression's values can lie, by interval arithmetic over the public bounds.

Each part is bounded separately, so that x - x gets bounds other than 0: the answer is never too narrow, and may be too
wide (Moore 1966, *Interval Analysis*). What may be infinite or undefined on some row of the domain, such as a division
by a column that can be 0, has no extent.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from kmeanalyst.releases.domain.column import Column, Columns
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Number
from kmeanalyst.releases.expressions.syntax import Arithmetic, Call, Constant, Name, Node, Not, Sign, number_written

_EXACT = 2.0**53  # whole numbers below are not rounded
_ROUNDING = 4e-15  # relative: logarithms and powers are not rounded alike everywhere


@dataclass(frozen=True)
class Extent:
    """What is known of an expression's values on every row of a domain.

    low, high  bounds; infinite where there are none, and then a value may be undefined too.
    whole      whether every value is a whole number.
    missing    whether a missing cell, or a level that is not a number, can make the value missing.
    """

    low: float
    high: float
    whole: bool = False
    missing: bool = False

    @property
    def bounded(self) -> bool:
        return math.isfinite(self.low) and math.isfinite(self.high)


_TRUTH = Extent(0.0, 1.0, whole=True)
_ANYWHERE = Extent(-math.inf, math.inf)


def extent_of(node: Node, domain: Columns, present: frozenset[str] = frozenset()) -> Extent:
    """The extent of a part that fits the domain (`Expression.check`).

    present   columns that are known not to be missing here.
    """
    match node:
        case Constant():
            value = float(_day(node.value) if isinstance(node.value, str) else node.value)
            return _hull([value], whole=value.is_integer())
        case Name():
            return _of_column(domain[node.name], node.name not in present)
        case Sign():
            inside = extent_of(node.operand, domain, present)
            return inside if node.sign == "+" else replace(inside, low=-inside.high, high=-inside.low)
        case Arithmetic():
            total = extent_of(node.first, domain, present)
            for sign, operand in node.rest:
                total = _applied(_ARITHMETIC[sign], total, extent_of(operand, domain, present))
            return total
        case Call() if node.function in ("year", "month"):
            return _of_calendar(node, domain)
        case Call() if node.function == "number":
            return _of_levels(node, domain, present)
        case Call() if node.function == "where":
            return _of_where(node, domain, present)
        case Call() if node.function != "missing":
            return _applied(_FUNCTIONS[node.function], *(extent_of(a, domain, present) for a in node.arguments))
    return _TRUTH  # whatever else there is, is true or false


def _day(text: str) -> int:
    """Days since 1970-01-01, of which dates are subtracted."""
    return datetime.date.fromisoformat(text).toordinal() - datetime.date(1970, 1, 1).toordinal()


def _of_column(column: Column, may_miss: bool) -> Extent:
    if not isinstance(column, Number):
        return _TRUTH  # a boolean: no other column of levels is a number or a condition
    low, high = column.natural_bounds
    if column.kind != "real":
        low, high = math.ceil(low), math.floor(high)
    return Extent(float(low), float(high), whole=column.kind != "real", missing=column.missing and may_miss)


def _of_calendar(node: Call, domain: Columns) -> Extent:
    named = node.arguments[0]
    assert isinstance(named, Name)
    column = domain[named.name]
    if node.function == "month":
        return Extent(1.0, 12.0, whole=True, missing=column.missing)
    first, last = (float(str(bound)[:4]) for bound in (column.lower, column.upper))  # type: ignore[attr-defined]
    return Extent(first, last, whole=True, missing=column.missing)


def _of_levels(node: Call, domain: Columns, present: frozenset[str]) -> Extent:
    """Of the levels that are numbers; another level is missing, as is a missing cell."""
    named = node.arguments[0]
    assert isinstance(named, Name)
    column = domain[named.name]
    assert isinstance(column, Categorical)
    numbers = np.array([*map(number_written, column.levels)])
    known = numbers[~np.isnan(numbers)]
    missing = len(known) < len(numbers) or (column.missing and named.name not in present)
    return Extent(float(known.min()), float(known.max()), bool((known == np.rint(known)).all()), missing)


def _of_where(node: Call, domain: Columns, present: frozenset[str]) -> Extent:
    """Both branches together; where(missing(x), a, b) asks for b only where x is there."""
    test, then, otherwise = node.arguments
    absent = _asks_for_missing(test)
    is_there = _asks_for_missing(test.operand) if isinstance(test, Not) else None
    a = extent_of(then, domain, present | ({is_there} if is_there else frozenset()))
    b = extent_of(otherwise, domain, present | ({absent} if absent else frozenset()))
    missing = a.missing or b.missing
    if not (a.bounded and b.bounded):
        return replace(_ANYWHERE, missing=missing)
    return Extent(min(a.low, b.low), max(a.high, b.high), a.whole and b.whole, missing)


def _asks_for_missing(test: Node) -> str | None:
    """The column whose missing cells a condition asks for, if that is what it does."""
    if isinstance(test, Call) and test.function == "missing" and isinstance(test.arguments[0], Name):
        return test.arguments[0].name
    return None


def _applied(rule: Callable[..., Extent], *parts: Extent) -> Extent:
    missing = any(part.missing for part in parts)
    if not all(part.bounded for part in parts):
        return replace(_ANYWHERE, missing=missing)
    with np.errstate(all="ignore"):
        found = rule(*parts)
    return replace(found if found.bounded else _ANYWHERE, missing=missing)


def _hull(values: list[float], *, whole: bool = False, rounding: float = 0.0) -> Extent:
    if not np.isfinite(values).all():
        return _ANYWHERE
    low, high = float(min(values)), float(max(values))
    return Extent(low - rounding * abs(low), high + rounding * abs(high), whole)


def _at_ends(function: Callable[..., float], *, whole: bool = False, rounding: float = 0.0) -> Callable[..., Extent]:
    """The rule of a function that has its extremes where each argument is at an end."""

    def rule(*parts: Extent) -> Extent:
        ends = product(*((part.low, part.high) for part in parts))
        kept = whole and all(part.whole for part in parts)
        return _hull([float(function(*each)) for each in ends], whole=kept, rounding=rounding)

    return rule


def _from(lowest: float, rule: Callable[..., Extent], *, open_end: bool = False) -> Callable[[Extent], Extent]:
    """A rule for arguments of at least (or more than) a number; below it the function is undefined."""
    return lambda x: rule(x) if x.low > lowest or (x.low == lowest and not open_end) else _ANYWHERE


def _stepped(function: Callable[[float], float]) -> Callable[[Extent], Extent]:
    return lambda x: _hull([float(function(x.low)), float(function(x.high))], whole=True)


def _holds_zero(x: Extent) -> bool:
    return x.low <= 0 <= x.high


def _power(a: Extent, b: Extent) -> Extent:
    """Monotone in each argument for a ≥ 0; for a < 0 defined for whole exponents, and bounded here for a constant one."""
    whole = a.whole and b.whole and b.low >= 0
    at_ends = _at_ends(np.power)(a, b)
    if at_ends.bounded and not (whole and max(abs(at_ends.low), abs(at_ends.high)) < _EXACT):
        at_ends = _hull([at_ends.low, at_ends.high], rounding=_ROUNDING)
    if a.low > 0 or (a.low == 0 and b.low >= 0):
        return replace(at_ends, whole=whole)
    if b.low != b.high or not b.whole or (b.low < 0 and _holds_zero(a)):
        return _ANYWHERE
    with_zero = replace(at_ends, low=0.0) if b.low % 2 == 0 and b.low > 0 and _holds_zero(a) else at_ends
    return replace(with_zero, whole=whole)


def _absolute(x: Extent) -> Extent:
    low = 0.0 if _holds_zero(x) else min(abs(x.low), abs(x.high))
    return Extent(low, max(abs(x.low), abs(x.high)), x.whole)


_ARITHMETIC: dict[str, Callable[..., Extent]] = {
    "+": _at_ends(np.add, whole=True), "-": _at_ends(np.subtract, whole=True), "*": _at_ends(np.multiply, whole=True),
    "/": lambda a, b: _ANYWHERE if _holds_zero(b) else _at_ends(np.divide)(a, b), "**": _power,
    "%": lambda a, b: _ANYWHERE if _holds_zero(b) else _hull([0.0, b.low, b.high], whole=a.whole and b.whole),
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Extent]] = {
    "abs": _absolute,
    "log": _from(0.0, _at_ends(np.log, rounding=_ROUNDING), open_end=True),
    "log1p": _from(-1.0, _at_ends(np.log1p, rounding=_ROUNDING), open_end=True),
    "exp": _at_ends(np.exp, rounding=_ROUNDING),
    "sqrt": _from(0.0, _at_ends(np.sqrt)),
    "floor": _stepped(np.floor), "ceil": _stepped(np.ceil), "round": _stepped(np.rint),
    "min": _at_ends(np.minimum, whole=True), "max": _at_ends(np.maximum, whole=True),
}  # fmt: skip
