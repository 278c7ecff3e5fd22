"""Odds ratios, directly standardised means and survival curves of conditions, with errors by the delta method.

Odds ratio common to all groups: Σ a d/n over Σ b c/n, a to d the shares of the four combinations within a group of share n
(Mantel & Haenszel 1959). Survival: S(t) = Π_{j ≤ t} (1 − E_j/R_j) over measured cells of time, E_j the share of rows whose event
is there and R_j that at risk (Kaplan & Meier 1958); in a cell of more than one value half of those that leave without an event, C,
are not at risk (Cutler & Ederer 1958). The share is E/R if they leave last and E/(R − C) if first: half of that is resolution.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from kmeanalyst.inference.contingency.strata import measured_table
from kmeanalyst.inference.estimate.error_model import PARTS, joined, total
from kmeanalyst.inference.estimate.estimate import Estimate, z_of
from kmeanalyst.inference.estimate.population import (
    Population,
    answer,
    check_condition,
    estimate,
    mean_statistic,
    population_of,
    shown,
    undecided,
)
from kmeanalyst.inference.estimate.statistic import IntervalRule, OfRatio, Statistic
from kmeanalyst.inference.questions.expectation import mean_of
from kmeanalyst.inference.questions.groups import groups_of
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.domain.numbers import FROM_SCALE, Date, Number
from kmeanalyst.releases.expressions import parse, words
from kmeanalyst.releases.release import Condition, Question, ReleaseData, View
from kmeanalyst.releases.texts import Printed

_LEAST_SHARE = 1e-9  # of a group that counts


def odds_ratio(
    release: ReleaseData, first: Question, second: Question, *, given: str | None = None, where: Condition = None,
    view: View | None = None,
) -> Estimate:  # fmt: skip
    """The odds of one condition where another holds over those where it does not.

    given    a column: the Mantel–Haenszel common odds ratio of its groups.
    Returns  an Estimate whose interval is that of the logarithm, or Fieller's (1954) where that is wider: a combination that may be
             empty leaves 0, or no upper end. standard_error and parts are to first order.
    Errors   ValueError where a question is not a condition, or where the noise leaves a side of the ratio without weight.

    >>> counted = ka.read_release("counted.kme")
    >>> counted.odds_ratio("income == '>50K'", "sex == 'Male'")
    odds ratio of income == '>50K' by sex == 'Male': 3.53 ± 0.79 (95 %: 2.27 to 5.89; privacy 0.55, sampling 0.28,
        resolution 0.49)
    >>> counted.odds_ratio("income == '>50K'", "sex == 'Male'", given="marital-status").value
    1.683...
    """
    population = population_of(release, where=where, view=view)
    x, y = (population.values(condition)[:, None] for condition in (first, second))
    for holds in (x, y):
        check_condition(holds[: len(population.weights)])
    conditions = ["1"] if given is None else [group.condition for group in groups_of(release.columns, given)]
    groups = np.column_stack([population.values(condition) for condition in conditions])
    combinations = (x * y, x * (1 - y), (1 - x) * y, (1 - x) * (1 - y))
    a, b, c, d = (mean_statistic(population, one * groups) for one in combinations)
    kept = (a + b + c + d).value > _LEAST_SHARE
    a, b, c, d = (one[kept] for one in (a, b, c, d))
    n = a + b + c + d
    numerator, denominator = _sum(a * d / n), _sum(b * c / n)
    if not (numerator.value > 0 and denominator.value > 0):
        raise ValueError(
            "the odds ratio is 0, infinite or undefined: one of its four combinations has no weight in this release. Ask of wider "
            "conditions, or for probabilities with `expectation`."
        )
    logarithm = np.log(numerator) - np.log(denominator)
    text = f"odds ratio of {shown(first)} by {shown(second)}" + (f", given {words.written(given)}" if given else "")
    found = estimate(population, answer(population, logarithm, text, undecided(population, first, second)))
    influences = np.column_stack([np.asarray(side.influence) for side in (numerator, denominator)])
    errors = np.sqrt(np.diag(joined(population.model.covariance(population.influence(influences))))) / denominator.value
    ratio = np.exp(found)
    by = _OfOdds(found, OfRatio(ratio.value, ratio.standard_error, (errors[0], errors[1]), positive=True))
    return replace(ratio, question=found.question, interval_by=by)


def _sum(each: Statistic) -> Statistic:
    assert each.influence is not None
    return Statistic(float(each.value.sum()), each.influence.sum(axis=1))


@dataclass(frozen=True, eq=False)
class _OfOdds(IntervalRule):
    """The wider ends of the interval of a ratio's logarithm and of Fieller's."""

    logarithm: Estimate
    ratio: OfRatio

    def interval(self, z: float) -> tuple[float, float]:
        middle, half = self.logarithm.value, z * self.logarithm.standard_error
        least, most = self.ratio.interval(z)
        return min(float(np.exp(middle - half)), max(least, 0.0)), max(float(np.exp(middle + half)), most)

    def robust(self, level: float) -> tuple[float, float]:
        low, high = self.logarithm.interval(level, kind="robust")
        return float(np.exp(low)), float(np.exp(high))


def standardised(
    release: ReleaseData, question: Question, *, population: Mapping[str, float], by: str | None = None,
    where: Condition = None, view: View | None = None,
) -> Estimate:  # fmt: skip
    """The expectation of a question with the groups of a column in the proportions of a declared population.

    population  group → its share or count, at least 0, which is taken to be exact; a group that is not named counts for nothing.
    by          the column whose groups are meant: levels, or ranges as `table` labels them. Without it they are conditions, which
                should exclude each other.
    Errors      ValueError for a group that there is none of, shares that are negative or all 0, or a group without rows.

    >>> release.standardised("income == '>50K'", by="sex", population={"Female": 0.5, "Male": 0.5})
    income == '>50K' standardised by sex: 0.2119 ± 0.0086 (95 %: 0.1951 to 0.2287; privacy 0.0052, sampling 0.0052,
        resolution 0.0044)
    """
    shares = list(population.values()) if isinstance(population, Mapping) else []
    are_numbers = all(isinstance(share, int | float | np.integer | np.floating) for share in shares)
    total = float(sum(shares)) if are_numbers else 0.0
    if not shares or not np.isfinite(total) or total <= 0 or min(shares) < 0:
        raise ValueError(
            f"population must give each group a share or count of at least 0, not all 0, got {population!r:.200}. "
            "Write e.g. {'Female': 0.5, 'Male': 0.5}."
        )
    conditions = _conditions(release, list(population), by)
    terms = [
        mean_of(population_of(release, where=[condition] if where is None else [where, condition], view=view), question)
        * (share / total)
        for condition, share in zip(conditions, population.values(), strict=True)
        if share > 0
    ]
    influences = [term.influence for term in terms if term.influence is not None]  # all: they are means
    n = max(map(len, influences))  # one of them may end in a bias
    influence = sum(np.append(known, np.zeros(n - len(known))) for known in influences)
    text = f"{shown(question)} standardised by {words.written(by) if by else 'groups'}"
    everyone = population_of(release, where=where, view=view)
    value = float(sum(term.value for term in terms))
    notes = undecided(everyone, question)
    return estimate(
        everyone, Statistic(value, np.asarray(influence), everyone.text(text), notes, possible=everyone.bounds(question))
    )


def _conditions(release: ReleaseData, groups: list[str], by: str | None) -> list[str]:
    if by is None:
        return groups
    known = {group.label: group.condition for group in groups_of(release.columns, by)}
    for name in groups:
        if name not in known:
            raise ValueError(
                f"no group {name!r} of {words.written(by)}: there are {', '.join(known):.300}. Name these, or leave by out and "
                "give conditions."
            )
    return [known[name] for name in groups]


_AT_RISK_OVER_ERROR = 3.0  # least share at risk, over its standard error: beyond, the curve is not known
_DRAWS = 20_000  # of normal deviations, for the band


@dataclass(frozen=True, kw_only=True)
class SurvivalCurve(Printed):
    """S(t), the probability of no event up to and with each time.

    time, event  what was asked.
    curve        a row for each time up to which enough rows are at risk, indexed by the time: survival; standard_error and its
                 parts privacy, sampling, resolution; low and high, the interval at each time; band_low and band_high, a band that
                 holds the whole curve with probability `level`; at_risk, the share of rows at its start.
    notes        what a reader should know.

    >>> curve = release.survival("age", "income == '>50K'").curve
    >>> list(curve.columns[:2]), bool((curve["band_low"] <= curve["low"]).all())
    (['survival', 'standard_error'], True)
    """

    time: str
    event: str
    level: float
    curve: pd.DataFrame
    notes: tuple[str, ...] = field(default=())

    def median(self) -> float:
        """The first time at which the survival is at most ½; NaN if it is nowhere.

        >>> release.survival("age", "income == '>50K'").median()
        61.0
        """
        reached = self.curve.index[self.curve["survival"] <= 0.5]
        return float(reached[0]) if len(reached) else np.nan

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON: a list with an entry for each time.

        >>> release.survival("age", "income == '>50K'").to_dict()["curve"][0]["time"]
        17.0
        """
        rows = self.curve.rename_axis("time").reset_index().to_dict("records")
        return {"time": self.time, "event": self.event, "level": self.level, "curve": rows, "notes": list(self.notes)}

    def __repr__(self) -> str:
        notes = "".join(f"\nnote: {note}" for note in self.notes)
        return f"survival of {self.event} by {self.time}\n{self.curve.drop(columns=[*PARTS]).round(4).to_string()}{notes}"


