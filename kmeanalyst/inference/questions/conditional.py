"""E[f(Y) | X = x] from one release, each with its error, and the distribution of a table's rows given X = x.

The value, its influence function and the remaining bias are those of the regression (`conditional_embedding`), moved by what the
measurement says of the amplitude of the dependence. A ridge narrower than an eighth of a column's range stays flattened: its
peak may be missed (tests/benchmarks/conditional_expectation.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from kmeanalyst.inference.estimate.estimate import Estimate, Estimates, InverseCdf
from kmeanalyst.inference.estimate.population import check_condition, estimates, shown
from kmeanalyst.inference.estimate.statistic import Statistic
from kmeanalyst.inference.questions.conditional_embedding import Smoother, smoother
from kmeanalyst.kernels import Kernel
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.column import KEPT
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.release import Question, ReleaseData, View

Given: TypeAlias = Mapping[str, Any] | pd.DataFrame

_FAR = 0.5  # share of the prior variance: if the release leaves more, the answer is mostly extrapolated
_ROUNDING = 1e-9


def conditional_expectation(
    release: ReleaseData,
    question: Question,
    *,
    given: Given,
    where: Question | None = None,
    view: View | None = None,
    kernel: Kernel | str | None = None,
) -> Estimate | Estimates:
    """E[question | given columns have these values], smoothed over neighbouring values of numbers.

    question  an expression over column names, or a function of a DataFrame; a condition gives its probability.
    given     column → a value, or a list of values, in natural units: {"age": [30, 40], "sex": "F"}; or a DataFrame of
              such columns. None is a missing cell, where the domain declares it.
    where     a condition on the rows that are used; for levels it is exact, and needs no smoothing.
    view      "signed" (as released; the default) or "probability". Where signed weights give a regression without a
              minimum, the default takes the probability view, and a note says so.
    kernel    on the given columns: Kernel or its text. By default the table kernel's lengthscales down to an eighth of a
              column's range: narrower dependence is not seen.
    Returns   Estimate where every value is given by itself, Estimates (in order) where there is a list or a DataFrame.
    Errors    ValueError for values that are not of their column's domain.

    >>> release.conditional_expectation("income == '>50K'", given={"age": [30, 50]})
    income == '>50K' | age = 30: 0.139 ± 0.031 (95 %: 0.078 to 0.201; privacy 0.017, sampling 0.008, resolution 0.025)
    income == '>50K' | age = 50: 0.367 ± 0.054 (95 %: 0.261 to 0.472; privacy 0.030, sampling 0.014, resolution 0.042)
    """
    names, rows, several = given_rows(release, given)
    smooth = smoother(release, names, where=where, view=view, kernel=kernel)
    answers = conditional_estimates(smooth, question, rows)
    return answers if several else answers[0]


def conditional_estimates(smooth: Smoother, question: Question, rows: pd.DataFrame) -> Estimates:
    """The question given each of the rows (q, conditioning columns) in natural units."""
    return estimates_of(smooth, question, [f"{shown(question)} | {text}" for text in texts_of(smooth, rows)], rows)


def estimates_of(smooth: Smoother, question: Question, texts: Sequence[str], rows: pd.DataFrame) -> Estimates:
    """The conditional means of a question, moved as far as the measurement says of their amplitude."""
    population, at = smooth.population, smooth.at(smooth.conditioning.encode(rows))
    values = population.values(question)
    found, influences, left = smooth.answers(values, at)
    amplitudes = smooth.amplitudes(at)
    if amplitudes is not None:
        moved, error = amplitudes.of(question, values)
        found, left = found + moved, np.hypot(left, error)
    at_points = values[: len(population.weights)][population.weights != 0]
    is_condition = bool(np.isin(at_points, (0.0, 1.0)).all())
    statistics = [
        Statistic(
            float(value),
            np.append(influences[:, k], left[k]),  # it ends in the bias: see ErrorModel
            question=texts[k],
            notes=(*smooth.notes, *_notes(float(value), is_condition, unknown)),
        )
        for k, (value, unknown) in enumerate(zip(found, smooth.unknown(at), strict=True))
    ]
    return estimates(population, statistics)


def _notes(value: float, is_condition: bool, unknown: float) -> list[str]:
    notes = []
    if unknown > _FAR:
        notes.append(
            "the release has hardly any weight near these values: the answer depends on distant ones, and its error on the "
            "kernel's smoothness"
        )
    if is_condition and not -_ROUNDING <= value <= 1 + _ROUNDING:
        notes.append(f"{value:.4g} is not a probability: the weights of a conditional distribution can be negative")
    return notes


def given_rows(release: ReleaseData, given: Given) -> tuple[list[str], pd.DataFrame, bool]:
    """Column names, rows (q, k) of their values, and whether several were asked for; ValueError if they are not of the domain."""
    table: dict[Any, Any] = dict(given)
    if not table:
        raise ValueError(
            'given names no column: a conditional answer needs at least one value. Write given={"age": 40}.'
        )
    for name in table:
        if name not in release.columns.names:
            raise ValueError(
                f"no column {name!r} to be given; the columns are {', '.join(release.columns.names)}. Name some of these."
            )
    lengths = {len(values) for values in table.values() if _is_list(values)}
    if len(lengths) > 1 or 0 in lengths:
        raise ValueError(
            f"the lists of given values have lengths {sorted(lengths)}: each answer needs a value of every column. "
            "Give lists of one length, at least 1, and single values for what stays the same."
        )
    q = next(iter(lengths), 1)
    cells = {name: list(values) if _is_list(values) else [values] * q for name, values in table.items()}
    for name, values in cells.items():
        column = release.columns[name]
        _, status = column.encode(np.array(values, dtype=object))
        if (status != KEPT).any():
            wrong = values[int(np.argmax(status != KEPT))]
            raise ValueError(
                f"{wrong!r:.80} is not a value of {name}, which is {column.describe()}: the release has no rows there. "
                "Give values of its domain."
            )
    domain = Domain(tuple(release.columns[name] for name in cells))
    rows = domain.decode(domain.encode({name: np.array(values, dtype=object) for name, values in cells.items()}))
    return list(cells), rows, bool(lengths)


def _is_list(values: Any) -> bool:
    return isinstance(values, Sequence | np.ndarray | pd.Series | pd.Index) and not isinstance(values, str)


def texts_of(smooth: Smoother, rows: pd.DataFrame) -> list[str]:
    """The given values of each row as text: "age = 40, sex = F"; then the condition."""
    cells = [[f"{name} = {_shown(value)}" for name, value in row.items()] for row in rows.to_dict("records")]
    after = f", {smooth.population.condition}" if smooth.population.condition else ""
    return [", ".join(row) + after for row in cells]


def _shown(value: Any) -> str:
    if pd.isna(value):
        return "(missing)"
    if isinstance(value, pd.Timestamp):
        return value.date().isoformat()
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def conditional_law(
    release: ReleaseData,
    *,
    given: Given,
    where: Question | None = None,
    view: View | None = None,
    kernel: Kernel | str | None = None,
) -> ConditionalLaw:
    """The distribution of the rows given one value of each of some columns; options as in `conditional_expectation`.

    >>> release.conditional_law(given={"age": 40}).mean("hours-per-week")
    `hours-per-week` | age = 40: 42.8 ± 2.3 (95 %: 38.3 to 47.3; privacy 0.7, sampling 0.3, resolution 2.2)
    """
    names, rows, several = given_rows(release, given)
    if several:
        raise ValueError(
            "a conditional distribution is given one value of each column, and here there is a list. Ask for one "
            "distribution at a time, or for conditional_expectation, which takes lists."
        )
    return ConditionalLaw(smoother(release, names, where=where, view=view, kernel=kernel), rows)


@dataclass(frozen=True, eq=False, repr=False)
class ConditionalLaw:
    """Weights α(x) on the released points: E[f | X = x] is Σ α_i f(z_i), for any f, as far as the points say.

    The answers below are moved by what the measurement says of the amplitude of f's dependence on X (`amplitude`).

    smooth  the regression on the given columns.
    given   their values, one row in natural units.

    >>> law = release.conditional_law(given={"age": 40})
    >>> law.text, law.weights.shape
    ('age = 40', (300,))
    >>> law.mean("hours-per-week")
    `hours-per-week` | age = 40: 42.8 ± 2.3 (95 %: 38.3 to 47.3; privacy 0.7, sampling 0.3, resolution 2.2)
    """

    smooth: Smoother
    given: pd.DataFrame

    @property
    def weights(self) -> Array:
        """α (M,): signed, as ridge weights are even where the release's are not; they sum to one."""
        return self.smooth.weights(self.smooth.at(self.smooth.conditioning.encode(self.given)))[0]

    @property
    def text(self) -> str:
        """The given values, as text."""
        return texts_of(self.smooth, self.given)[0]

    def __repr__(self) -> str:
        return f"ConditionalLaw of a row | {self.text} ({len(self.smooth.population.weights):,} points)"

    def to_frame(self) -> pd.DataFrame:
        """The released points with these weights in the column "weight".

        >>> release.conditional_law(given={"age": 40}).to_frame()[["age", "weight"]].head(2)
           age    weight
        0   93 -0.000137
        1   65  0.002926
        """
        return self.smooth.population.release.frame.assign(weight=self.weights)

    def expectation(self, question: Question) -> Estimate:
        """E[question | given], with its error bar.

        >>> release.conditional_law(given={"age": 40}).expectation("`hours-per-week` * 52")
        `hours-per-week` * 52 | age = 40: 2224 ± 119 (95 %: 1990 to 2458; privacy 37, sampling 14, resolution 112)
        """
        return conditional_estimates(self.smooth, question, self.given)[0]

    def mean(self, column: str) -> Estimate:
        """The conditional mean of a column of numbers, with its error bar.

        >>> release.conditional_law(given={"sex": "Male"}).mean("age")
        age | sex = Male: 38.49 ± 0.62 (95 %: 37.28 to 39.71; privacy 0.32, sampling 0.21, resolution 0.49)
        """
        return self.expectation(self.smooth.population.question(column))

    def probability(self, condition: Question) -> Estimate:
        """P(condition | given), with its error bar; ValueError if the question is no condition.

        >>> release.conditional_law(given={"age": 40}).probability("income == '>50K'")
        income == '>50K' | age = 40: 0.361 ± 0.053 (95 %: 0.258 to 0.464; privacy 0.022, sampling 0.012, resolution 0.046)
        """
        population = self.smooth.population
        check_condition(population.values(condition)[: len(population.weights)][population.weights != 0])
        return self.expectation(condition)

    def quantile(self, column: Question, q: float) -> Estimate:
        """The smallest released value at which the conditional distribution function reaches q.

        Signed weights give a function that can fall and leave [0, 1]: the mean of its largest value so far and its least
        from there on is taken, which cannot fall, within [0, 1]. The interval is that of the quantiles at q ± the error of
        the function (Woodruff 1952), within the column's bounds.

        >>> release.conditional_law(given={"age": 40}).quantile("hours-per-week", 0.5)
        quantile(hours-per-week, 0.5) | age = 40: 40.00 ± 0.26 (95 %: 40.00 to 41.00; privacy 0.10, sampling 0.04,
            resolution 0.23)
        """
        if not 0 < q < 1:
            raise ValueError(f"q must lie between 0 and 1, got {q!r}: it is a probability. Pass e.g. 0.5.")
        population, weights = self.smooth.population, self.weights
        question = population.question(column)
        values = population.values(question)
        support, which = np.unique(values[: len(weights)][population.weights != 0], return_inverse=True)
        steps = np.cumsum(np.bincount(which, weights[population.weights != 0]))
        highest, least = np.maximum.accumulate(steps), np.minimum.accumulate(steps[::-1])[::-1]
        cumulative = np.clip((highest + least) / 2, 0.0, 1.0)
        cumulative[-1] = 1.0
        bounds = population.bounds(column) or (float(support[0]), float(support[-1]))
        curve = InverseCdf(support, cumulative, q, 0.0, bounds)
        value = curve.at(q)

        def below(frame: pd.DataFrame) -> Array:
            at_rows = population.values_at(question, frame)
            return np.where(np.isnan(at_rows), np.nan, at_rows <= value)

        text = f"quantile({shown(column)}, {q:g}) | {self.text}"
        found = estimates_of(self.smooth, below, [text], self.given)[0]
        moved = found.value - float(weights @ (values[: len(weights)] <= value))  # of the function, as means are
        curve = replace(curve, q=float(np.clip(q - moved, 0.0, 1.0)))
        value, by = curve.at(curve.q), replace(curve, standard_error=found.standard_error)
        notes = tuple(note for note in found.notes if "not a probability" not in note)
        return replace(-by.slope * found, value=value, question=text, notes=notes, interval_by=by)
