"""Intervals of coefficients that invert the score, for where noise makes the information uncertain.

The score S_j(b) of a coefficient held at b, the others at their roots, has the influence ψ_j − J_jo J_oo⁻¹ ψ_o (the efficient
score, o the others). {b : |S_j(b)| ≤ z · error} is Fieller's interval for a slope, and infinite where the data do not say that b
is finite (Rao 1948; Fieller 1954; Boos 1992). The interval given is the smallest that holds it and value ± z · standard error.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kmeanalyst.inference.estimate.error_model import total
from kmeanalyst.inference.estimate.statistic import IntervalRule
from kmeanalyst.inference.regression.equations import NoRoot
from kmeanalyst.inference.regression.fit import Fit, efficient_score
from kmeanalyst.kernels.base import Array

STEPS = np.array([1.0, 2.0, 3.0, 4.5])  # standard errors from the coefficient at which the score is evaluated
_ROUNDING = 1e-9
_RISING = 0.05  # the least slope of the score's ratio, in units of what is expected, with which it is continued


@dataclass(frozen=True, eq=False)
class ScoreProfiles:
    """Scores of all coefficients over their errors, at values around the estimates.

    errors   (k,) standard errors.
    """

    fit: Fit
    errors: Array

    @cached_property
    def ratios(self) -> tuple[tuple[Array, Array], ...]:
        """For each coefficient u (m,) in standard errors from the estimate, and t(u) = −S/error (m,), rising through 0."""
        asked = [(j, u, *score) for j in range(len(self.errors)) for u, score in self._held(j)]
        found: list[list[tuple[float, float]]] = [[(0.0, 0.0)] for _ in self.errors]
        if asked:
            population = self.fit.population
            influence = np.column_stack([psi for _, _, psi, _ in asked])
            error = total(population.model.parts(population.influence(influence)))
            for (j, u, _, score), each in zip(asked, error, strict=True):
                found[j].append((u, -score / each if each > 0 else u))
        return tuple((np.array([u for u, _ in each]), np.array([t for _, t in each])) for each in map(sorted, found))

    def is_exact(self, j: int) -> bool:
        return not self.errors[j] > _ROUNDING * abs(self.fit.beta[j])

    def _held(self, j: int) -> list[tuple[float, tuple[Array, float]]]:
        """Scores of coefficient j held so many standard errors away, as far as there are roots for the others."""
        found: list[tuple[float, tuple[Array, float]]] = []
        fit, weights = self.fit, self.fit.population.weights
        if self.is_exact(j):
            return found
        for side in (-1.0, 1.0):
            beta = fit.beta
            for u in side * STEPS:
                try:
                    beta = fit.held_at(j, float(fit.beta[j] + u * self.errors[j]), beta)
                    efficient = efficient_score(fit, beta, j)
                    found.append((float(u), (efficient, float(weights @ efficient[: len(weights)]))))
                except (NoRoot, np.linalg.LinAlgError):  # the second: so far away all means are 0 or 1 by rounding
                    break
        return found

    def ends(self, j: int, z: float) -> tuple[float, float]:
        """Where t passes ± z for the last time, in distance from the estimate; infinite where it does not."""
        if self.is_exact(j):
            return -z * float(self.errors[j]), z * float(self.errors[j])
        u, t = self.ratios[j]
        unit = float(self.errors[j])
        return -_last_below(-u[::-1], -t[::-1], z) * unit, _last_below(u, t, z) * unit

    def ratio_at(self, j: int, distance: float) -> float:
        if self.is_exact(j):
            return distance / max(float(self.errors[j]), 1e-300)
        u = distance / float(self.errors[j])
        known, t = self.ratios[j]
        if known[0] <= u <= known[-1]:
            return float(np.interp(u, known, t))
        end = 0 if u < known[0] else -1
        return float(t[end] + (u - known[end]) * _slope(known, t, end))


def _last_below(u: Array, t: Array, z: float) -> float:
    """The largest u ≥ 0 with t(u) ≤ z, t linear between its points and continued after the last where it rises."""
    u, t = u[u >= 0], t[u >= 0]
    if t[-1] <= z:
        slope = _slope(u, t, -1)
        return float(u[-1] + (z - t[-1]) / slope) if slope > 0 else np.inf
    last = int(np.flatnonzero(t <= z)[-1])
    return float(u[last] + (z - t[last]) / (t[last + 1] - t[last]) * (u[last + 1] - u[last]))


def _slope(u: Array, t: Array, end: int) -> float:
    """The slope of t behind one of its ends; 0 where it hardly rises, or was not followed as far as it should be."""
    a, b = (0, 1) if end == 0 else (-2, -1)
    if len(u) < 2 or abs(u[end]) < STEPS[-1]:
        return 0.0
    slope = float((t[b] - t[a]) / (u[b] - u[a]))
    return slope if slope > _RISING else 0.0


@dataclass(frozen=True, eq=False)
class ScoreInterval(IntervalRule):
    profiles: ScoreProfiles
    index: int

    @property
    def value(self) -> float:
        return float(self.profiles.fit.beta[self.index])

    def interval(self, z: float) -> tuple[float, float]:
        """The smallest interval that holds the inverted score's and value ± z standard errors."""
        error = float(self.profiles.errors[self.index])
        low, high = self.profiles.ends(self.index, z)
        return self.value + min(low, -z * error), self.value + max(high, z * error)

    def distance_of(self, wald: float) -> float:
        """How many standard errors 0 is away, with the sign of `wald`: that many by the error, or fewer by the score."""
        score = -self.profiles.ratio_at(self.index, -self.value)
        return float(np.sign(wald) * min(abs(wald), max(score * np.sign(wald), 0.0)))
