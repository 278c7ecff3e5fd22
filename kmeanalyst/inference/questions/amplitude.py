"""The amplitude of a conditional mean around given values, as far as a measurement of random features determines it.

Noise shrinks dependence: the fit p of a noisy measurement y is pulled towards columns that are independent, and its ridges are
flatter than the population's. The prior of the fit does not show it: its departures are independent from row to row, and
those of a ridge all have one sign. Here a departure of that form has a parameter of its own. Around x,

    Δ = α b(x′) (p − q)(x′, y),    q the rows of p whose given columns are independent of the others,

b = s/E_p s², s the weight function of the smoother at x, moves E[f | X = x] by α H, H = E_(p−q) b s f, about its distance
from the mean of f: α is a relative change of amplitude. Its features are D = E_(p−q) b φ, so the measurement says

    y − E_p φ ~ N(α D, S),    S = τ²I + κ′ Cov_p φ,

κ′ the prior variance of the fit. With α ~ N(0, ρ²), ρ = 1/2, its posterior has the variance v = 1/(1/ρ² + DᵀS⁻¹D) and the mean
v DᵀS⁻¹(y − E_p φ). This is a second step of the fit along one direction (twicing; Tukey 1977), stopped by a prior
(explicit basis functions; Rasmussen & Williams 2006, section 2.7). All of it is computed from the release.

The fit and the fit with another amplitude are two models of the population: answers are half way between, half of the
distance is an error, and so is √v |H|. A departure that is no change of amplitude has a part along D too: a fit whose rows
scatter more about their ridge than the population's. Moved all the way, a curve that the release shows as it is overshoots.

ρ is a choice: that a release halves a dependence, or doubles it, is two standard deviations. Where the measurement determines the
amplitude, as it mostly does at ε = 1, ρ does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from kmeanalyst.inference.estimate.error_model import MeasuredErrors
from kmeanalyst.inference.estimate.population import Population
from kmeanalyst.inference.estimate.population_fit import PopulationFit
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.measurement import Measurement, feature_mean
from kmeanalyst.releases.memo import memo
from kmeanalyst.releases.release import Question, ReleaseData
from kmeanalyst.releases.rules.kept_rows import kept_or
from kmeanalyst.representation.weights.views import systematic_indices

_PRIOR = 0.5  # standard deviation of the relative change of amplitude
_ROWS = 1500  # of the fit, drawn evenly
_SECOND_MODEL = 0.5  # the share of the distance by which answers are moved; the rest of it is an error
_EXCHANGES = 2  # rows of q for each of them


@dataclass(frozen=True, eq=False)
class _Precision:
    """S⁻¹ of columns (F, k) by Woodbury's identity, and y − E_p φ."""

    residual: Array  # (F,)
    centred: Array  # (n, F) features of rows less their mean, times √(κ′/n)
    noise_variance: float

    @classmethod
    def of(cls, measurement: Measurement, fit: PopulationFit) -> _Precision:
        rows = fit.rows[systematic_indices(fit.weights, _ROWS)]
        features = measurement.feature_map(rows)
        scale = np.sqrt(float(fit.prior_variance.sum()) / len(rows))
        residual = measurement.vector - feature_mean(measurement.feature_map, fit.rows, fit.weights)
        return cls(residual, scale * (features - features.mean(axis=0)), measurement.noise_scale**2)

    def __matmul__(self, D: Array) -> Array:
        X, n = self.centred, len(self.centred)
        inner = cho_factor(X @ X.T + self.noise_variance * np.eye(n))
        return (D - X.T @ cho_solve(inner, X @ D)) / self.noise_variance


@dataclass(frozen=True, eq=False)
class Amplitudes:
    """The posterior of α around each of some given values.

    population  whose fit it is.
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


def amplitudes(population: Population, names: Sequence[str], weight_function: Array) -> Amplitudes | None:
    """The amplitudes given values of the columns `names`; None where there is no fit to random features.

    weight_function  (n, q) s at the rows of the error model's frame: E[f | X = x] is E s f.
    """
    model, measurement = population.model, population.release.measurement
    if not isinstance(model, MeasuredErrors) or not isinstance(model.fit, PopulationFit) or measurement is None:
        return None
    fit, first = model.fit, len(model.weights)
    given = np.ones(len(fit.rows)) if population.given is None else population.given[first:].astype(float)
    share = float(fit.weights @ given)
    if share <= 0:
        return None
    rng = np.random.default_rng(0)
    at = systematic_indices(fit.weights * given, _ROWS, rng)
    exchanged = _exchanged(population.release, names, fit.rows[at], rng)
    s = weight_function[first + at]
    b = s / np.maximum((s**2).mean(axis=0), 1e-300)
    D = share * np.mean([_features_moved(measurement, fit.rows[at], rows, b) for rows in exchanged], axis=0)
    precision = _precision(population.release, measurement, fit)
    weighted = precision @ D
    variance = 1 / (_PRIOR**-2 + np.einsum("fk,fk->k", D, weighted))
    mean = variance * (precision.residual @ weighted)
    return Amplitudes(population, first + at, exchanged, b * s / len(at), mean, np.sqrt(variance))


def _features_moved(measurement: Measurement, rows: Array, exchanged: Array, b: Array) -> Array:
    """(F, q) E_(p−q) b φ."""
    feature_map = measurement.feature_map
    return (feature_map(rows) - feature_map(exchanged)).T @ b / len(rows)


def _precision(release: ReleaseData, measurement: Measurement, fit: PopulationFit) -> _Precision:
    if "amplitude" not in memo(release):
        memo(release)["amplitude"] = _Precision.of(measurement, fit)
    return memo(release)["amplitude"]


def _exchanged(release: ReleaseData, names: Sequence[str], rows: Array, rng: np.random.Generator) -> tuple[Array, ...]:
    """Rows with the given columns of these (n, d), and the others of these in another order."""
    domain, sources = release.domain, _sources(release, names)
    own = np.array([domain.columns[j].name in sources for j in domain.column_of])
    return tuple(
        kept_or(domain, np.where(own, rows, rows[rng.permutation(len(rows))]), rows) for _ in range(_EXCHANGES)
    )


def _sources(release: ReleaseData, names: Sequence[str]) -> set[str]:
    """The table's columns that these are, or are computed from."""
    found = set(names)
    for one in reversed(release.derived):
        if one.column.name in found:
            found |= set(one.parsed.columns)
    return found