def survival(
    release: ReleaseData, time: str, event: Question, *, where: Condition = None, level: float = 0.95,
    view: View | None = None,
) -> SurvivalCurve:  # fmt: skip
    """The Kaplan–Meier curve of a release with the errors of noise, sampling and resolution.

    time    a column of numbers: how long each row was watched, until its event or without one.
    event   the condition that the watch ended by an event.
    Errors  ValueError where time is not a column of numbers, or so few rows are at risk that no time has an estimate.

    Time is divided into the ranges and values that the release measured; without measured tables as `table` divides it. Where no
    table of time and event was measured the error has a part of resolution for that, and a note says what would help.

    >>> release.survival("age", "income == '>50K'").curve[["survival", "band_low", "band_high"]].head(2)
          survival  band_low  band_high
    age
    17.0  0.999789  0.986543        1.0
    26.0  0.995918  0.970259        1.0
    """
    column = release.columns[time] if time in release.columns.names else None
    if not isinstance(column, Number) or isinstance(column, Date):
        raise ValueError(
            f"time must be a column of numbers, got {time!r:.80}. Name one, such as the days that each row was watched."
        )
    population = population_of(release, where=where, view=view)
    happened = population.values(event)
    check_condition(happened[: len(population.weights)])
    if not happened.any():
        raise ValueError(
            f"the event {shown(event)} never occurs in this population, so that the curve is 1 throughout. Ask of another event, "
            "or widen where."
        )
    edges = _edges(release, time, column)
    last = np.append(edges, float(column.upper))
    at = np.searchsorted(edges, population.values(words.column(time)), side="right")
    step = column.grain or 0.0
    singles = np.diff(np.concatenate([[float(column.lower)], edges, [float(column.upper) + step]])) <= step * (1 + 1e-9)
    curve, at_risk, unseen = _curve(population, at[:, None] == np.arange(len(last)), happened == 1, singles)
    times = np.append(edges - step, last[-1])[: len(at_risk)]
    notes = (*_notes(release, time, event, len(last) - len(at_risk)), *undecided(population, event))
    frame = _frame(population, curve, unseen, at_risk, times, time, level)
    return SurvivalCurve(time=time, event=shown(event), level=level, curve=frame, notes=notes)


