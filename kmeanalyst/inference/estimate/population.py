"""The population that a release stands for, and what every statistic of it shares.

A statistic T of the weights of a view is a value with its derivative by each row's weight. From these follow the influence
function on the released weights (delta method; Deville 1999) and, by the error model, the error in parts. Given a condition g
the weights are v = w g / Σ w g, and dT/dw(z) = g(z) (T′(z) − Σ v T′) / Σ w g. Without one, w is used as it is: signed weights
need not sum to one, and nothing is normalised silently.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from kmeanalyst.inference.declared import impossible_condition
from kmeanalyst.inference.estimate.error_model import (
    PARTS,
    ErrorModel,
    IndependentErrors,
    Parts,
    Terms,
    error_model,
    fitted_model,
    total,
)
from kmeanalyst.inference.estimate.estimate import SAMPLE, Estimate, Estimates
from kmeanalyst.inference.estimate.statistic import Statistic, mean_of_rows
from kmeanalyst.inference.estimate.unresolved import what_would_help
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.embedding import on_one_thread
from kmeanalyst.releases.domain.column import Columns
from kmeanalyst.releases.expressions import ExpressionError, parse, words
from kmeanalyst.releases.release import Question, ReleaseData, View
from kmeanalyst.releases.rules.compiled import asked_of
from kmeanalyst.representation.weights.views import view_weights

_FEW_MISSING = 0.005  # a smaller share of rows that lack a cell is not worth a note
_NO_ROWS = 1e-12  # a probability of a condition that is nothing but rounding
_GROWS = re.compile(r"\bexp\s*\(|\*\*")  # beyond the largest number, where a column itself is not
_ROUNDING = 1e-13  # an error, relative to the answer, that is nothing else


class Distribution(ABC):
    """Weighted rows of a statistic, given a condition or not, and further rows at which its derivatives must be known (abstract).

    model        the errors: an ErrorModel, or IndependentErrors of several.
    weights      (M,) on the first rows of model.frame; given a condition they sum to one.
    given        (n,) bool over model.frame, whether the condition holds; None without one.
    probability  Σ w · condition under the distribution's weights; 1 without a condition.
    condition    the condition as text; "" without one.
    notes        on the condition, for every answer.
    """

    view: str
    model: Any
    weights: Array
    given: Array | None
    probability: float
    condition: str
    notes: tuple[str, ...] = ()

    def question(self, column: Any) -> Any:
        """A column's name, or another question, as `values` takes it."""
        return column

    @abstractmethod
    def values(self, question: Any) -> Array:
        """A question at the points, then at the other rows: (n,) float64, finite at the points."""

    def bounds(self, question: Any) -> tuple[float, float] | None:
        """Between which values a question lies on every row, by the domain's bounds; None where these do not say."""
        return None

    @on_one_thread
    def mean(self, values: Array) -> Array:
        return self.weights @ values[: len(self.weights)]

    def influence(self, derivative: Array) -> Array:
        """From derivatives (n,) or (n, k) by each row's weight, the influence function as `model` takes it."""
        if self.given is None:
            return derivative
        given = self.given if derivative.ndim == 1 else self.given[:, None]
        return np.where(given, derivative - self.mean(derivative), 0.0) / self.probability

    def features(self, values: Array, function: Callable[[Array], Array]) -> tuple[Array, Array]:
        """Means (k,) and influences (·, k) of functions of the values: (m,) or (m, d) → (m, k)."""
        at_rows = function(values)
        return self.mean(at_rows), self.influence(at_rows)

    def terms(self, influence: Array) -> Terms:
        """The influence on each release, as an Estimate carries it."""
        return ((self.model, influence),)

    def text(self, question: str) -> str:
        return f"{question} | {self.condition}" if self.condition else question

    @abstractmethod
    def infeasible(self, what: str, value: Callable[[Any], float]) -> str:
        """A note on an infeasible value: what it is, and what the probability view gives, `value` being that of a distribution."""


def infeasible_value(what: str, feasible: Any, value: Callable[[Any], float]) -> str:
    instead = "says nothing given the condition" if feasible is None else f"gives {value(feasible):.4g}"
    return f"{what}: signed weights can give one. The probability view {instead}."


_MOST_OF_VARIANCE = 0.5  # a larger share of resolution in an answer's variance is said in a note
_TOGETHER = 64  # questions whose errors are computed at once
Where = Question | Sequence[Question] | None


