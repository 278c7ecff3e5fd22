"""The odds ratio of two conditions, common to all groups of a third column: Σ a d/n over Σ b c/n (Mantel & Haenszel 1959).

a, b, c, d are the shares of the four combinations within a group, n the group's. The error is that of the logarithm, by the delta
method on the release's error model: where no table holds the three columns, its part is resolution.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kmeanalyst.inference.estimate.estimate import Estimate
from kmeanalyst.inference.estimate.population import (
    Population,
    check_condition,
    estimate,
    mean_statistic,
    population_of,
    shown,
)
from kmeanalyst.inference.estimate.statistic import Statistic
from kmeanalyst.inference.questions.groups import groups_of
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.expressions import words
from kmeanalyst.releases.release import Question, ReleaseData, View

_LEAST_SHARE = 1e-9  # of a group that counts


def odds_ratio(
    release: ReleaseData,
    first: Question,
    second: Question,
    *,
    given: str | None = None,
    where: Question | None = None,
    view: View | None = None,
) -> Estimate:
    """The odds of one condition where another holds over those where it does not.

    given    a column: the Mantel–Haenszel common odds ratio of its groups.
    Returns  an Estimate whose interval is that of the logarithm; standard_error and parts are to first order.
    Errors   ValueError where a question is no condition, or where the noise leaves a side of the ratio without weight.
    """
    population = population_of(release, where=where, view=view)
    holds = []
    for condition in (first, second):
        values = population.values(condition)
        check_condition(values[: len(population.weights)])
        holds.append(values)
    x, y = (values[:, None] for values in holds)
    groups = _groups(population, given)
    a, b, c, d = (
        mean_statistic(population, one * groups) for one in (x * y, x * (1 - y), (1 - x) * y, (1 - x) * (1 - y))
    )
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
    influence = population.influence(logarithm.influence)
    found = estimate(population, Statistic(float(logarithm.value), influence, population.text(text)))
    ratio = float(np.exp(found.value))
    return replace(
        found, value=ratio, standard_error=ratio * found.standard_error,
        parts={name: None if part is None else ratio * part for name, part in found.parts.items()},
        terms=tuple((model, ratio * influence) for model, influence in found.terms),
        interval_by=_OfLogarithm(found),
    )  # fmt: skip


def _groups(population: Population, given: str | None) -> Array:
    """(n, K) which group each row is in; one of all without a column."""
    if given is None:
        return np.ones((len(population.model.frame), 1))
    groups = groups_of(population.release.columns, given)
    return np.column_stack([population.values(group.condition) for group in groups])


def _sum(each: Statistic) -> Statistic:
    assert each.influence is not None
    return Statistic(float(each.value.sum()), each.influence.sum(axis=1))


@dataclass(frozen=True, eq=False)
class _OfLogarithm:
    """The interval of a positive number, from that of its logarithm."""

    logarithm: Estimate

    def interval(self, z: float) -> tuple[float, float]:
        ends = (self.logarithm.value + sign * z * self.logarithm.standard_error for sign in (-1, 1))
        return tuple(map(float, np.exp(list(ends))))  # type: ignore[return-value]

    def robust(self, level: float) -> tuple[float, float]:
        return tuple(map(float, np.exp(self.logarithm.interval(level, kind="robust"))))  # type: ignore[return-value]
