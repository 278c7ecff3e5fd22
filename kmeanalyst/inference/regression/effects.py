"""What a fitted model says in units of the target: average marginal effects, and means at given rows.

An average marginal effect is θ = Σ w m(x, β) / Σ w, m the derivative of the mean by a number, or its difference between a level and
the first. Its influence is (m − θ) / Σ w + (∂θ/∂β)ᵀ J⁻¹ψ: of the rows it is averaged over, and of the coefficients (Bartus 2005).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtri

from kmeanalyst.inference.estimate.estimate import Estimates
from kmeanalyst.inference.regression.design import values_of
from kmeanalyst.inference.regression.errors import answers
from kmeanalyst.inference.regression.fit import Fit, values_at
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.expressions import ExpressionError, parse


def average_marginal_effects(fit: Fit, target: str) -> Estimates:
    """An effect for each number of the formula, and for each level but the first of each column of levels."""
    population = fit.population
    total, weights = population.weights.sum(), population.weights / population.weights.sum()
    values, derivatives, questions = [], [], []
    for name, m, by_beta in _effects(fit):
        theta = weights @ m[: len(weights)]
        gradient = np.tensordot(weights, by_beta[: len(weights)], axes=1)  # (c, k)
        values.append(theta)
        derivatives.append((m - theta) / total + fit.influence @ gradient.T)
        questions += [f"{target}{label} by {name}" for label in fit.equations.labels]
    if not values:
        raise ValueError("the model has an intercept alone, and so no effects. Name a column in the formula.")
    return answers(population, np.concatenate(values), np.hstack(derivatives), questions)


def _effects(fit: Fit) -> Iterator[tuple[str, Array, Array]]:
    """Of each effect its name, m (n, c) at the rows, and the derivative by β (n, c, k)."""
    design, equations, beta = fit.design, fit.equations, fit.beta
    values = values_of(partial(values_at, fit.population), design.questions)
    n = len(fit.population.model.frame)
    for text, factor in design.factors.items():
        if not factor.conditions:
            yield text, *equations.mean_slopes(beta, design.matrix(values, n), design.slope(values, n, text))
            continue
        first, first_by_beta = equations.means(beta, design.at_level(values, n, text, factor.conditions[0]))
        for condition in factor.conditions[1:]:
            m, by_beta = equations.means(beta, design.at_level(values, n, text, condition))
            yield condition, m - first, by_beta - first_by_beta


def predicted(fit: Fit, frame: pd.DataFrame, level: float) -> pd.DataFrame:
    """Means at the rows of a frame with errors and intervals, on the scale of η where there is one mean."""
    columns, equations = fit.population.release.columns, fit.equations
    _check_columns(fit, frame)
    values = values_of(lambda question: parse(question).evaluate(frame, columns), fit.design.questions)
    X = fit.design.matrix(values, len(frame))
    means, by_beta = equations.means(fit.beta, X)
    z = float(ndtri((1 + level) / 2))
    tables = []
    for c, label in enumerate(equations.labels):
        parts: dict[str, Any] = {
            name: np.nan
            if part is None
            else np.sqrt(np.maximum(np.einsum("nk,kl,nl->n", by_beta[:, c], part, by_beta[:, c]), 0.0))
            for name, part in fit.covariance.items()
        }
        error = np.sqrt(np.einsum("nk,kl,nl->n", by_beta[:, c], fit.total_covariance, by_beta[:, c]).clip(0.0))
        low, high = equations.interval(means[:, c], error, z)
        table = pd.DataFrame(
            {"value": means[:, c], "standard_error": error, "low": low, "high": high, **parts}, index=frame.index
        )
        tables.append(table.assign(outcome=label.removeprefix(" = ")) if label else table)
    return tables[0] if len(tables) == 1 else pd.concat(tables)


def _check_columns(fit: Fit, frame: pd.DataFrame) -> None:
    named = dict.fromkeys(name for question in fit.design.questions for name in parse(question).columns)
    if absent := [name for name in named if name not in frame.columns]:
        raise ExpressionError(
            f"the frame lacks {', '.join(absent)}, from which the model predicts. Pass a frame with the columns {', '.join(named)}."
        )
