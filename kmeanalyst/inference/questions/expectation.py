"""Expectations, means and probabilities, each with its error in parts (`error_model`).

The value is Σ w_m h(z_m) in the view's weights; its influence function is h itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from kmeanalyst.inference.declared import declared_by, note_of
from kmeanalyst.inference.estimate import unresolved
from kmeanalyst.inference.estimate.estimate import Estimate, Estimates
from kmeanalyst.inference.estimate.population import (
    Distribution,
    Population,
    answer,
    check_condition,
    estimate,
    estimates,
    mean_statistic,
    population_of,
    shown,
    undecided,
)
from kmeanalyst.inference.estimate.statistic import Statistic
from kmeanalyst.inference.questions.groups import MOST_ASKED, check_groups, groups_of
from kmeanalyst.inference.questions.within_ranges import FewRows, Z, error_of_comparisons, error_within_ranges, whole_of, with_bias
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.expressions import Expression, words
from kmeanalyst.releases.release import Condition, Question, ReleaseData, View

_ROUNDING = 1e-9


def expectation(release: ReleaseData, question: Question, *, where: Condition = None, view: View | None = None) -> Estimate:
    """E[question], or E[question | where], under the population the table was drawn from.

    question   an expression over column names ("hours * wage", "age > 50"), or a function of a DataFrame in
               natural units that returns one number (or boolean) per row.
    where      a condition, in either form; where it does not hold the question need not be defined.
    view       "fitted": the best answer that the measurement allows, not a sum over the released points; the default where
               something was measured. "signed" (as released), "probability": the points', whose distance to the best
               answer is part of the error. See `population.default_view`.

    >>> release.expectation("age * `hours-per-week`", where="sex == 'Female'")
    age * `hours-per-week` | sex == 'Female': 1446 ± 114 (95 %: 1222 to 1669; privacy 51, sampling 17, resolution 101) [1 note]
    >>> release.expectation(lambda rows: rows["age"] ** 2).value
    1684.9...
    """
    return expectations(release, [question], where=where, view=view)[0]


def expectations(
    release: ReleaseData, questions: Sequence[Question], *, where: Condition = None, view: View | None = None
) -> Estimates:
    """E[question] for each of many questions, as `expectation` gives it: one solve for all their errors.

    >>> release.expectations(["age", "age > 30", "age > 50"])
    age: 38.60 ± 0.43 (95 %: 37.75 to 39.45; privacy 0.26, sampling 0.18, resolution 0.30)
    age > 30: 0.661 ± 0.018 (95 %: 0.625 to 0.697; privacy 0.008, sampling 0.006, resolution 0.015) [1 note]
    age > 50: 0.202 ± 0.020 (95 %: 0.164 to 0.241; privacy 0.008, sampling 0.005, resolution 0.018) [1 note]
    """
    population = population_of(release, where=where, view=view)
    return estimates(population, [mean_of(population, question) for question in questions])


def mean(release: ReleaseData, column: Question, *, where: Condition = None, view: View | None = None) -> Estimate:
    """The mean of a column of numbers, or of an expression.

    >>> release.mean("age")
    age: 38.60 ± 0.43 (95 %: 37.75 to 39.45; privacy 0.26, sampling 0.18, resolution 0.30)
    """
    population = population_of(release, where=where, view=view)
    return estimate(population, mean_of(population, population.question(column)))


def total(release: ReleaseData, column: Question, *, where: Condition = None, view: View | None = None) -> Estimate:
    """The sum of a column, or of an expression: N times its expectation, where N counts units if these are protected.

    >>> release.sum("`hours-per-week`")
    sum(`hours-per-week`): 245352 ± 3724 (95 %: 238054 to 252650; privacy 2248, sampling 962, resolution 2808) [1 note]
    """
    found = mean(release, column, where=where, view=view)
    return _over_the_table(release, found, f"sum({shown(column)})", where, view)


def count(release: ReleaseData, condition: Question, *, where: Condition = None, view: View | None = None) -> Estimate:
    """How many rows meet a condition: N times its probability, where N counts units if these are protected.

    >>> release.count("age > 50", where="sex == 'Male'")
    count(age > 50) | sex == 'Male': 711 ± 110 (95 %: 496 to 927; privacy 44, sampling 25, resolution 97) [1 note]
    """
    found = probability(release, condition, where=where, view=view)
    return _over_the_table(release, found, f"count({shown(condition)})", where, view)


def _over_the_table(release: ReleaseData, found: Estimate, question: str, where: Condition, view: View | None) -> Estimate:
    """N · P(where) times a conditional expectation; ValueError where N is not known."""
    if release.statement is None:
        raise ValueError(
            f"{question} needs the number of rows of the table, and weighted points without a privacy statement have none. "
            "Multiply release.expectation(...) or release.probability(...) by the number that you know."
        )
    n_rows, ends = release.statement.n_rows, [] if found.possible is None else list(found.possible)
    if where is not None:
        question, ends = f"{question} | {shown(where)}", ends and [*ends, 0.0]
        found = found * probability(release, where, view=view)
    possible = (n_rows * min(ends), n_rows * max(ends)) if ends else None
    return replace(found * n_rows, question=question, possible=possible)


def probability(release: ReleaseData, condition: Question, *, where: Condition = None, view: View | None = None) -> Estimate:
    """The probability of a condition; ValueError if the question is not one.

    >>> release.probability("age > 50", where="sex == 'Male'")
    age > 50 | sex == 'Male': 0.177 ± 0.026 (95 %: 0.126 to 0.228; privacy 0.011, sampling 0.006, resolution 0.023) [1 note]
    """
    population = population_of(release, where=where, view=view)
    return estimate(population, probability_of(population, condition))


def mean_of(population: Distribution, question: Any, *, conditions_only: bool = False) -> Statistic:
    """Σ v h(z), with notes where missing cells leave a condition open, or it has no probability."""
    values = population.values(question)
    if conditions_only:
        check_condition(values[: len(population.weights)])
    found = statistic_of(population, values, shown(question), population.bounds(question), question)
    return replace(found, notes=(*found.notes, *undecided(population, question)))


def probability_of(population: Distribution, condition: Any) -> Statistic:
    """The probability of a condition; ValueError if the question is not a condition."""
    return mean_of(population, condition, conditions_only=True)


def _with_unresolved(population: Distribution, found: Statistic, question: str) -> Statistic:
    """The mean, with a bias for the mass that values may have which the measurement does not tell from others."""
    influence = found.influence
    if not isinstance(population, Population) or influence is None:
        return found
    if (asked := unresolved.readable(population.release, question)) is None:
        return found
    if np.nanmax(np.abs(influence)) > _ROUNDING * abs(found.value):
        return with_bias(population, found, error_within_ranges(population, found, question, asked))
    parts, denied, what = unresolved.conditions_joined(asked), asked.denied(), "no row of the release has this value: it may have"
    is_condition = asked.check(population.release.columns) == "condition"
    where = [unresolved.readable(population.release, each) for each in population.where if isinstance(each, str)]
    uncounted = _is_uncounted(population, asked, where)
    if uncounted and not is_condition and found.possible and np.isfinite(found.possible).all():
        low, high = found.possible
        of = words.names(asked.columns)
        note = f"no row that meets the conditions has another value, and {of} was not counted with them: it may be any other"
        return with_bias(population, replace(found, notes=(*found.notes, note)), max(found.value - low, high - found.value) / Z)
    mass_of = partial(
        unresolved.unresolved_mass, population.release, frame=population.model.frame, weights=population.weights,
        probability=population.probability, given=[part for each in where if each and is_condition for part in each.parts("and")],
    )  # fmt: skip
    if found.value > 1 / 2 and is_condition:
        what, mass = "every row of the release meets this: others may have", mass_of(denied)
    elif len(parts) > 1:
        known = unresolved.mass_of_pair(population.release, parts)
        mass = _most_of_all(population, parts) if known is None else min(known / population.probability, 1.0)
    else:
        elsewhere = _most_elsewhere(population, asked) if uncounted and is_condition else 0.0
        mass = max(mass_of(denied.denied() if is_condition else asked), elsewhere)
    mass = max(mass, error_of_comparisons(population, asked))
    if mass == 0:
        return found
    note = f"{what} a probability of up to {mass:.3g} by what was measured"
    return with_bias(population, replace(found, notes=(*found.notes, note)), mass / Z)


def _is_uncounted(population: Population, asked: Expression, where: Sequence[Expression | None]) -> bool:
    """Whether a column of the question was not counted with one of the conditions, which are on others."""
    release, given = population.release, {name for each in where if each for name in each.columns}
    places = [[release.domain.position(name) for name in names if name in release.domain] for names in (asked.columns, given)]
    measurement = release.measurement
    if measurement is None or given & {*asked.columns}:
        return False
    return not all(measurement.counted_together(*pair) for pair in product(*places))


def _most_elsewhere(population: Population, asked: Expression) -> float:
    """The most, at 95 %, that an event may have given conditions on columns that it was not counted with: all that it has."""
    whole = whole_of(population)
    if not whole.values(asked.text)[: len(whole.weights)].any():
        return 0.0
    return min(_most_of_all(whole, [asked.text]) / population.probability, 1.0)


def _most_of_all(population: Population, conditions: Sequence[str]) -> float:
    """The most that the least probable of these conditions may have, at 95 %: that all hold is no more probable."""
    answers = [estimate(population, probability_of(population, each)) for each in conditions]
    return float(np.clip(min(answer.interval(0.95)[1] for answer in answers), 0.0, 1.0))


def statistic_of(
    population: Distribution, values: Array, text: str, possible: tuple[float, float] | None = None, question: Any = None
) -> Statistic:  # fmt: skip
    """Σ v · values, from (n,) values at the rows of population.model.frame, which lie between the `possible` ones.

    question   what has these values, the text if none is given.
    """
    at_points = values[: len(population.weights)]
    if (certain := _by_declaration(population, at_points, text)) is not None:
        return certain
    found = mean_statistic(population, values)
    value, notes, condition = float(found.value), tuple[str, ...](), bool(np.isin(at_points, (0.0, 1.0)).all())
    if condition and (population.view == "fitted" or 0 <= value <= 1):
        possible = (0.0, 1.0)
    if not -_ROUNDING <= value <= 1 + _ROUNDING and condition and population.view != "fitted":
        notes = (population.infeasible(f"{value:.4g} is not a probability", lambda same: float(same.weights @ at_points)),)
    found = _with_unresolved(population, answer(population, found, text, notes, possible=possible), text)
    return with_bias(population, found, FewRows(population, text if question is None else question).error())


def _by_declaration(population: Distribution, at_points: Array, text: str) -> Statistic | None:
    """The exact answer to a condition that the rules of the table decide, with no error; None where they leave it open.

    at_points   (M,) its values at the weighted rows. All of these keep the rules, so that a decided one has a single value there.
    """
    if not isinstance(population, Population) or not population.release.domain.rules:
        return None
    given = population.given
    values = at_points if given is None else at_points[given[: len(at_points)]]
    if np.ptp(values) > 0 or values[0] not in (0.0, 1.0):
        return None
    found = declared_by(population.release, text, population.where)
    if found is None or found.holds != bool(values[0]):
        return None
    note = note_of(population.release, found)
    return Statistic(float(found.holds), np.zeros(len(population.model.frame)), population.text(text), (note,))


def conditions_by(release: ReleaseData, column: str, where: str | None = None) -> list[str]:
    """One condition for each level of a column, or node of a tree, joined with `where`."""
    kind = release.columns[column]
    if not isinstance(kind, Categorical):
        raise ValueError(f"{column} has no levels to group by: it is {kind.kind}. Name a column with levels, or use where.")
    check_groups(kind, None, MOST_ASKED)
    conditions = [group.condition for group in groups_of(release.columns, column)][: -1 if kind.missing else None]
    return [condition if where is None else f"({where}) and {condition}" for condition in conditions]
