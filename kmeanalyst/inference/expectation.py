"""Room 4: expectations, means and probabilities, each with its error in three parts (METHODS §5).

The value is Σ w_m h(z_m). Its error is read off the part of h that the features can see: a ridge fit
h ≈ const + aᵀφ. Then the privacy noise reaches the answer as τ‖a‖, the table is itself a sample of N rows,
and what the fit leaves over, r = h − aᵀφ, is what the features cannot see of the question: the table may
differ there from the released points by a relative variance κ, which is read off the measurement.

A fit on the released points alone would explain any question by interpolation. It is therefore made on
points and neighbours of theirs, and its residual is taken on other neighbours that it has not seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_array

from kmeanalyst.inference.expressions import parse, words
from kmeanalyst.inference.results import Estimate
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.base import sum_of_squares
from kmeanalyst.releases.columns import Categorical, Number
from kmeanalyst.releases.measurement import Measurement, feature_mean
from kmeanalyst.releases.release import Question, Release, View

_NEIGHBOURS = (500, 2000)  # fewest and most, to fit on and again to check on
_MOST_FIT = 2000  # of the released points, to fit on
_MOST_NUMBERS = 5e7  # features of the points to fit on, altogether: some 400 MB
_BLUR = 0.1  # of a column's range
_ROUNDING = 1e-9


def expectation(
    release: Release, question: Question, *, where: Question | None = None, view: View | None = None
) -> Estimate:
    """E[question], or E[question | where], under the population the table was drawn from.

    question   an expression over column names ("hours * wage", "age > 50"), or a function of a DataFrame in
               natural units that returns one number (or boolean) per row.
    where      a condition, in either form.
    view       "signed" (as released; the default) or "probability".
    """
    text = question if isinstance(question, str) else getattr(question, "__name__", "function")
    chosen, label = _view(release, view)
    values = _at_points(release, question)
    if where is None:
        return _estimate(release, _evaluator(release, question), float(chosen @ values), chosen, text, label)
    given = _at_points(release, where)
    _check_condition(given)
    chance = float(chosen @ given)
    if chance <= 0:
        raise ValueError(
            f"the condition has probability {chance:.3g} under the released weights, so nothing can be said given "
            'it. Ask a wider condition, or use view="probability".'
        )
    ratio = float(chosen @ (values * given)) / chance
    ask, condition = _evaluator(release, question), _evaluator(release, where)

    def influence(frame: pd.DataFrame) -> Array:  # of a ratio (delta method)
        holds = condition(frame) == 1
        return np.where(holds, ask(frame) - ratio, 0.0) / chance

    shown = text + (f" | {where}" if isinstance(where, str) else " | condition")
    return _estimate(release, influence, ratio, chosen, shown, label)


def mean(release: Release, column: str, *, where: Question | None = None, view: View | None = None) -> Estimate:
    """The mean of a column of numbers."""
    return expectation(release, words.written(column), where=where, view=view)


def probability(
    release: Release, condition: Question, *, where: Question | None = None, view: View | None = None
) -> Estimate:
    """The probability of a condition; ValueError if the question is not one."""
    _check_condition(_at_points(release, condition))
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


def _evaluator(release: Release, question: Question) -> Callable[[pd.DataFrame], Array]:
    """The question as a function of a frame, float64 (n,)."""
    if not isinstance(question, str):
        return lambda frame: np.asarray(question(frame), dtype=float)
    expression = parse(question)
    return lambda frame: np.asarray(expression.evaluate(frame, release.domain), dtype=float)


def _at_points(release: Release, question: Question) -> Array:
    """The question at each point, (M,) float64, finite."""
    values = _evaluator(release, question)(_frame(release))
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


def _view(release: Release, view: View | None) -> tuple[Array, str]:
    if view == "resampled":
        raise ValueError(
            'resampled rows are for other tools: use to_frame("resampled"). Ask view="signed" or "probability".'
        )
    label = view or ("probability" if release.is_probability else "signed")
    return release.view_weights(label), label


def _estimate(
    release: Release, ask: Callable[[pd.DataFrame], Array], value: float, weights: Array, question: str, view: str
) -> Estimate:
    """The estimate of a value whose dependence on the population is Σ w · ask(z), to first order."""
    values = ask(_frame(release))
    parts = (
        _error_parts(release, ask, values, weights)
        if release.measurement
        else _parts_without_measurement(release, values)
    )
    total = float(np.sqrt(sum(part**2 for part in parts.values() if part is not None)))
    notes = []
    if np.isin(values, (0.0, 1.0)).all() and not -_ROUNDING <= value <= 1 + _ROUNDING:
        feasible = float(release.view_weights("probability") @ values)
        told = f"{value:.4g} is no probability: signed weights can give one. The probability view gives {feasible:.4g}."
        notes.append(told)
    if release.measurement is None:
        notes.append("no measurement: the privacy noise is unknown, and the sampling part takes the points for rows")
    return Estimate(
        value=value, standard_error=total, parts=parts, view=view, question=question, notes=tuple(notes)
    )  # fmt: skip


@dataclass(frozen=True)
class _Prepared:
    """What every question to a release shares: points to fit on (q their weights), and others to check on."""

    fit_frame: pd.DataFrame
    q: Array
    kernel: Array  # (m, m) √q φ̃ φ̃ᵀ √q, φ̃ = φ − Σ q φ
    factor: Any  # Cholesky of kernel + τ²/κ · I
    check_frame: pd.DataFrame
    across: Array  # (n, m) φ̃(check) φ̃ᵀ √q
    missed: Array  # (m,) √q φ̃ (y − Σ w φ(z)): how far the weighted points miss the measurement
    kappa: float


def _prepared(release: Release, weights: Array) -> _Prepared:
    key = ("expectation", weights.tobytes())
    if key not in release.cache:
        release.cache[key] = _prepare(release, weights)
    return release.cache[key]


def _prepare(release: Release, weights: Array) -> _Prepared:
    measurement, domain = release.measurement, release.domain
    assert measurement is not None
    rng = np.random.default_rng(0)
    features = measurement.feature_map
    most = int(np.clip(_MOST_NUMBERS / (3 * features.width), _NEIGHBOURS[0], _MOST_FIT))
    n = int(np.clip(len(release), _NEIGHBOURS[0], min(_NEIGHBOURS[1], most)))
    p = release.view_weights("probability")
    near, check_points = _neighbours(release, n, rng), _neighbours(release, n, rng)
    used = np.flatnonzero(p > 0)
    if len(used) > most:
        used = rng.choice(used, most, replace=False)
    fit_points = np.vstack([release.encoded_points[used], near])
    q = np.concatenate([p[used] / p[used].sum() / 2, np.full(n, 0.5 / n)])
    fit, check = features.compact(fit_points), features.compact(check_points)
    centre, check_centre, root = fit.T @ q, check.T @ np.full(n, 1 / n), np.sqrt(q)
    kappa = _relative_variance(check, check_centre, measurement, p)
    towards = fit @ centre
    kernel = _centred(features.gram(fit_points, fit_points), towards, towards, float(centre @ centre))
    kernel *= root[:, None]
    kernel *= root
    across = _centred(
        features.gram(check_points, fit_points), check @ centre, fit @ check_centre, float(check_centre @ centre)
    )
    across *= root
    ridged = kernel.copy()
    np.fill_diagonal(ridged, kernel.diagonal() + measurement.noise_scale**2 / kappa)
    gap = measurement.vector - feature_mean(features, release.encoded_points, weights)
    return _Prepared(
        fit_frame=domain.decode(fit_points),
        q=q,
        kernel=kernel,
        factor=cho_factor(ridged, lower=True, overwrite_a=True),
        check_frame=domain.decode(check_points),
        across=across,
        missed=root * (fit @ gap - centre @ gap),
        kappa=kappa,
    )


def _centred(K: Array, x_towards: Array, y_towards: Array, centres: float) -> Array:
    """⟨φ(x) − c, φ(y) − c′⟩ from K = ⟨φ(x), φ(y)⟩, in place: given ⟨φ(x), c′⟩, ⟨φ(y), c⟩ and ⟨c, c′⟩."""
    K -= x_towards[:, None]
    K -= y_towards
    K += centres
    return K


def _neighbours(release: Release, n: int, rng: np.random.Generator) -> Array:
    """n rows near the released points: each cell kept, or taken from another point, at even odds; numbers blurred."""
    p = release.view_weights("probability")
    home, other = (release.encoded_points[rng.choice(len(p), n, p=p / p.sum())] for _ in range(2))
    rows = np.where(rng.random(home.shape) < 0.5, home, other)
    for j, column in enumerate(release.domain.columns):
        if isinstance(column, Number):
            low, high = column.bounds
            blurred = np.clip(rows[:, j] + rng.normal(0, _BLUR * (high - low), n), low, high)
            rows[:, j] = np.where(rng.random(n) < 0.5, column.rounded(blurred), rows[:, j])
    return rows


def _relative_variance(near: Array | csr_array, centre: Array, measurement: Measurement, p: Array) -> float:
    """κ: how far the table may be from the points where the features do not look, in units of one row's spread.

    Were the table's law the neighbours' but for relative deviations of variance κ, ‖y − mean φ‖² would exceed its
    noise Fτ² by κ tr Cov φ. That estimate, with two standard errors of the noise on top; at least Σp².

    near     (n, F) features of the neighbours; centre, their mean.
    """
    spread = sum_of_squares(near) / near.shape[0] - float(centre @ centre)
    excess = float(((measurement.vector - centre) ** 2).sum()) - len(centre) * measurement.noise_scale**2
    doubt = 2 * np.sqrt(2 * len(centre)) * measurement.noise_scale**2
    return max((max(excess, 0.0) + doubt) / max(spread, 1e-12), float(p @ p))


def _error_parts(
    release: Release, ask: Callable[[pd.DataFrame], Array], values: Array, weights: Array
) -> dict[str, float | None]:
    """Standard errors of Σ w h(z), values = h(z): privacy τ‖a‖, sampling √(Var h / N), resolution √(κ Var r + missed²).

    a minimises τ²‖a‖² + κ · Var_q(h − aᵀφ), the variance it is used to state; Var r is taken on points it has not seen.
    """
    measurement, ready = release.measurement, _prepared(release, weights)
    assert measurement is not None
    h, unseen = _finite(ask(ready.fit_frame)), _finite(ask(ready.check_frame))
    alpha = cho_solve(ready.factor, np.sqrt(ready.q) * (h - ready.q @ h))  # a = φ̃ᵀ √q α
    residual = unseen - ready.across @ alpha
    missed = float(ready.missed @ alpha)
    p = release.view_weights("probability")
    return {
        "privacy": float(measurement.noise_scale * np.sqrt(max(alpha @ (ready.kernel @ alpha), 0.0))),
        "sampling": float(np.sqrt(p @ (values - p @ values) ** 2 / measurement.n_rows)),
        "resolution": float(np.sqrt(ready.kappa * residual.var() + missed**2)),
    }


def _finite(values: Array) -> Array:
    """Values with those that are undefined near, but not at, the points (a division by zero) set to the mean."""
    known = np.isfinite(values)
    return np.where(known, values, values[known].mean() if known.any() else 0.0)


def _parts_without_measurement(release: Release, values: Array) -> dict[str, float | None]:
    p = release.view_weights("probability")
    variance = float(p @ (values - p @ values) ** 2)
    return {"privacy": None, "sampling": float(np.sqrt(variance * (p @ p))), "resolution": None}