def _edges(release: ReleaseData, time: str, column: Number) -> Array:
    features = None if release.measurement is None else release.measurement.feature_map
    if isinstance(features, MarginFeatures) and time in release.domain.names:
        j = release.domain.position(time)
        edges, atoms = (FROM_SCALE[column.scale](np.array(codes)) for codes in (features.kernel.edges[j], features.kernel.atoms[j]))
        if column.grain is None:
            return np.unique([float(f"{value:.6g}") for value in edges])
        ends = np.concatenate([column.multiples(edges, np.ceil), (own := column.multiples(atoms)), own + column.grain])
        ends = np.unique(np.round(ends, 9))
        return ends[(ends > column.lower) & (ends <= column.upper)]
    lefts = {group.left for group in groups_of(release.columns, time) if group.left is not None}
    return np.array(sorted(float(left) for left in lefts))[1:]


def _curve(population: Population, own: Array, happened: Array, singles: Array) -> tuple[Statistic, Array, Array]:
    """S at the end of each cell of time as one statistic, as far as it is known; the shares at risk; and the relative errors of
    the factors of S from what is not known, when within a cell rows leave.
    """
    events, ends = own & happened[:, None], own & ~happened[:, None]
    left = np.cumsum(own[:, ::-1], axis=1)[:, ::-1]
    E, C, R = (mean_statistic(population, values.astype(float)) for values in (events, ends, left))
    assert R.influence is not None
    error = total(population.model.parts(population.influence(R.influence)))
    exposed = R - C * np.where(singles, 0.0, 0.5)
    known = (R.value > _AT_RISK_OVER_ERROR * error) & (exposed.value > np.maximum(E.value, 0.0))
    count = int(np.argmin(known)) if not known.all() else len(known)
    if not count:
        raise ValueError("too few rows are at risk for a survival curve: noise hides them. Ask of a wider condition.")
    first = np.arange(count)
    steps = np.log(1.0 - E[first] / exposed[first])
    logarithm = Statistic(np.cumsum(steps.value), np.cumsum(steps.influence, axis=1))
    died, at_risk, left_out = np.maximum(E.value, 0)[:count], R.value[:count], np.maximum(C.value, 0)[:count]
    if_first = np.minimum(died / np.maximum(at_risk - left_out, _LEAST_SHARE), 1.0)
    unseen = np.where(singles[:count], 0.0, (if_first - died / at_risk) / 2 / np.exp(steps.value))
    return np.exp(logarithm), at_risk, unseen


