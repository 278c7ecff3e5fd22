"""Inference, in addition to the scores: least squares slopes, the release's with its intervals and the table's.

A release may be near its table in every pair of columns and flatten what explains what; a k-marginal score does not show it.
The table's slope is over all its rows. Its own interval, for the population, is that of robust standard errors (White 1980),
estimated from a sample of its rows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from kmeanalyst.release import Release
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Ordinal
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.releases.expressions import Expression, ExpressionError, parse, words
from release_side.choices.workload import WorkloadQuestion
from release_side.errors import PublishError
from release_side.quality.answers.questions import noise_interval

_EXPLAINED, _EXPLAINING = 2, 3  # columns of numbers in the default slopes
_MOST_SLOPES = 20
_PIECES = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|.", re.DOTALL)  # quoted texts and names, and single characters
_Z = 1.959963984540054


@dataclass(frozen=True)
class Slope:
    """What is explained by what: two expressions of numbers, where both are defined."""

    y: str
    x: str
    where: str | None

    @property
    def question(self) -> WorkloadQuestion:
        """What the table is asked."""
        return WorkloadQuestion(f"{self.y} ~ {self.x}", "slope", (self.y, self.x), self.where, (), ())


@dataclass(frozen=True)
class SlopeCompared:
    """A slope of the release and the table's.

    table, table_interval   over all rows of the table; with the 95 % interval for the population that it is a sample of.
    release                 the release's estimate; NaN where it has none, and `note` says why.
    interval                its 95 % interval, for the population.
    noise_interval          its 95 % interval for the table itself.
    """

    text: str
    table: float
    table_interval: tuple[float, float]
    release: float
    interval: tuple[float, float]
    noise_interval: tuple[float, float]
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The numbers, as in the JSON."""
        return {
            "slope": self.text, "table": self.table, "table_interval": list(self.table_interval), "release": self.release,
            "interval": list(self.interval), "noise_interval": list(self.noise_interval), "note": self.note,
        }  # fmt: skip


def chosen_slopes(domain: Domain, declared: Sequence[str], target: str | None = None) -> list[Slope]:
    """The declared slopes; else those of the last two columns of numbers, each on the first three others.

    An ordinal's levels may be numbers. A target that is a number stands in for the last one.
    Errors   PublishError, before the table is read, for what is no slope of this domain.
    """
    if len(declared) > _MOST_SLOPES:
        raise PublishError(f"at most {_MOST_SLOPES} slopes are compared, got {len(declared)}. Name fewer.")
    if declared:
        return [_declared(text, domain) for text in declared]
    numbers = {column.name: text for column in domain.columns if (text := _as_number(column))}
    if target in numbers:
        numbers[target] = numbers.pop(target)  # the last one
    texts = list(numbers.values())
    chosen = [(y, x) for y in texts[-_EXPLAINED:][::-1] for x in [each for each in texts if each != y][:_EXPLAINING]]
    return [_slope(y, x, domain) for i, (y, x) in enumerate(chosen) if (x, y) not in chosen[:i]]


def _as_number(column: Column) -> str | None:
    if isinstance(column, Real | Integer):
        return words.column(column.name)
    if isinstance(column, Ordinal) and all(re.fullmatch(r"-?\d+(\.\d+)?", level) for level in column.levels):
        return f"number({words.column(column.name)})"
    return None


def _declared(text: str, domain: Domain) -> Slope:
    pieces = _PIECES.findall(text)
    if pieces.count("~") != 1:
        raise PublishError(f'{text!r:.80} is no slope: write what is explained, ~ and by what, such as "income ~ age".')
    at = pieces.index("~")
    y, x = ("".join(part).strip() for part in (pieces[:at], pieces[at + 1 :]))
    y, x = (words.column(side) if side in domain.names else side for side in (y, x))
    try:
        return _slope(y, x, domain)
    except ExpressionError as error:
        raise PublishError(f"--slope {text!r:.80}: {error}") from None


def _slope(y: str, x: str, domain: Domain) -> Slope:
    sides = [parse(side) for side in (y, x)]
    for side in sides:
        side.check(domain)
    present = dict.fromkeys(
        f"not missing({words.column(name)})" for side in sides for name in side.columns if domain[name].missing
    )
    return Slope(y, x, " and ".join(present) or None)


def compare_slopes(
    release: Release, slopes: Sequence[Slope], of_table: Sequence[float], sample: pd.DataFrame, n_rows: int
) -> tuple[SlopeCompared, ...]:
    """The slopes of both.

    of_table   the table's slopes.
    sample     rows of the table in natural units, of equal weight; n_rows: how many the table has.
    """
    found = []
    for slope, own in zip(slopes, of_table, strict=True):
        error = _standard_error(slope, release, sample, n_rows)
        text = slope.question.text
        of_own = (own - _Z * error, own + _Z * error)
        try:
            estimate = release.regression(slope.y, [slope.x], where=slope.where).coefficients[1]
        except ValueError as refusal:  # of the release alone
            nothing = (math.nan, math.nan)
            found.append(SlopeCompared(text, own, of_own, math.nan, nothing, nothing, str(refusal)))
            continue
        low, high, note = noise_interval(estimate)
        found.append(SlopeCompared(text, own, of_own, estimate.value, estimate.interval(0.95), (low, high), note))
    return tuple(found)


def _standard_error(slope: Slope, release: Release, sample: pd.DataFrame, n_rows: int) -> float:
    """√(Σ (x − x̄)² e² ) / Σ (x − x̄)² of the sample, in units of all rows."""
    y, x = (_values(parse(side), release, sample) for side in (slope.y, slope.x))
    both = np.isfinite(y) & np.isfinite(x)
    y, x = y[both] - y[both].mean() if both.any() else y[both], x[both] - x[both].mean() if both.any() else x[both]
    if not (square := float(x @ x)) > 0:
        return math.nan
    residuals = y - (float(x @ y) / square) * x
    return float(np.sqrt((x**2) @ (residuals**2)) / square * np.sqrt(len(sample) / max(n_rows, 1)))


def _values(expression: Expression, release: Release, sample: pd.DataFrame) -> np.ndarray[Any, Any]:
    return expression.evaluate(sample, release.columns).astype(float)
