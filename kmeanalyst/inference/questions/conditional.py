"""E[f(Y) | X = x] from one release, each with its error: by its conditional mean embedding, and the amplitude of this.

Kernel ridge regression with the release's weights, iterated once on its residuals (twicing). With φ = (1, coordinates of k(x, ·)),
A = Σ w φφᵀ, D the identity but for 0 at the constant and G = (A + λD)⁻¹: θ₁ = G Σ w φ f, θ₂ = θ₁ + G Σ w φ (f − φᵀθ₁), ĝ = φᵀθ₂.
Amplitude: noise flattens ridges; a departure α of the fit along each is estimated. Derivation: tutorials/derivations.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from scipy.linalg import cho_factor, cho_solve

from kmeanalyst.inference.estimate.error_model import MeasuredErrors
from kmeanalyst.inference.estimate.estimate import Estimate, Estimates
from kmeanalyst.inference.estimate.population import Population, estimates, population_of, released_view, shown
from kmeanalyst.inference.estimate.statistic import Statistic
from kmeanalyst.kernels import Kernel, MultiScale, SoftenedProduct
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.embedding import on_one_thread, row_blocks
from kmeanalyst.kernels.features.nystroem import Nystroem
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.derived import sources_of
from kmeanalyst.releases.domain.column import KEPT
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import kernel_from_spec, table_kernel
from kmeanalyst.releases.release import Condition, Question, ReleaseData, View
from kmeanalyst.releases.rules.kept_rows import kept_or
from kmeanalyst.representation.weights.views import systematic_indices

_COARSEST = 8.0  # 1/8 of a column's range: no dependence on a smaller scale is fitted
_MISFITS = np.geomspace(1e-3, 1, 60)  # of means of cells, relative to the spread of values
_USUAL_MISFIT = 0.02  # the scale of their prior, a half-Cauchy
_BESIDE, _BEYOND = (-2, -1, 1, 2), 2.0  # ranges that show a jump within one; errors of noise and sampling
_LEAST_VARIANCE = 1e-4  # of what a cell's mean is off, relative to that of values
_MOST_CELLS, _NO_MASS = 60, 1e-4  # that show a misfit; of a cell that shows none
_RESIDUAL_OVER_SIGNAL = 1 / 3  # variances, assumed
_BASIS = 500  # at most so many points span the functions
_SPAN = 1e-6  # squared distance to the span, at which a point adds nothing


def public_regulariser(release: ReleaseData) -> float:
    """λ = (1/N + 1/M)/3 + τ/(√3 B); without a measurement 1/3M alone, the points being taken for rows."""
    ratio, measurement = _RESIDUAL_OVER_SIGNAL, release.measurement
    if measurement is None:
        return ratio / len(release)
    noise = measurement.noise_scale / measurement.feature_map.norm_bound
    return ratio * (1 / measurement.n_rows + 1 / len(release)) + ratio**0.5 * noise


def smooth_kernel(domain: Domain) -> Kernel:
    """The table kernel of some columns without the lengthscales below such a part of a column's range."""
    parts = []
    for part, column in zip(table_kernel(domain).kernels, domain.columns, strict=True):  # type: ignore[attr-defined]
        if isinstance(part, MultiScale):
            low, high = column.bounds
            coarse = [length for length in part.lengthscales if length >= (high - low) / _COARSEST * 0.999]
            part = MultiScale(lengthscales=tuple(coarse or part.lengthscales[-1:]))
        parts.append(part)
    return SoftenedProduct(kernels=tuple(parts), inclusion=0.5)