def _frame(
    population: Population, curve: Statistic, unseen: Array, at_risk: Array, times: Array, name: str, level: float
) -> pd.DataFrame:
    assert curve.influence is not None
    parts = population.model.covariance(population.influence(curve.influence))
    if unseen.any():
        each = np.tril(np.outer(curve.value, unseen))  # errors of S (k,) by each factor up to it
        parts["resolution"] = each @ each.T + (0.0 if parts["resolution"] is None else parts["resolution"])
    covariance = joined(parts)
    error = np.sqrt(np.maximum(covariance.diagonal(), 0.0))
    value = _decreasing(curve.value)
    z = z_of(level)
    ends = {
        f"{band}{side}": np.clip(value + sign * width * error, 0.0, 1.0)
        for band, width in (("", z), ("band_", max(_largest_deviation(covariance, level), z)))
        for side, sign in (("low", -1), ("high", 1))
    }
    of_parts = {p: np.nan if parts[p] is None else np.sqrt(np.maximum(parts[p].diagonal(), 0.0)) for p in PARTS}
    columns = {"survival": value, "standard_error": error, **of_parts, **ends, "at_risk": _decreasing(at_risk)}
    return pd.DataFrame(columns, index=pd.Index(times, name=name))


def _decreasing(values: Array) -> Array:
    """The curve between 0 and 1, made decreasing: halfway between the nearest curves below and above it that are."""
    inside = np.clip(values, 0.0, 1.0)
    below, above = np.minimum.accumulate(inside), np.maximum.accumulate(inside[::-1])[::-1]
    return (below + above) / 2


def _largest_deviation(covariance: Array, level: float) -> float:
    error = np.sqrt(np.maximum(covariance.diagonal(), 0.0))
    varies = error > 0
    if not varies.any():
        return 0.0
    correlation = covariance[np.ix_(varies, varies)] / np.outer(error[varies], error[varies])
    values, vectors = np.linalg.eigh(correlation)
    draws = np.random.default_rng(0).normal(size=(_DRAWS, len(values))) * np.sqrt(np.maximum(values, 0.0))
    return float(np.quantile(np.abs(draws @ vectors.T).max(axis=1), level))


def _notes(release: ReleaseData, time: str, event: Question, unknown: int) -> tuple[str, ...]:
    found = ["the curve ends where too few are at risk to be distinguished from noise"] if unknown else []
    names, measurement = release.domain.names, release.measurement
    together = sorted({time, *(parse(event).columns if isinstance(event, str) else ())})
    measured = measurement is not None and set(together) <= set(names) and 1 < len(together) <= 3
    if measured and measured_table(measurement, [names.index(name) for name in together]) is None:
        found.append(
            f"no table of {' × '.join(map(words.written, together))} was measured, and resolution stands for that. A release with "
            "--workload, or with one of them as --target, measures it"
        )
    return tuple(found)
