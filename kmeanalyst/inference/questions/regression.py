"""Linear regression on a release, each coefficient with its error.

β minimises Σ v (y - xᵀβ)² in the view's weights: it solves Σ v x (y - xᵀβ) = 0, and `solve` gives its influence function
A⁻¹ x (y - xᵀβ), A = Σ v x xᵀ. That is the sandwich of robust standard errors (White 1980) with the release's own errors in
the place of the sample's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from kmeanalyst.inference.estimate.estimate import Estimate, Estimates, list_of_notes
from kmeanalyst.inference.estimate.population import Population, answer, estimates, population_of, shown
from kmeanalyst.inference.estimate.statistic import solve
from kmeanalyst.inference.questions.groups import groups_of
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.expressions import words
from kmeanalyst.releases.release import Question, ReleaseData, View

_SINGULAR = 1e-11  # share of the largest eigenvalue of A, scaled to diagonal 1, below which A counts as singular


@dataclass(frozen=True, eq=False)
class RegressionEstimate:
    """Coefficients of a weighted least squares fit.

    target        what was explained, as text.
    names         (k,) of the coefficients: "intercept", and the predictors as questions: "age", "city == 'Basel'".
    coefficients  Estimates, in that order.
    notes         what a reader should know besides the numbers.

    >>> fit = release.regression("age", ["education-num", "sex"])
    >>> fit.names
    ('intercept', '`education-num`', "sex == 'Male'")
    >>> fit["education-num"], fit.view
    (age ~ `education-num`: 0.28 ± 0.52 (95 %: -0.75 to 1.30; privacy 0.30, sampling 0.07, resolution 0.42), 'fitted')
    """

    target: str
    names: tuple[str, ...]
    coefficients: Estimates
    notes: tuple[str, ...] = ()

    @property
    def view(self) -> str:
        """The weights it was computed with."""
        return self.coefficients[0].view

    def __getitem__(self, name: str) -> Estimate:
        """The coefficient of a name; a column's own name does where its question has backticks."""
        if (asked := name if name in self.names else words.column(name)) not in self.names:
            raise KeyError(f"no coefficient {name!r:.80}: there are {', '.join(self.names)}. Name one of these.")
        return self.coefficients[self.names.index(asked)]

    def to_frame(self, level: float = 0.95) -> pd.DataFrame:
        """One row for each coefficient, indexed by its name; columns as `Estimates.to_frame` has them.

        >>> release.regression("age", ["education-num"]).to_frame()[["value", "standard_error"]]
                             value  standard_error
        coefficient
        intercept        35.847816        5.456835
        `education-num`   0.273538        0.533573
        """
        return self.coefficients.to_frame(level).set_axis(pd.Index(self.names, name="coefficient"))

    def __repr__(self) -> str:
        shown = self.to_frame()[["value", "standard_error", "low", "high"]]
        notes = list_of_notes(self.notes, self.coefficients)
        return "\n".join([f"{self.target}, weighted least squares ({self.view} weights)", str(shown), *notes])


def regression(
    release: ReleaseData,
    target: Question,
    predictors: Sequence[str],
    *,
    where: Question | None = None,
    view: View | None = None,
) -> RegressionEstimate:
    """Weighted least squares of a target on predictors and an intercept.

    target      a column of numbers, or an expression.
    predictors  columns or expressions; a column of levels becomes a condition for each level (and for missing cells) that
                occurs, but for the first of them, which the others are compared with.
    Errors      ValueError where the predictors determine one another under the weights.
    """
    if isinstance(predictors, str) or not len(predictors):
        raise ValueError(
            f"predictors must be a list of at least one column or expression, got {predictors!r}. Write them in "
            'brackets, such as ["age", "city"].'
        )
    population = population_of(release, where=where, view=view)
    expanded = [_expanded(population, name) for name in predictors]
    questions = [question for some, _ in expanded for question in some]
    y = population.values(population.question(target))
    everyone = np.ones(len(y)) if population.given is None else population.given.astype(float)
    X = np.column_stack([everyone, *(population.values(question) for question in questions)])
    notes = tuple(f"{question} never occurs and is left out" for _, absent in expanded for question in absent)
    return _fitted(population, shown(target), ("intercept", *questions), X, y, notes)


def _expanded(population: Population, predictor: str) -> tuple[list[str], list[str]]:
    """A predictor as questions with numbers for answers, and those about values that never occur.

    Levels (and missing cells) become conditions; the first that occurs is what the others are compared with.
    """
    if predictor not in population.release.columns.names:
        return [predictor], []
    column, name = population.release.columns[predictor], words.column(predictor)
    if column.is_text:
        raise ValueError(
            f'{predictor} is a column of texts, and no number. Write a condition: "{words.example(column)}".'
        )
    if not isinstance(column, Categorical):
        return [name], []
    conditions = [group.condition for group in groups_of(population.release.columns, predictor)]
    occurs = {condition: bool(population.mean(population.values(condition) != 0) != 0) for condition in conditions}
    there = [condition for condition in conditions if occurs[condition]]
    return there[1:], [condition for condition in conditions if not occurs[condition]]


def _fitted(
    population: Population, target: str, names: tuple[str, ...], X: Array, y: Array, notes: tuple[str, ...]
) -> RegressionEstimate:
    at_points = X[: len(population.weights)]
    scale = np.sqrt(np.maximum((at_points**2).T @ np.abs(population.weights), 1e-300))
    A = (at_points / scale).T @ (population.weights[:, None] * at_points / scale)  # in units of each predictor's size
    spectrum, vectors = np.linalg.eigh(A)
    if np.abs(spectrum).min() <= _SINGULAR * np.abs(spectrum).max():
        raise ValueError(_singular(names, vectors[:, np.abs(spectrum).argmin()]))
    if spectrum[0] < 0:
        notes += (
            "the weighted predictors have a direction of negative variance: signed weights can give one, and the fit "
            'is then a saddle point. Compare with view="probability".',
        )
    scaled = X / scale

    def normal_equations(beta: Array) -> tuple[Array, Array]:
        return scaled * (y - scaled @ beta)[:, None], -A

    beta = solve(normal_equations, population.weights, np.zeros(len(scale))) / scale
    coefficients = [answer(population, beta[k], f"{target} ~ {name}") for k, name in enumerate(names)]
    return RegressionEstimate(target, names, estimates(population, coefficients), notes)


def _singular(names: tuple[str, ...], direction: Array) -> str:
    involved = [name for name, part in zip(names, direction, strict=True) if abs(part) > 0.05]
    return (
        f"the predictors determine one another under these weights ({', '.join(involved)}), so their coefficients are "
        "not determined: one is constant, never occurs, or is a sum of others. Leave one of them out, or widen where."
    )
