"""A model fitted to the population of a release: its coefficients, their influence functions and joint covariance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kmeanalyst.inference.estimate.error_model import Parts, joined
from kmeanalyst.inference.estimate.population import Population, population_of
from kmeanalyst.inference.regression.design import INTERCEPT, Design
from kmeanalyst.inference.regression.equations import NEARLY_SINGULAR, Equations, NoRoot, Separated, dependent_columns, root
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.embedding import on_one_thread

_INVOLVED = 0.05  # share of a direction from which a coefficient is named as part of it
_FELL_BACK = (
    "the {view} weights, of which some are negative, have no root of the score equations here ({why}): these are the answers of "
    "the probability view, whose distance to the best answers is in the error"
)


@dataclass(frozen=True, eq=False)
class Fit:
    """The root of the equations under a population's weights.

    population  whose weights they are.
    design      the columns.
    equations   at all rows of the population's model.
    beta        (k,) the coefficients.
    reference   (k, k): see `root`.
    notes       what was done to fit it.
    """

    population: Population
    design: Design
    equations: Equations
    beta: Array
    reference: Array
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return self.design.names

    @cached_property
    @on_one_thread
    def influence(self) -> Array:
        """(n, k) of the coefficients, on the released weights: that of J⁻¹ψ."""
        J = self.equations.information(self.beta, self.population.weights)
        return self.population.influence(np.linalg.solve(J, self.equations.scores(self.beta).T).T)

    @cached_property
    def covariance(self) -> Parts:
        """Joint covariances (k, k) by source."""
        return self.population.model.covariance(self.influence)

    @cached_property
    def total_covariance(self) -> Array:
        return joined(self.covariance)

    def held_at(self, index: int, value: float, start: Array) -> Array:
        """β where one coefficient has this value and the equations of the others hold; NoRoot where there is none."""
        beta = np.array(start)
        beta[index] = value
        return root(self.equations, self.population.weights, beta, self.reference, held=index)


Make = Callable[[Population], tuple[Design, Equations]]


@on_one_thread
def fit_equations(population: Population, make: Make, notes: Sequence[str] = ()) -> Fit:
    """The fit under the population's weights, or under its probability view's where these have no root; ValueError without one."""
    try:
        return _fitted(population, make, tuple(notes))
    except NoRoot as reason:
        if population.view == "probability" or (population.weights >= 0).all():
            raise _refusal(reason, population, make) from None
        why = str(reason)
    feasible = population_of(population.release, where=population.where, view="probability")
    try:
        return _fitted(feasible, make, (*notes, _FELL_BACK.format(view=population.view, why=why)))
    except NoRoot as reason:
        raise _refusal(reason, feasible, make) from None


def _fitted(population: Population, make: Make, notes: tuple[str, ...]) -> Fit:
    design, equations = make(population)
    positive = np.maximum(population.weights, 0.0)
    if (direction := dependent_columns(equations.X, positive)) is not None:
        raise ValueError(
            f"the predictors determine one another under these weights ({_involved(design.names, direction)}), so their "
            "coefficients are not determined: one is constant, never occurs, or is a sum of others. Leave one of them out, or "
            "widen where."
        )
    start = equations.start(positive)
    reference = equations.information(start, positive, expected=True)
    if not np.array_equal(positive, population.weights):
        start = root(equations, positive, start, reference)
    beta = root(equations, population.weights, start, reference)
    absent = [condition for factor in design.factors.values() for condition in factor.absent]
    notes += tuple(f"{condition} never occurs and is left out" for condition in absent)
    if (direction := dependent_columns(equations.X, positive, NEARLY_SINGULAR)) is not None:
        notes += (
            f"nearly collinear: {_involved(design.names, direction)} almost determine one another, so that their coefficients are "
            "uncertain, and no one of them means much alone",
        )
    return Fit(population, design, equations, beta, reference, notes)


def _involved(names: Sequence[str], direction: Array) -> str:
    order = np.argsort(-np.abs(direction))
    chosen = sorted(j for j in order[:8] if abs(direction[j]) > _INVOLVED * np.abs(direction).max())
    return ", ".join(names[j] for j in chosen)


def _refusal(reason: NoRoot, population: Population, make: Make) -> ValueError:
    if isinstance(reason, Separated):
        separating = _separating(reason, *make(population))
        return ValueError(
            f"the target is perfectly separated: in some of the rows it follows from {separating}, "
            "so that these coefficients are not finite. Leave one of them out, or join rare levels in a condition such as "
            "x in ['a', 'b']."
        )
    return ValueError(
        f"the score equations have no root under the {population.view} weights ({reason}). Fit fewer terms, or another link."
    )


def _separating(reason: Separated, design: Design, equations: Equations) -> str:
    """The coefficients that have no finite root, by what they do to means: the intercept only where it is alone."""
    direction = reason.direction * np.sqrt((equations.X**2).mean(axis=0))
    others = np.array([name != INTERCEPT for name in design.names])
    if (np.abs(direction[others]) > _INVOLVED * np.abs(direction).max()).any():
        direction = np.where(others, direction, 0.0)
    return _involved(design.names, direction)


def efficient_score(fit: Fit, beta: Array, index: int) -> Array:
    """(n,) ψ_j − J_jo J_oo⁻¹ ψ_o at β (k,), o the other coefficients."""
    psi, J = fit.equations.scores(beta), fit.equations.information(beta, fit.population.weights)
    others = np.arange(len(beta)) != index
    return psi[:, index] - psi[:, others] @ np.linalg.solve(J[np.ix_(others, others)].T, J[index, others])
