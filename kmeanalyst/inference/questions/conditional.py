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
from kmeanalyst.kernels.embedding import row_blocks
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
_FINEST, _BEYOND = 64.0, 2.0  # 1/64: on such a scale it is seen; errors of noise and sampling
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


def smooth_kernel(domain: Domain, finest: float = _COARSEST) -> Kernel:
    """The table kernel of some columns without the lengthscales below such a part of a column's range."""
    parts = []
    for part, column in zip(table_kernel(domain).kernels, domain.columns, strict=True):  # type: ignore[attr-defined]
        if isinstance(part, MultiScale):
            low, high = column.bounds
            coarse = [length for length in part.lengthscales if length >= (high - low) / finest * 0.999]
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
    def finer(self) -> Smoother | None:
        """A regression of smaller lengthscales, which shows what this one smooths away: of tables, with numbers that are given.

        Random features hide more than it could show.
        """
        measurement, given = self.population.release.measurement, self.conditioning.columns
        of_tables = measurement is not None and isinstance(measurement.feature_map, MarginFeatures)
        if not self.by_default or not of_tables or not any(column.is_number for column in given):
            return None
        finer = _regression(self.population, self.conditioning, smooth_kernel(self.conditioning, _FINEST))
        return finer if _is_definite(finer) else None

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
              column's range: of tables an error has what a finer regression shows, and jumps within a range.
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


def conditional_estimates(smooth: Smoother, question: Question, rows: pd.DataFrame) -> Estimates:
    """A question's means given each of the rows (q, conditioning columns), moved by what is known of their amplitude."""
    texts = [f"{shown(question)} | {text}" for text in texts_of(smooth, rows)]
    population, given = smooth.population, smooth.conditioning.encode(rows)
    at, values = smooth.at(given), population.values(question)
    found, influences, left = smooth.answers(values, at)
    unseen = np.zeros_like(found)
    if smooth.finer is not None:
        unseen = np.hypot(_smoothed_away(smooth.finer, values, given, found, influences), _jumps(smooth.finer, values, given))
        left = np.hypot(left, unseen)
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


def _smoothed_away(finer: Smoother, values: Array, given: Array, found: Array, influences: Array) -> Array:
    """(q,) by how much answers of the finer regression at encoded rows differ from these, of influences (n, q), beyond noise."""
    there, own, _ = finer.answers(values, finer.at(given))
    return _beyond_noise(finer, there - found, own - influences)


def _jumps(finer: Smoother, values: Array, given: Array) -> Array:
    """(q,) by how much answers may be off as a number may jump within the range that it is in: half of the step over this range, as
    far as ranges beside have less of it.
    """
    population, found = finer.population, np.zeros(len(given))
    kernel: Any = population.release.measurement.feature_map.kernel  # type: ignore[union-attr]
    for j, column in enumerate(finer.conditioning.columns):
        if not column.is_number or column.name not in population.release:
            continue
        low, high = column.bounds
        edges = np.array([low, *kernel.edges[population.release.domain.position(column.name)], high])
        own = np.clip(np.searchsorted(edges, given[:, j], side="right"), 1, len(edges) - 1)
        width, moved = edges[own] - edges[own - 1], list[tuple[Array, Array, Array]]()
        for steps in (-2, -1, 1, 2):
            rows = given.copy()
            rows[:, j] = np.clip(given[:, j] + steps * width, low, high)
            moved.append(finer.answers(values, finer.at(rows)))
        (first, *_), (before, lower, _), (after, upper, _), (last, *_) = moved
        jump = _beyond_noise(finer, (after - before) / 2, (upper - lower) / 2)
        found = np.maximum(found, jump - np.maximum(np.abs(last - after), np.abs(before - first)))
    return found


def _beyond_noise(smooth: Smoother, differences: Array, influences: Array) -> Array:
    """(q,) the size of differences (q,), of influences (n, q), less what noise and sampling make of nothing."""
    asked = [Statistic(float(each), own) for each, own in zip(differences, influences.T, strict=True)]
    parts = [each.parts for each in estimates(smooth.population, asked)]
    errors = np.array([math.hypot(one["privacy"] or 0.0, one["sampling"] or 0.0) for one in parts])
    return np.sqrt(np.maximum(differences**2 - (_BEYOND * errors) ** 2, 0.0))


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