@dataclass(frozen=True, eq=False)
class Population(Distribution):
    """The weights of a view, given a condition or not, and the rows at which questions are asked.

    view       "signed", "probability" or "fitted".
    weights    (M,) on the released points, or on the rows of the posterior; given a condition they sum to one.
    where      the conditions, as they were asked.
    The other fields are those of Distribution.
    """

    release: ReleaseData
    view: str
    where: tuple[Question, ...]
    model: ErrorModel
    weights: Array
    given: Array | None = None
    probability: float = 1.0
    condition: str = ""
    notes: tuple[str, ...] = ()

    def question(self, column: Question) -> Question:
        """A column's name as an expression, also one that is misspelled: `hours-per-wek` is no difference of three columns."""
        names = self.release.columns.names
        if not isinstance(column, str) or (column not in names and _is_readable(column, names)):
            return column
        return words.column(column)

    def bounds(self, question: Question) -> tuple[float, float] | None:
        if not isinstance(question, str):
            return None
        extent = asked_of(self.release, question).extent(self.release.columns)
        return (extent.low, extent.high) if extent.bounded else None

    def values(self, question: Question) -> Array:
        """A question at the rows of model.frame, (n,) float64: finite at every point of the population.

        Where the condition does not hold the value does not matter, and is 0; NaN where it is undefined at a row that
        is not a released point.
        """
        rows, n_points = self.model.frame, len(self.weights)
        halves = [rows.iloc[:n_points], rows.iloc[n_points:]]
        values = np.concatenate([self.values_at(question, part) for part in halves if len(part)])
        values = np.where(np.isfinite(values), values, np.nan)
        _check_met(self.release, question, values)
        if self.given is not None:
            values[~self.given] = 0.0
        if not np.isfinite(values[:n_points]).all():
            by_where = f'where, such as "{_a_condition(question, self.release.columns)}", an argument of the question or of groupby'
            check_defined(values[:n_points], getattr(question, "exclusion", by_where), f" {shown(question)}")
        return values

    def values_at(self, question: Question, rows: pd.DataFrame) -> Array:
        """A question at other rows, as release.decode gives them: (n,) float64, not finite where it is undefined."""
        if not isinstance(question, str) and not callable(question):
            raise TypeError(
                f"a question is an expression in quotes or a function of a DataFrame, got a {type(question).__name__}. Write "
                "'age > 50'; a random variable is asked itself, as in variable.mean()."
            )
        if isinstance(question, str):
            asked = asked_of(self.release, question).evaluate(rows, self.release.columns)
        else:
            asked = question(rows)
        values = np.asarray(asked, dtype=float)
        if values.shape != (len(rows),):
            raise ValueError(
                f"the question must give one number for each of {len(rows)} points, got shape {values.shape}. "
                "Return a column, such as lambda frame: frame['age'] > 50."
            )
        return values

    @cached_property
    def in_probability_view(self) -> Population | None:
        """The same population in the probability view; None if its condition has probability 0 there."""
        try:
            return population_of(self.release, where=self.where, view="probability")
        except ValueError:
            return None

    def infeasible(self, what: str, value: Callable[[Population], float]) -> str:
        return infeasible_value(what, self.in_probability_view, value)


def population_of(release: ReleaseData, *, where: Where = None, view: View | None = None) -> Population:
    """The population of a view, given conditions; ValueError where they have probability 0.

    where   a condition, or several that must all hold.
    view    "fitted" (the default where something was measured), "signed" or "probability": see `default_view`.
    """
    if isinstance(where, Mapping):
        raise TypeError(f"where is a condition in quotes, or several in a list, got {where!r:.80}. Write where=\"sex == 'Male'\".")
    weights, label, model = _view(release, view or default_view(release))
    conditions = () if where is None else (where,) if isinstance(where, str) or callable(where) else tuple(where)
    everyone = Population(release, label, conditions, model, weights)
    if not conditions:
        return everyone
    held = [everyone.values(condition) for condition in conditions]
    for values in held:
        check_condition(values[: len(weights)])
    given = np.logical_and.reduce([values == 1 for values in held])
    if not given[: len(weights)].any() and (rules := impossible_condition(release, conditions)):
        raise ValueError(f"no row can meet the condition, by declaration: {rules}. Ask another condition.")
    probability = positive_probability(float(mean_of_rows(weights, given).value))
    texts = [shown(condition, "condition") for condition in conditions]
    text = texts[0] if len(texts) == 1 else " and ".join(f"({part})" for part in texts)
    weights = weights * given[: len(weights)] / probability
    notes = undecided(everyone, *conditions)
    return Population(release, label, conditions, model, weights, given, probability, text, notes)


def undecided(population: Distribution, *conditions: Any) -> tuple[str, ...]:
    """Notes on values beyond a column's bounds, and on rows, unless few, for which a missing cell leaves a condition open."""
    some = conditions if isinstance(population, Population) else ()
    return tuple(note for each in some if (note := _note_on(population, shown(each))))  # type: ignore[arg-type]