@dataclass(frozen=True, eq=False)
class Smoother:
    """The regression on some columns of a population, for any question about the others.

    population   in the view that is used.
    conditioning the columns that are given.
    basis        coordinates of k(x, ·).
    features     (n, r + 1) φ at the rows of population.model.frame.
    regulariser  λ.
    notes        what every answer should say.
    by_default   whether its kernel is that of who names none.
    """

    population: Population
    conditioning: Domain
    basis: Nystroem
    features: Array
    regulariser: float
    notes: tuple[str, ...] = ()
    by_default: bool = False

    @cached_property
    def _factor(self) -> Any:
        return cho_factor(_moments(self.population, self.features) + self.regulariser * self._penalty)

    @cached_property
    def _penalty(self) -> Array:
        return np.diag(np.r_[0.0, np.ones(self.features.shape[1] - 1)])

    def _step(self, right: Array) -> Array:
        return cho_solve(self._factor, right)

    def _kept(self, theta: Array) -> Array:
        """λ G D θ: the part of θ that one step of the ridge leaves out."""
        return self.regulariser * self._step(self._penalty @ theta)

    def at(self, rows: Array) -> Array:
        """φ (q, r + 1) at encoded rows of the conditioning columns."""
        return _with_constant(self.basis(rows))

    def weight_function(self, at: Array) -> Array:
        """s (n, q) at the rows of the frame, for φ (q, r + 1): ĝ(x) is Σ v s f over the points."""
        once = self._step(at.T)
        return self.features @ (once + self._kept(once))

    def fitted(self, values: Array) -> tuple[Array, Array]:
        """(θ₁, θ₂) for f (n,) at the rows of the frame."""
        points = slice(len(self.population.release))
        first = self._step(self.features[points].T @ (self.population.weights * values[points]))
        return first, first + self._kept(first)

    def answers(self, values: Array, at: Array) -> tuple[Array, Array, Array]:
        """ĝ (q,), its influence functions (n, q), and its remaining bias (q,), to first order."""
        first, second = self.fitted(values)
        once = self._step(at.T)
        derivative = (self.features @ once) * (values - self.features @ second)[:, None]
        derivative += (self.features @ self._kept(once)) * (values - self.features @ first)[:, None]
        left = at @ (self._kept(self._kept(second)))
        return at @ second, self.population.influence(derivative), left

    def unknown(self, at: Array) -> Array:
        """(q,) share of the prior variance at x that the release leaves: 0 between its points, 1 far from them."""
        prior = (at[:, 1:] ** 2).sum(axis=1)
        return self.regulariser * np.einsum("qr,rq->q", at, self._step(at.T)) / np.maximum(prior, 1e-12)


@on_one_thread
def smoother(
    release: ReleaseData, columns: Sequence[str], *, where: Condition, view: View | None, kernel: Kernel | str | None
) -> Smoother:
    """The regression on these columns; if the released weights allow none, in the probability view, with a note."""
    if view == "fitted":
        raise ValueError(
            "a conditional distribution is of the released points, and the fitted population has other rows. Ask for "
            'view="signed" or "probability".'
        )
    conditioning = Domain(tuple(release.columns[name] for name in columns))
    chosen = smooth_kernel(conditioning) if kernel is None else kernel_from_spec(kernel, conditioning)
    asked = view or released_view(release)
    found = _regression(population_of(release, where=where, view=asked), conditioning, chosen, by_default=kernel is None)
    if _is_definite(found):
        return found
    if view is not None:
        raise ValueError(
            "the released weights are negative along some function of the given columns, by more than the regulariser: "
            'the regression has a saddle point and no minimum. Ask for view="probability".'
        )
    probable = population_of(release, where=where, view="probability")
    within = _regression(probable, conditioning, chosen, by_default=kernel is None)
    note = "the released weights are negative along some function of the given columns: probability weights were used"
    return replace(within, notes=(note,))


