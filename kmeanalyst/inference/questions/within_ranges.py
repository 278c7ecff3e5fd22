"""By how much means and probabilities may be off within ranges of numbers, which rows fill as if nothing were known there.

A single value, a heap on either side of where a question or a condition cuts, the first value of a range, and how two columns
depend on each other within the ranges that it compares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
import pandas as pd
from scipy.special import ndtri

from kmeanalyst.inference.estimate import unresolved
from kmeanalyst.inference.estimate.population import (
    Distribution,
    Population,
    answer,
    estimate,
    estimates,
    mean_statistic,
    population_of,
)
from kmeanalyst.inference.estimate.statistic import Statistic
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.cells import with_columns
from kmeanalyst.releases.expressions import Expression
from kmeanalyst.releases.release import ReleaseData, View

Z = float(ndtri(0.975)) * (1 - 1e-12)  # a 95 % interval reaches as far as all the mass that is not resolved
_FEW, _MANY = 2.0, 100.0  # rows of all that count for a group; rows from which a group is known by its own
_ROUNDING = 1e-12


def error_within_ranges(population: Population, found: Statistic, question: str, asked: Expression) -> float:
    """The standard error of a mean that its ranges leave, beside that which it has."""
    most = max(_of_single_values(population, asked), _of_ranges_cut(population, question, asked, float(found.value)))
    bias, apart = _of_edges(population, asked), error_of_comparisons(population, asked)
    if max(apart, most) > 0:
        error = Z * estimate(population, found).standard_error
        most = max(most, apart + error if apart > 0 else 0.0)
        bias = float(np.hypot(bias, np.sqrt(max(most**2 - error**2, 0.0)) / Z))
    return bias


class FewRows:
    """What conditions leave open that few rows of a release meet: the population may have others there, which these do not show.

    Means of a group have the variance that they would have if `_FEW` of all rows were of it too.
    """

    def __init__(self, population: Any, question: Any) -> None:
        self.population = population
        self.count = np.inf if population.given is None else 1 / float(population.weights @ population.weights)
        if isinstance(population, Population) and self.count < _MANY and _can_be_asked(population, question):
            whole = whole_of(population)
            values = whole.values_at(question, whole.model.frame.iloc[: len(whole.weights)])
            self.everywhere = np.where(np.isfinite(values), np.maximum(whole.weights, 0.0), 0.0)
            self.values = np.where(np.isfinite(values), values, 0.0)
        else:
            self.count = np.inf

    def error(self, function: Callable[[Array], Array] = np.asarray) -> float:
        """A standard error of the mean of a function of the question, beside that which it has."""
        if not self.relative:
            return 0.0
        values, own = function(self.values), self.population.weights
        apart = (values - own @ values) ** 2
        return self.relative * float(np.sqrt(max(self.everywhere @ apart / self.everywhere.sum() - own @ apart, 0.0)))

    def error_of_step(self, x: float) -> float:
        """That of the distribution function at a value, or just below it: the larger one."""
        return max(self.error(lambda values: 1.0 * (values < x)), self.error(lambda values: 1.0 * (values <= x)))

    @property
    def relative(self) -> float:
        """That error of a function whose variance, of all rows, is 1 and of the group 0."""
        return float(np.sqrt(_FEW / (_FEW + self.count) / max(self.count, 0.5)))


def _can_be_asked(population: Population, question: Any) -> bool:
    readable = not isinstance(question, str) or unresolved.readable(population.release, question) is not None
    return readable and population.release.measurement is not None  # else rows are a sample, with a sample's error


def with_bias(population: Distribution, found: Statistic, bias: float) -> Statistic:
    """A statistic with one more error, common to all populations: beside a bias that it may have."""
    if bias <= _ROUNDING or found.influence is None:
        return found
    return replace(found, influence=population.model.with_bias(found.influence, bias))


def _of_single_values(population: Population, asked: Expression) -> float:
    """By how much the answer may be off, as values that it asks for may have more or less mass than the rows say."""
    whole, square = whole_of(population), 0.0
    frame = whole.model.frame.iloc[: len(whole.weights)]
    for name, code, ends, departs in unresolved.single_values(whole.release, asked, frame, whole.weights):
        moved, mass = _moved(population, asked.text, whole, name, code, _codes(population, name), ends)
        square += (departs * moved / mass) ** 2 if mass > 0 else departs**2
    return float(np.sqrt(square))


def _of_edges(population: Population, asked: Expression) -> float:
    """By how much the answer may be off, as values may heap at the first value of a range with which it compares."""
    square = 0.0
    for name, code, narrow, wide in unresolved.values_at_edges(population.release, asked):
        codes = _codes(population, name)
        moved, mass = _moved(population, asked.text, population, name, code, codes, narrow)
        around = float(population.weights @ ((codes >= wide[0]) & (codes < wide[1])))
        square += (min(unresolved.AT_EDGES * around, mass / Z) * moved / mass) ** 2 if mass > 0 else 0.0
    return float(np.sqrt(square))


def error_of_comparisons(population: Population, asked: Expression) -> float:
    """How much more or less a probability may be, as columns that depend on each other may do so within ranges it compares."""
    most, frame = 0.0, population.model.frame.iloc[: len(population.weights)]
    for names in unresolved.compared_columns(population.release, asked):
        if asked.check(population.release.columns) != "condition":
            break
        corners, lifted = unresolved.corners(population.release, names, frame, whole_of(population).weights)
        rows = [frame, *(with_columns(frame, own) for own in corners)]
        here, *there = (population.values_at(asked.text, each) == 1 for each in rows)
        may, need_not = np.any(there, axis=0) & ~here, here & ~np.all(there, axis=0)
        most = max(most, *(float(population.weights @ (lifted * each)) for each in (may, need_not)))
    return most


def _of_ranges_cut(population: Population, question: str, asked: Expression, value: float) -> float:
    """By how much the answer may be off, as values heap in a range that it or a condition cuts: all of it may be on either side."""
    release, frame, found = population.release, population.model.frame, list[Statistic]()
    for name, code, ends in unresolved.heaps_cut(release, asked):
        values = population.values_at(asked.text, _with_heap(release, frame, name, code, ends))
        found.append(answer(population, mean_statistic(population, values), question))
    errors = [one.standard_error for one in estimates(population, found)] if found else []
    own = max((abs(one.value - value) + Z * error for one, error in zip(found, errors, strict=True)), default=0.0)
    given = most_apart(population, value, lambda other: answer(other, mean_statistic(other, other.values(question)), question))
    return max(own, given)


def most_apart(population: Population, value: float, statistic: Callable[[Population], Statistic]) -> float:
    """How far from a value the intervals of a statistic reach as values heap in ranges that a condition cuts; 0 for none."""
    most = 0.0
    for other in with_heaps_in_conditions(population):
        with suppress(ValueError):  # the question has no value at rows that would then be among them
            found = statistic(other)
            if found.influence is not None:
                most = max(most, abs(float(found.value) - value) + Z * estimate(other, found).standard_error)
    return most


def with_heaps_in_conditions(population: Population) -> Iterator[Population]:
    """The population given conditions of which those that cut a range, in which values heap, have all of it on one side."""
    release, where = population.release, population.where
    for k, condition in enumerate(where):
        given = unresolved.readable(release, condition) if isinstance(condition, str) else None
        if given is None:
            continue
        for name, code, ends in unresolved.heaps_cut(release, given):
            moved = partial(_meets_with_heap, release, given, name, code, ends)
            with suppress(ValueError):  # no row would be left
                yield population_of(release, where=(*where[:k], moved, *where[k + 1 :]), view=cast(View, population.view))


def _with_heap(release: ReleaseData, frame: pd.DataFrame, name: str, code: float, ends: Array) -> pd.DataFrame:
    """Rows of which those within a range of a column have one value of it."""
    column: Any = release.domain[name]
    codes = column.encode(frame[name])[0]
    moved = column.decode(np.where((codes >= ends[0]) & (codes < ends[1]), code, codes))
    return with_columns(frame, {name: moved.set_axis(frame.index)})


def _meets_with_heap(release: ReleaseData, asked: Expression, name: str, code: float, ends: Array, frame: pd.DataFrame) -> Array:
    return np.asarray(asked.evaluate(_with_heap(release, frame, name, code, ends), release.columns)) == 1


def whole_of(population: Population) -> Population:
    """The same without conditions."""
    return population if population.given is None else population_of(population.release, view=cast(View, population.view))


def _codes(population: Population, name: str) -> Array:
    return population.release.domain[name].encode(population.model.frame[name].iloc[: len(population.weights)])[0]


def _moved(
    population: Population, question: str, source: Population, name: str, code: float, codes: Array, ends: Array
) -> tuple[float, float]:
    """How the answer changes as all rows within a range move to a value of it; and their mass elsewhere, in another population."""
    inside = (codes >= ends[0]) & (codes < ends[1])
    rows = population.model.frame.iloc[: len(inside)][inside]
    if not inside.any():
        return 0.0, 0.0
    moved = with_columns(rows, {name: population.release.domain[name].decode(np.array([code])).iloc[0]})
    apart = population.values_at(question, moved) - population.values_at(question, rows)
    elsewhere = codes[inside] != code
    return float(population.weights[inside] @ np.nan_to_num(apart)), float(source.weights[inside] @ elsewhere)