def _note_on(population: Population, condition: str) -> str:
    columns = population.release.columns
    try:
        asked = asked_of(population.release, condition)
        is_condition = asked.check(columns) == "condition"
    except ExpressionError:  # a function's name, or a random variable's text that is not an expression
        return ""
    for name, sign, value in asked.compared:
        low, high = getattr(columns[name], "natural_bounds", (-np.inf, np.inf))
        all_or_none = {"<": low, ">=": low, "<=": high, ">": high}.get(sign)
        if isinstance(value, float) and (value == all_or_none or not low <= value <= high):
            return f"{name} is {low:g} to {high:g} by the domain, so that a comparison with {value:g} leaves nothing open"
    if not is_condition or not any(columns[name].missing for name in asked.columns):
        return ""
    frame, false = population.model.frame.iloc[: len(population.weights)], asked.denied()
    open_at = ~(false.evaluate(frame, columns) | false.denied().evaluate(frame, columns))
    share = float(population.weights @ open_at)
    if share < _FEW_MISSING:
        return ""
    names = [name for name in asked.columns if frame.loc[open_at, name].isna().any()]
    present = " and ".join(f"not missing({words.column(name)})" for name in names)
    return (
        f"{share:.1%} of rows have no {words.names(names)}, and no comparison with a missing cell holds: the condition "
        f'"{present}" leaves these rows out'
    )


def positive_probability(probability: float) -> float:
    if probability <= _NO_ROWS:
        raise ValueError(
            f"the condition has probability {probability:.3g} under these weights, so nothing can be said given it. Ask a wider "
            'condition; where weights are signed, as fitted ones are, view="probability" may have an answer. A single value of a '
            "number has rows where it is an atom of the domain."
        )
    return probability


def mean_statistic(distribution: Distribution, values: Array) -> Statistic:
    """Σ v · values as a statistic of the weights, of values (n,) or (n, k) as `Distribution.values` gives them."""
    return mean_of_rows(distribution.weights, values)


def answer(
    distribution: Distribution, statistic: Statistic, question: str, notes: tuple[str, ...] = (),
    possible: tuple[float, float] | None = None,
) -> Statistic:  # fmt: skip
    """A statistic of the distribution's weights as one of the released weights (the chain rule), with what is said of it."""
    influence = None if statistic.influence is None else distribution.influence(statistic.influence)
    return Statistic(float(statistic.value), influence, distribution.text(question), notes, possible=possible)


def estimates(distribution: Distribution, statistics: Sequence[Statistic]) -> Estimates:
    known = _parts(distribution.model, [one.influence for one in statistics if one.influence is not None])
    unknown: Parts = dict.fromkeys(PARTS, np.nan)
    return Estimates(_estimate(distribution, one, unknown if one.influence is None else next(known)) for one in statistics)


def _parts(model: ErrorModel | IndependentErrors, influences: Sequence[Array]) -> Iterator[Parts]:
    for first in range(0, len(influences), _TOGETHER):
        some = influences[first : first + _TOGETHER]
        longest = max(map(len, some))
        padded = [one if len(one) == longest else np.append(one, 0.0) for one in some]  # some have no bias
        found = model.parts(np.column_stack(padded))
        for k in range(len(some)):
            yield {name: None if part is None else float(part[k]) for name, part in found.items()}


def estimate(distribution: Distribution, statistic: Statistic) -> Estimate:
    return estimates(distribution, [statistic])[0]


def _estimate(distribution: Distribution, statistic: Statistic, parts: dict[str, float | None]) -> Estimate:
    influence, question, by, error = statistic.influence, statistic.question, statistic.interval_by, float(total(parts))
    known = distribution.view in ("fitted", SAMPLE) or (  # signed weights, and bounds that were drafted, as they are
        distribution.view == "probability" and isinstance(distribution, Population) and distribution.release.measurement
    )
    possible = statistic.possible if known else None
    value = float(statistic.value if possible is None else np.clip(statistic.value, *possible))
    if error <= _ROUNDING * abs(value):  # the same of all rows
        error, parts = 0.0, {name: part and 0.0 for name, part in parts.items()}
    on_both = (*distribution.notes, *distribution.model.notes)
    notes = (*statistic.notes, *on_both, *_weakness(distribution, question, parts, error))
    if possible is not None and 1.96 * error > max(value - possible[0], possible[1] - value) > 0:
        data = "sample" if distribution.view == SAMPLE else "release"
        notes += (f"its interval is all that is possible: the {data} says next to nothing of this",)
    return Estimate(
        value=value, standard_error=error, parts=parts, view=distribution.view, question=question,
        notes=notes, terms=() if influence is None else distribution.terms(influence),
        interval_by=by(value, error) if callable(by) else by, possible=possible,
    )  # fmt: skip


