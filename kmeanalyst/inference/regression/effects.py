"""What a fitted model says in units of the target: average marginal effects, and means at given rows.

An average marginal effect is θ = Σ w m(x, β) / Σ w, m the derivative of the mean by a number, or its difference between a level and
the first. Its influence is (m − θ) / Σ w + (∂θ/∂β)ᵀ J⁻¹ψ: of the rows it is averaged over, and of the coefficients (Bartus 2005).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtri

from kmeanalyst.inference.estimate.estimate import Estimates
from kmeanalyst.inference.regression.design import column_of, values_of
from kmeanalyst.inference.regression.errors import answers
from kmeanalyst.inference.regression.fit import Fit, values_at
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.column import REPLACED, Column
from kmeanalyst.releases.expressions import ExpressionError, parse, words


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
    """Means at the rows of a frame with errors and intervals, on the scale of η where there is one mean; NaN at a missing cell."""
    columns, equations = fit.population.release.columns, fit.equations
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level!r}: it is a coverage. Pass e.g. 0.95.")
    _check_columns(fit, frame)
    for name in _named(fit):
        _check_cells(columns[name], frame[name])
    values = values_of(lambda question: parse(question).evaluate(frame, columns), fit.design.questions)
    values |= _without_level(fit, values, frame)
    X = fit.design.matrix(values, len(frame))
    if np.isinf(X).any():
        name = fit.design.names[int(np.isinf(X).any(axis=0).argmax())]
        raise ValueError(
            f"{words.short(name)} is infinite at some rows of the frame, where there is no mean "
            "to predict. Leave those rows out."
        )
    means, by_beta = equations.means(fit.beta, X)
    errors_of_eta = (
        np.sqrt(np.einsum("nk,kl,nl->n", X, fit.total_covariance, X).clip(0.0)) if _has_eta(fit, X) else None
    )
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
        if errors_of_eta is None:
            low, high = equations.interval(means[:, c], error, z)
        else:
            low, high = equations.interval_of_eta(X @ fit.beta, z * errors_of_eta)
        table = pd.DataFrame(
            {"value": means[:, c], "standard_error": error, "low": low, "high": high, **parts}, index=frame.index
        )
        tables.append(table.assign(outcome=label.removeprefix(" = ")) if label else table)
    return tables[0] if len(tables) == 1 else pd.concat(tables)


def _has_eta(fit: Fit, X: Array) -> bool:
    """Whether the model has one linear predictor."""
    return len(fit.equations.labels) == 1 and X.shape[1] == len(fit.beta)


def _named(fit: Fit) -> list[str]:
    """The columns that the design is made of."""
    return list(dict.fromkeys(name for question in fit.design.questions for name in parse(question).columns))


def _check_cells(column: Column, cells: pd.Series) -> None:
    """ValueError for a cell that is no value of the column: another level, or a text in place of a number."""
    present = cells[cells.notna()]
    bad = present[column.encode(present)[1] == REPLACED] if len(present) else present
    if not len(bad):
        return
    name, cell = words.written(column.name), words.quoted(str(bad.iloc[0]))
    if column.has_levels:
        known = getattr(column, "levels", ())
        raise ValueError(
            f"{name} has no level {cell}: the model knows {', '.join(map(words.short, known[:20]))}. Leave such rows out, or make "
            "the cell missing, for which NaN is predicted."
        )
    raise ValueError(f"{name} is {column.kind}, and {cell} is no such value. Correct the cell, or leave the row out.")


def _without_level(fit: Fit, values: Mapping[str, Array], frame: pd.DataFrame) -> dict[str, Array]:
    """The conditions of levels, NaN at rows that have none of those in the model: their cell is missing, or ValueError."""
    changed: dict[str, Array] = {}
    for text, factor in fit.design.factors.items():
        if not factor.conditions:
            continue
        none = np.sum([values[condition] for condition in factor.conditions], axis=0) == 0
        name = column_of(text)
        assert name is not None  # a factor with conditions is a column
        if (other := none & frame[name].notna().to_numpy()).any():
            raise ValueError(
                f"{words.written(name)} is {frame[name][other].iloc[0]!r} in some rows, a level that never occurs in the fitted "
                "population and has no coefficient. Leave such rows out."
            )
        changed |= {condition: np.where(none, np.nan, values[condition]) for condition in factor.conditions}
    return changed


def _check_columns(fit: Fit, frame: pd.DataFrame) -> None:
    named = _named(fit)
    if not isinstance(frame, pd.DataFrame):
        raise ValueError(
            f"frame must be a DataFrame with the columns {', '.join(named)}, got {type(frame).__name__}. Write "
            f"pd.DataFrame({{{words.literal((named or ['age'])[0])}: [...]}}), for example."
        )
    if absent := [name for name in named if name not in frame.columns]:
        raise ExpressionError(
            f"the frame lacks {', '.join(absent)}, from which the model predicts. Pass a frame with the columns {', '.join(named)}."
        )
