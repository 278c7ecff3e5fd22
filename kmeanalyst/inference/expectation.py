"""Room 4: expectations, means and probabilities, each with its error in three parts (METHODS §5).

The value is Σ w_m h(z_m). Its error is read off the part of h that the features can see: a ridge fit
h ≈ const + aᵀφ over the released points. Then the privacy noise reaches the answer as τ‖a‖, the table is
itself a sample of N rows, and what the fit leaves over, r = h − aᵀφ, is what the features cannot see of
the question. How far the points miss the measurement along a, aᵀ(y − Σ w φ), counts as resolution too.
All three follow from one factorisation of an (M, M) matrix, kept for later questions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.linalg import cho_factor, cho_solve

from kmeanalyst.inference.expressions import parse, words
from kmeanalyst.inference.results import Estimate
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.columns import Categorical
from kmeanalyst.releases.release import Question, Release, View


def expectation(
    release: Release, question: Question, *, where: Question | None = None, view: View | None = None
) -> Estimate:
    """E[question], or E[question | where], under the population the table was drawn from.

    question   an expression over column names ("hours * wage", "age > 50"), or a function of a DataFrame in
               natural units that returns one number (or boolean) per row.
    where      a condition, in either form.
    view       "signed" (as released; the default) or "probability".
    """
    values = _evaluate(release, question)
    text = question if isinstance(question, str) else getattr(question, "__name__", "function")
    chosen, label, notes = _view(release, view)
    if where is None:
        return _estimate(release, values, float(chosen @ values), chosen, text, label, notes)
    given = _evaluate(release, where)
    _check_condition(given)
    chance = float(chosen @ given)
    if chance <= 0:
        raise ValueError(
            f"the condition has probability {chance:.3g} under the released weights, so nothing can be said given "
            'it. Ask a wider condition, or use view="probability".'
        )
    ratio = float(chosen @ (values * given)) / chance
    shown = text + (f" | {where}" if isinstance(where, str) else " | condition")
    return _estimate(release, (values - ratio) * given / chance, ratio, chosen, shown, label, notes)


def mean(release: Release, column: str, *, where: Question | None = None, view: View | None = None) -> Estimate:
    """The mean of a column of numbers."""
    return expectation(release, words.written(column), where=where, view=view)


def probability(
    release: Release, condition: Question, *, where: Question | None = None, view: View | None = None
) -> Estimate:
    """The probability of a condition; ValueError if the question is not one."""
    _check_condition(_evaluate(release, condition))
    return expectation(release, condition, where=where, view=view)


def conditions_by(release: Release, column: str, where: str | None = None) -> list[str]:
    """One condition for each level of a column, joined with `where`: what a question is asked by."""
    kind = release.domain[column]
    if not isinstance(kind, Categorical):
        raise ValueError(
            f"{column} has no levels to group by: it is {kind.kind}. Name a column with levels, or use where."
        )
    conditions = [f"{words.written(column)} == {words.quoted(level)}" for level in kind.levels]
    return [condition if where is None else f"({where}) and {condition}" for condition in conditions]


def _check_condition(values: Array) -> None:
    if not np.isin(values, (0.0, 1.0)).all():
        raise ValueError(
            "a probability needs a condition, true or false for every row, and this has other values. "
            'Write a comparison, such as "age > 50", or ask expectation(...) instead.'
        )


def _evaluate(release: Release, question: Question) -> Array:
    """The question at each point, (M,) float64, finite."""
    frame = _frame(release)
    if isinstance(question, str):
        values: Any = parse(question).evaluate(frame, release.domain)
    else:
        values = question(frame)
    values = np.asarray(values, dtype=float)
    if values.shape != (len(release),):
        raise ValueError(
            f"the question must give one number for each of {len(release)} points, got shape {values.shape}. "
            "Return a column, such as lambda frame: frame['age'] > 50."
        )
    if not np.isfinite(values).all():
        raise ValueError(
            f"the question has no finite value at {int((~np.isfinite(values)).sum())} of {len(release)} points (a missing "
            'cell, a division by zero, a logarithm of zero). Exclude them with where, such as "not missing(age)".'
        )
    return values


def _frame(release: Release) -> pd.DataFrame:
    return release.to_frame("signed").drop(columns="weight")


def _view(release: Release, view: View | None) -> tuple[Array, str, tuple[str, ...]]:
    if view == "resampled":
        raise ValueError(
            'resampled rows are for other tools: use to_frame("resampled"). Ask view="signed" or "probability".'
        )
    label = view or ("probability" if release.is_probability else "signed")
    return release.view_weights(label), label, ()


def _estimate(
    release: Release, values: Array, value: float, weights: Array, question: str, view: str, notes: tuple[str, ...]
) -> Estimate:
    parts = _error_parts(release, values, weights)
    total = float(np.sqrt(sum(part**2 for part in parts.values() if part is not None)))
    is_condition = bool(np.isin(values, (0.0, 1.0)).all())
    if is_condition and not 0 <= value <= 1:
        feasible = float(release.view_weights("probability") @ values)
        notes = (
            *notes,
            f"{value:.4g} is no probability: signed weights can give one. The probability view gives {feasible:.4g}.",
        )
    if release.measurement is None:
        notes = (
            *notes,
            "no measurement: the privacy noise is unknown, and the sampling part takes the points for rows",
        )
    return Estimate(
        value=value, standard_error=total, parts=parts, view=view, question=question, notes=notes
    )  # fmt: skip


@dataclass(frozen=True)
class _Prepared:
    """What every question to a release shares; p are its probability-view weights on their support."""

    support: Array
    root: Array  # √p
    centred: Array  # φ − Σ p φ on the support, (m, F)
    kernel: Array  # (m, m) √p φ̃ φ̃ᵀ √p
    factor: Any  # Cholesky of kernel + penalty · I
    penalty: float
    spread: float  # Σ p², one over the effective number of points
    noise_scale: float
    n_rows: int


def _prepared(release: Release) -> _Prepared:
    if "expectation" not in release.cache:
        release.cache["expectation"] = _prepare(release)
    return release.cache["expectation"]


def _prepare(release: Release) -> _Prepared:
    measurement = release.measurement
    assert measurement is not None
    p = release.view_weights("probability")
    support = np.flatnonzero(p > 0)
    p = p[support]
    features = measurement.feature_map(release.encoded_points[support])
    centred = features - p @ features
    root = np.sqrt(p)
    weighted = centred * root[:, None]
    kernel = weighted @ weighted.T
    spread = float(p @ p)
    penalty = measurement.noise_scale**2 / spread
    factor = cho_factor(kernel + penalty * np.eye(len(p)), lower=True)
    return _Prepared(
        support, root, centred, kernel, factor, penalty, spread, measurement.noise_scale, measurement.n_rows
    )


def _error_parts(release: Release, values: Array, weights: Array) -> dict[str, float | None]:
    """Standard errors of Σ w h(z): privacy τ‖a‖, sampling √(Var h / N), resolution √(Var r · Σp² + missed²).

    a minimises τ²‖a‖² + Σp² · Var_p(h − aᵀφ), the variance it is used to state.
    """
    if release.measurement is None:
        p = release.view_weights("probability")
        variance = float(p @ (values - p @ values) ** 2)
        return {"privacy": None, "sampling": float(np.sqrt(variance * (p @ p))), "resolution": None}
    ready = _prepared(release)
    h = ready.root * (values[ready.support] - (ready.root**2) @ values[ready.support])
    alpha = cho_solve(ready.factor, h)  # a = Φ̃ᵀ √p α
    seen = ready.kernel @ alpha  # √p · aᵀφ̃ at the points
    missed = _missed(release, ready, weights) @ (ready.root * alpha)
    residual_variance = float(ready.penalty**2 * (alpha @ alpha))
    return {
        "privacy": float(ready.noise_scale * np.sqrt(max(alpha @ seen, 0.0))),
        "sampling": float(np.sqrt(float(h @ h) / ready.n_rows)),
        "resolution": float(np.sqrt(residual_variance * ready.spread + missed**2)),
    }


def _missed(release: Release, ready: _Prepared, weights: Array) -> Array:
    """Φ̃(y − Σ w φ(z)): how far the weighted points miss the measurement, seen from each point."""
    key = ("missed", weights.tobytes())
    if key not in release.cache:
        measurement = release.measurement
        assert measurement is not None
        fitted = weights @ measurement.feature_map(release.encoded_points)
        release.cache[key] = ready.centred @ (measurement.vector - fitted)
    return release.cache[key]