def _regression(population: Population, conditioning: Domain, kernel: Kernel, *, by_default: bool = False) -> Smoother:
    X = conditioning.encode(population.model.frame)
    points = np.unique(X[: len(population.weights)][population.weights != 0], axis=0)
    basis = Nystroem.fit(kernel, points[:: -(-len(points) // _BASIS)], tolerance=_SPAN)
    regulariser = public_regulariser(population.release) / population.probability
    coordinates = np.vstack([basis(X[block]) for block in row_blocks(len(X), basis.dimension)])
    return Smoother(population, conditioning, basis, _with_constant(coordinates), regulariser, by_default=by_default)


def _is_definite(found: Smoother) -> bool:
    """Whether the covariance of φ under the weights is above −λ/2, so that A + λD has a bounded inverse."""
    A = _moments(found.population, found.features)
    covariance = A[1:, 1:] - np.outer(A[1:, 0], A[0, 1:]) / A[0, 0]
    return A[0, 0] > 0 and float(np.linalg.eigvalsh(covariance)[0]) > -found.regulariser / 2


def _moments(population: Population, features: Array) -> Array:
    points = features[: len(population.weights)]
    return (points * population.weights[:, None]).T @ points


def _with_constant(coordinates: Array) -> Array:
    return np.column_stack([np.ones(len(coordinates)), coordinates])


_PRIOR = 0.5  # standard deviation of the relative change of amplitude
_ROWS = 1500  # of the posterior, drawn evenly
_SECOND_MODEL = 0.5  # the share of the distance by which answers are moved; the rest of it is an error
_EXCHANGES = 2  # rows of q for each of them


@dataclass(frozen=True, eq=False)
class Amplitudes:
    """The posterior of α around each of some given values.

    population  whose posterior it is.
    rows        (n,) rows of p, by their position in the frame of the error model.
    exchanged   encoded rows of q, (n, d) each: those of p with the other columns of another one.
    local       (n, q) b s/n at the rows.
    mean        (q,) of α.
    deviation   (q,) of α, standard.
    """

    population: Population
    rows: Array
    exchanged: tuple[Array, ...]
    local: Array
    mean: Array
    deviation: Array

    def of(self, question: Question, values: Array) -> tuple[Array, Array]:
        """How far answers to a question with these values (n,) at the frame's rows are moved (q,), and the standard errors (q,)."""
        at_rows = values[self.rows]
        release = self.population.release
        distance = np.zeros_like(at_rows)
        for rows in self.exchanged:
            there = self.population.values_at(question, release.decode(rows))
            distance += np.where(np.isfinite(there), at_rows - there, 0.0) / len(self.exchanged)
        slope = np.where(np.isfinite(distance), distance, 0.0) @ self.local
        distance_of_models = self.mean * slope
        error = np.hypot((1 - _SECOND_MODEL) * distance_of_models, self.deviation * slope)
        return _SECOND_MODEL * distance_of_models, error


def amplitudes(smooth: Smoother, at: Array) -> Amplitudes | None:
    """What the measurement says of amplitudes at φ (q, r + 1); None where the posterior is on the points."""
    population, model = smooth.population, smooth.population.model
    if not isinstance(model, MeasuredErrors) or model.posterior.on_points:
        return None
    fit, first = model.posterior, len(model.weights)
    given = np.ones(len(fit.rows)) if population.given is None else population.given[first:].astype(float)
    share = float(fit.weights @ given)
    if share <= 0:
        return None
    rng = np.random.default_rng(0)
    drawn = systematic_indices(fit.weights * given, _ROWS, rng)
    exchanged = _exchanged(population.release, smooth.conditioning.names, fit.rows[drawn], rng)
    s = smooth.weight_function(at)[first + drawn]
    b = s / np.maximum((s**2).mean(axis=0), 1e-300)
    features = model.features[first:]
    moved = [(features[drawn] - fit.seen(rows)).T @ b / len(drawn) for rows in exchanged]
    D = share * np.mean(moved, axis=0)  # (K, q) E_(p−q) b φ
    weighted = fit.equations.solved(D)
    variance = 1 / (_PRIOR**-2 + np.einsum("kq,kq->q", D, weighted))
    mean = variance * ((fit.target - fit.weights @ features) @ weighted)
    return Amplitudes(population, first + drawn, exchanged, b * s / len(drawn), mean, np.sqrt(variance))


def _exchanged(release: ReleaseData, names: Sequence[str], rows: Array, rng: np.random.Generator) -> tuple[Array, ...]:
    """Rows with the given columns of these (n, d), and the others of these in another order."""
    domain, sources = release.domain, sources_of(release.derived, names)
    own = np.array([domain.columns[j].name in sources for j in domain.column_of])
    others = (rows[rng.permutation(len(rows))] for _ in range(_EXCHANGES))
    return tuple(kept_or(domain, np.where(own, rows, other), rows) for other in others)


Given: TypeAlias = Mapping[str, Any] | pd.DataFrame

_OF_LEVELS = "this is of the released points: a mean or a probability with where= is of levels too, and of the fitted weights"
_CHANGES_FASTER = (
    "it changes faster here than this regression follows, which smooths over an eighth of a column's range: ask a mean or a "
    "probability with where="
)
_FAR = 0.5  # share of the prior variance: if the release leaves more, the answer is mostly extrapolated
_ROUNDING = 1e-9


def conditional_expectation(
    release: ReleaseData, question: Question, *, given: Given, where: Condition = None, view: View | None = None,
    kernel: Kernel | str | None = None,
) -> Estimate | Estimates:  # fmt: skip
    """E[question | given columns have these values], smoothed over neighbouring values of numbers.

    question  an expression over column names, or a function of a DataFrame; a condition gives its probability.
    given     column → a value, or a list of values, in natural units: {"age": [30, 40], "sex": "F"}; or a DataFrame of
              such columns. None is a missing cell, where the domain declares it.
    where     a condition on the rows that are used; for levels it is exact, and needs no smoothing.
    view      "signed" (as released; the default) or "probability". Where signed weights give a regression without a
              minimum, the default takes the probability view, and a note says so.
    kernel    on the given columns: Kernel or its text. By default the table kernel's lengthscales down to an eighth of a
              column's range: answers move to what cells of tables show beyond it, and jumps within a range are an error.
    Returns   Estimate where every value is given by itself, Estimates (in order) where there is a list or a DataFrame.
    Errors    ValueError for values that are not of their column's domain.

    >>> release.conditional_expectation("income == '>50K'", given={"age": [30, 50]})
    income == '>50K' | age = 30: 0.128 ± 0.041 (95 %: 0.048 to 0.208; privacy 0.017, sampling 0.008, resolution 0.036) [1 note]
    income == '>50K' | age = 50: 0.374 ± 0.070 (95 %: 0.237 to 0.511; privacy 0.030, sampling 0.014, resolution 0.062) [1 note]
    """
    names, rows, several = given_rows(release, given)
    smooth = smoother(release, names, where=where, view=view, kernel=kernel)
    answers = conditional_estimates(smooth, question, rows)
    return answers if several else answers[0]


@on_one_thread
def conditional_estimates(smooth: Smoother, question: Question, rows: pd.DataFrame) -> Estimates:
    """A question's means given each of the rows (q, conditioning columns), moved by what is known of their amplitude."""
    texts = [f"{shown(question)} | {text}" for text in texts_of(smooth, rows)]
    population, given = smooth.population, smooth.conditioning.encode(rows)
    at, values = smooth.at(given), population.values(question)
    found, influences, left = smooth.answers(values, at)
    moved, own, unseen = _misfit(smooth, values, given)
    found, influences, left = found + moved, influences + own, np.hypot(left, unseen)
    if (known := amplitudes(smooth, at)) is not None:
        moved, error = known.of(question, values)
        found, left = found + moved, np.hypot(left, error)
    at_points = values[: len(population.weights)][population.weights != 0]
    is_condition = bool(np.isin(at_points, (0.0, 1.0)).all())
    release = population.release
    levels = release.measurement is not None and not any(release.columns[name].is_number for name in rows)
    notes = [
        (*smooth.notes, *[_OF_LEVELS] * levels, *_notes(*pair, is_condition))
        for pair in zip(found, smooth.unknown(at), strict=True)
    ]
    influences = np.vstack([influences, left]).T  # they end in the bias: see ErrorModel
    asked = zip(found, influences, texts, notes, strict=True)
    answers = Estimates(
        replace(each, notes=(*each.notes, *[_CHANGES_FASTER] * bool(2 * change**2 > each.standard_error**2)))
        for each, change in zip(estimates(population, [Statistic(float(v), *own) for v, *own in asked]), unseen, strict=True)
    )
    if (ends := population.bounds(question)) is None:
        return answers
    reach = [(min(ends[0], each.value), max(ends[1], each.value)) for each in answers]
    return Estimates(replace(each, possible=own) for each, own in zip(answers, reach, strict=True))


def _misfit(smooth: Smoother, values: Array, given: Array) -> tuple[Array, Array, Array]:
    """What means of cells show that the regression smooths away: how far answers move (q,), influences (n, q), and errors (q,).

    Of cells of tables, with numbers that are given, the means are off by N(0, t²) and by noise: t by the evidence of all cells.
    The answer moves as far as its own cell is likely to be off; within a range there may be as much again, and half of the step
    from the range before to that after, less the steps beside.
    """
    population, nothing = smooth.population, (np.zeros(len(given)), np.zeros((len(values), len(given))), np.zeros(len(given)))
    measurement, domain, columns = population.release.measurement, population.release.domain, smooth.conditioning.columns
    of_tables = measurement is not None and isinstance(measurement.feature_map, MarginFeatures)
    measured = all(column.name in domain.names for column in columns) and any(column.is_number for column in columns)
    if not (smooth.by_default and of_tables and measured):
        return nothing
    kernel: Any = measurement.feature_map.kernel  # type: ignore[union-attr]
    rows, places = domain.encode(population.model.frame), [domain.position(column.name) for column in columns]
    asked = np.repeat(rows[:1], len(given), axis=0)
    asked[:, places] = given
    own = kernel.cells(np.vstack([asked, rows]))[:, places]
    ends = [len(kernel.edges[j]) if domain.columns[j].is_number else -1 for j in places]  # the last range of each number
    steps = [own[: len(given)], *(_beside(own[: len(given)], axis, most, by) for axis, most in enumerate(ends) for by in _BESIDE)]
    cells, of_row = np.unique(np.vstack([*steps, own[len(given) :]]), axis=0, return_inverse=True)
    of_asked, of_row = np.split(of_row, [len(steps) * len(given)])
    points = slice(len(population.weights))
    mass = np.bincount(of_row[points], population.weights, minlength=len(cells))
    used = np.union1d(np.argsort(-mass)[:_MOST_CELLS], of_asked)
    used = used[mass[used] > _NO_MASS]
    inside = (of_row[:, None] == used) / mass[used]
    means = population.mean(np.where(inside > 0, inside * values[:, None], 0.0))
    own = population.influence(np.where(inside > 0, inside * (values[:, None] - means), 0.0))
    weights = population.weights[:, None] * inside[points]
    fitted, influences, _ = smooth.answers(values, weights.T @ smooth.features[points])
    apart, own = means - fitted, own - influences
    asked_of = [Statistic(float(each), influence) for each, influence in zip(apart, own.T, strict=True)]
    parts = [each.parts for each in estimates(population, asked_of)]
    noise = np.array([math.hypot(one["privacy"] or 0.0, one["sampling"] or 0.0) for one in parts])
    spread = math.sqrt(max(float(population.mean(values**2) - population.mean(values) ** 2), 0.0))
    kept, left, within = _share_of_misfit(apart, noise, spread)
    place = np.full(len(cells), -1)
    place[used] = np.arange(len(used))
    of_asked = place[of_asked].reshape(len(steps), -1)
    moved, shown, errors = nothing
    for k, (i, *others) in enumerate(of_asked.T.tolist()):
        ranges = [axis for axis, most in enumerate(ends) if steps[0][k, axis] <= most]
        errors[k] = within * bool(ranges)
        if i >= 0:
            moved[k], shown[:, k], errors[k] = kept[i] * apart[i], kept[i] * own[:, i], math.hypot(errors[k], left[i])
        for axis in ranges:
            four = others[len(_BESIDE) * axis :][: len(_BESIDE)]
            if min(four) >= 0:
                errors[k] = math.hypot(errors[k], _jump(means[four], noise[four[1:3]]))
    return moved, shown, errors


def _share_of_misfit(apart: Array, noise: Array, spread: float) -> tuple[Array, Array, float]:
    """What of how far means of cells (c,) are apart, with such noise (c,), is no noise: shares (c,), errors of these (c,), and the
    root of t², of values of such a spread.
    """
    if spread == 0:
        return np.zeros_like(apart), np.zeros_like(apart), 0.0
    t = spread * _MISFITS[:, None]
    variance = np.maximum(t**2 + noise**2, _LEAST_VARIANCE * spread**2)
    logs = -0.5 * (np.log(variance) + apart**2 / variance).sum(axis=1) - np.log1p((_MISFITS / _USUAL_MISFIT) ** 2)
    chance = np.exp(logs - logs.max())
    chance /= chance.sum()
    share = t**2 / variance
    return chance @ share, np.sqrt(chance @ ((1 - share) * t**2)), math.sqrt(float(chance @ t[:, 0] ** 2))


def _jump(means: Array, noise: Array) -> float:
    """Half of the step over a range, by means of the two ranges before and the two behind, beyond noise and the steps beside."""
    first, before, after, last = means
    jump = math.sqrt(max((after - before) ** 2 - _BEYOND**2 * float(noise @ noise), 0.0)) / 2
    return max(jump - max(abs(last - after), abs(before - first)), 0.0)


def _beside(cells: Array, axis: int, most: int, by: int) -> Array:
    """The cells (q, columns) that are so many ranges beside in one column, of the ranges 0 to `most`."""
    found = cells.copy()
    found[:, axis] = np.where(cells[:, axis] <= most, np.clip(cells[:, axis] + by, 0, most), cells[:, axis])
    return found


def _notes(value: float, unknown: float, is_condition: bool) -> list[str]:
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
    """Column names, rows (q, k) of their values, and whether several were asked for; an error if they are not of the domain."""
    table: dict[Any, Any] = dict(given)
    if not table:
        raise ValueError('given names no column: a conditional answer needs at least one value. Write given={"age": 40}.')
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