def _weakness(distribution: Distribution, question: str, parts: Parts, error: float) -> tuple[str, ...]:
    if not isinstance(distribution, Population) or distribution.release.measurement is None:
        return ()
    resolution = parts["resolution"]
    most = resolution is not None and resolution**2 > _MOST_OF_VARIANCE * error**2
    return (note,) if most and (note := what_would_help(distribution.release, question)) else ()


def check_defined(values: Array, hint: str, question: str = "") -> None:
    """ValueError where a value at a point is not finite; the hint says how such points are excluded."""
    undefined = int((~np.isfinite(values)).sum())
    if undefined:
        raise ValueError(
            f"the question{question} has no finite value at {undefined} of {len(values)} points (a missing cell, a division by "
            f"zero, a logarithm of zero, a number that is too large, as exp(1000)). Exclude them with {hint}."
        )


def check_condition(values: Array) -> None:
    if not np.isin(values, (0.0, 1.0)).all():
        raise ValueError(
            "a probability needs a condition, true or false for every row, and this has other values. "
            'Write a comparison, such as "age > 50", or ask expectation(...) instead.'
        )


def shown(question: Any, otherwise: str | None = None) -> str:
    """A question as text: as it is written, or a function's name, or `otherwise` in its place."""
    if isinstance(question, str):
        return question
    written = getattr(question, "text", None)
    return written if isinstance(written, str) else otherwise or str(getattr(question, "__name__", "function"))


def _is_readable(text: str, names: Sequence[str]) -> bool:
    try:
        known = set(parse(text).columns) <= set(names)
    except ExpressionError:
        known = False
    return known or words.close(text, names) is None


def _check_met(release: ReleaseData, question: Question, values: Array) -> None:
    """ValueError where a text that the question names is in none of the rows: an error bar of 0 would be wrong."""
    if not isinstance(question, str) or np.ptp(values) > 0:  # NaN: undefined at some row, and said elsewhere
        return
    if strings := parse(question).strings_compared(release.columns):
        raise ValueError(
            f"no row that the release knows of distinguishes {question!r:.200} from the others, so how often it holds cannot be "
            f"said. Ask about texts of released points, as release.to_frame() has them in column {words.written(strings[0])}."
        )


def _a_condition(question: Question, columns: Columns) -> str:
    """As an example: that a cell of a column it names is there, its level a number, a number not 0, or what grows not too large."""
    expression = parse(question) if isinstance(question, str) else None
    if isinstance(question, str) and _GROWS.search(question):
        return f"{question} < 1e300"
    if expression and expression.read_as_numbers:
        read = f"number({words.written(expression.read_as_numbers[0])})"
        return f"{read} == {read}"
    named = sorted(
        expression.columns if expression else (), key=lambda name: f"/{words.written(name)}" not in str(question).replace(" ", "")
    )  # what divides, first
    name = next((each for each in named if columns[each].missing), named[0] if named else "age")
    if named and columns[name].is_number and not any(columns[each].missing for each in named):
        return f"{words.written(name)} > 0"
    return f"not missing({words.written(name)})"


def default_view(release: ReleaseData) -> View:
    """The view that statistics are of: the best answers that the measurement allows, where there is one.

    "fitted"       the rows that error bars start from, under the weights that the measurement makes most plausible: of many
                   rows of margins these rows, under weights of which some may be negative; else some sixteen thousand rows.
    "signed", "probability"   the released points, where nothing was measured or their weights were given.
    """
    if release.measurement is not None and release.weight_view != "given":
        return "fitted"
    return released_view(release)


def released_view(release: ReleaseData) -> View:
    return "probability" if release.is_probability else "signed"


def feasible_view(release: ReleaseData, view: View | None, what: str) -> View:
    """The view that a statistic which needs probabilities is of: "fitted" where that is the default, else "probability"."""
    if view not in (None, "probability", "fitted"):
        raise ValueError(f'{what} Pass view="probability" or "fitted".')
    return view or ("fitted" if default_view(release) == "fitted" else "probability")


def _view(release: ReleaseData, view: View) -> tuple[Array, str, ErrorModel]:
    if view == "resampled":
        raise ValueError(
            'resampled rows are for other tools: use to_frame("resampled"). Ask view="signed", "probability" or "fitted".'
        )
    if view == "fitted":
        fitted = fitted_model(release)
        return fitted.weights, view, fitted
    weights = view_weights(release, view)
    return weights, view, error_model(release, weights)
