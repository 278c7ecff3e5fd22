"""Estimating equations Σ w ψ(row, β) = 0, and their root with its influence function.

Under probability weights these models have at most one root, and Newton's method with halved steps finds it. The weights of a
fitted population are now and then negative: the search starts from the root of probability weights, and a root counts only
where the information J = −Σ w ∂ψ/∂β is positive definite. Its influence is J⁻¹ψ, the sandwich's (Huber 1967; White 1982).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from kmeanalyst.kernels.base import Array

_MOST_STEPS, _HALVINGS = 100, 30
_CLOSE = 1e-8  # a score below this is 0, and a step ends the search: standard errors are some 1e-2 in these coordinates
_FLAT = 1e-6  # information relative to that at the start, below which a direction has no finite root
SINGULAR = 1e-11  # share of the largest eigenvalue of XᵀX, scaled to diagonal 1, below which it counts as singular
NEARLY_SINGULAR = 1e-6  # and below which a note says so: where the condition number passes 1,000


class Equations(ABC):
    """The equations of a model: scores of rows, and their derivative."""

    X: Array

    @property
    def columns(self) -> Array:
        """(k,) of each coefficient, the column of X that it is of; −1 of one that is of none."""
        return np.arange(self.X.shape[1])

    @abstractmethod
    def scores(self, beta: Array) -> Array:
        """ψ (n, k) at all rows."""

    @abstractmethod
    def information(self, beta: Array, weights: Array, *, expected: bool = False) -> Array:
        """J (k, k) of the rows with weights; `expected`: a positive definite stand-in where weights are not negative."""

    @abstractmethod
    def start(self, weights: Array) -> Array:
        """β (k,) to start from, under weights that are not negative."""

    @abstractmethod
    def means(self, beta: Array, X: Array) -> tuple[Array, Array]:
        """What the model expects at rows X: (n, c), and the derivative by β (n, c, k)."""

    @abstractmethod
    def mean_slopes(self, beta: Array, X: Array, dX: Array) -> tuple[Array, Array]:
        """The derivative of the means as X moves by dX: (n, c), and its derivative by β (n, c, k)."""

    def interval(self, means: Array, errors: Array, z: float) -> tuple[Array, Array]:
        """Around means (n,): of probabilities on the logit scale, so that it stays within 0 and 1."""
        spread = means * (1 - means)
        half = z * np.divide(errors, spread, out=np.full_like(errors, np.inf), where=spread > 0)
        with np.errstate(all="ignore"):
            odds = np.log(means / (1 - means))
            low, high = expit(odds - half), expit(odds + half)
        known = np.isnan(means) | (spread > 0)  # a mean that is 0 or 1 by rounding has no error on this scale
        return np.where(known, low, 0.0), np.where(known, high, 1.0)

    def interval_of_eta(self, eta: Array, half: Array) -> tuple[Array, Array]:
        """The means at η ± half, the smaller first, of a model with one linear predictor."""
        raise NotImplementedError

    @property
    def labels(self) -> tuple[str, ...]:
        """What follows the target's name for each mean."""
        return ("",)

    def is_feasible(self, beta: Array, m: int) -> bool:
        """Whether the first m rows have means."""
        return bool(np.isfinite(beta).all())

    def moved(self, beta: Array, index: int, value: float) -> Array:
        """β (k,) with one coefficient at this value, where the search for the others may start."""
        start = np.array(beta, dtype=float)
        start[index] = value
        return start

    def total(self, beta: Array, weights: Array) -> Array:
        """Σ w ψ (k,)."""
        return weights @ self.scores(beta)[: len(weights)]


@dataclass(frozen=True, eq=False)
class LevelEquations(Equations):
    """Equations of a target of several levels.

    X        (n, k) the design.
    y        (n,) codes of the levels in their order, from 0; −1 for another.
    levels   their names.
    """

    X: Array
    y: Array
    levels: tuple[str, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f" = {level}" for level in self.levels)

    def shares(self, weights: Array) -> Array:
        """(c,) of the levels, under the weights of the first rows."""
        known = self.y[: len(weights)] >= 0
        found = np.bincount(self.y[: len(weights)][known], weights[known], minlength=len(self.levels))
        return found / found.sum()


class NoRoot(ValueError):
    """There is no root that the search found; the message says why."""


class Separated(NoRoot):
    """Some coefficients have no finite root.

    direction   (k,) in which the information vanishes.
    """

    def __init__(self, direction: Array) -> None:
        super().__init__("the information vanishes in a direction: the coefficients there are not finite")
        self.direction = direction


def reference_information(equations: Equations, weights: Array) -> Array:
    """(k, k) what is expected of the information at the start: the metric in which steps and directions are measured."""
    return equations.information(equations.start(weights), weights, expected=True)


def root(equations: Equations, weights: Array, start: Array, reference: Array, fixed: Sequence[int] = ()) -> Array:
    """β with Σ w ψ = 0; NoRoot where there is none, or the information is not positive definite there.

    start       β to start from.
    reference   as `reference_information` gives it.
    fixed       the indices of coefficients that keep their values; the equations of their own are left out.
    """
    with np.errstate(all="ignore"):  # a root counts only where scores and information are finite
        return _Search(equations, weights, ~np.isin(np.arange(len(start)), fixed), reference).root(start)


class _Search:
    """Newton's method for some of the coefficients, in coordinates in which the reference information is the identity."""

    def __init__(self, equations: Equations, weights: Array, free: Array, reference: Array) -> None:
        self.equations, self.weights, self.free = equations, weights, free
        if not is_positive_definite(own := reference[np.ix_(free, free)]):
            raise NoRoot("the information where the search starts is not positive definite")
        lower = np.linalg.cholesky(own)
        self.inverse = np.linalg.inv(lower)  # β = inverseᵀ · coordinates
        self.lower, self.unit = lower, 1.0

    def root(self, start: Array) -> Array:
        beta = np.array(start, dtype=float)
        self.unit = max(float(np.linalg.norm(self.lower.T @ beta[self.free])), self.size_of_scores(beta), 1e-300)
        score = self.score(beta)
        for _ in range(_MOST_STEPS if self.free.any() else 0):
            size = float(np.linalg.norm(score))
            step = self.step(beta, score)
            beta, score = self.shortened(beta, step, size)
            if np.linalg.norm(score) >= size * (1 - 1e-6) or np.abs(step).max() <= _CLOSE * self.unit:
                break
        self.check(beta, score)
        return beta

    def score(self, beta: Array) -> Array:
        return self.inverse @ self.equations.total(beta, self.weights)[self.free]

    def size_of_scores(self, beta: Array) -> float:
        """Root mean square of the scores of rows."""
        scores = self.equations.scores(beta)[: len(self.weights), self.free] @ self.inverse.T
        return float(np.sqrt(np.abs(self.weights) @ (scores**2).sum(axis=1)))

    def information(self, beta: Array, *, expected: bool = False) -> Array:
        J = self.equations.information(beta, self.weights, expected=expected)[np.ix_(self.free, self.free)]
        return self.inverse @ J @ self.inverse.T

    def step(self, beta: Array, score: Array) -> Array:
        """By the information, or where that is not positive definite by what is expected of it."""
        for expected in (False, True):
            J = self.information(beta, expected=expected)
            if is_positive_definite(J):
                with suppress(np.linalg.LinAlgError):  # singular by rounding alone
                    return np.linalg.solve(J, score)
        raise self.no_root(J)

    def shortened(self, beta: Array, step: Array, size: float) -> tuple[Array, Array]:
        """β and its score after the step, halved until the score is smaller; where none is, as they were."""
        for halving in range(_HALVINGS):
            tried = beta.copy()
            tried[self.free] += self.inverse.T @ step * 0.5**halving
            if self.equations.is_feasible(tried, len(self.weights)):
                score = self.score(tried)
                if np.linalg.norm(score) < size:
                    return tried, score
        return beta, self.score(beta)

    def check(self, beta: Array, score: Array) -> None:
        if not self.free.any():
            return
        J = self.information(beta)
        if not np.isfinite(J).all():
            raise self.no_root(J)
        values = np.linalg.eigvalsh((J + J.T) / 2)
        if values[0] <= _FLAT:
            raise self.no_root(J)
        if not np.linalg.norm(score) <= _CLOSE * self.unit * max(1.0, float(values[-1])):
            raise NoRoot("Newton's method found none")

    def no_root(self, J: Array) -> NoRoot:
        """Why there is none: a direction of the information (whitened) is flat, or negative."""
        if not np.isfinite(J).all():
            return NoRoot("the information is not finite: some rows have a mean at the end of its range")
        values, vectors = np.linalg.eigh((J + J.T) / 2)
        if values[0] < -_FLAT:
            return NoRoot("the information is negative in a direction, as weights are where it is determined")
        direction = np.zeros(len(self.free))
        direction[self.free] = self.inverse.T @ vectors[:, 0]
        return Separated(direction)


def is_positive_definite(J: Array) -> bool:
    """Whether a symmetric matrix (k, k) is finite and has a Cholesky factor."""
    try:
        np.linalg.cholesky(J)
    except np.linalg.LinAlgError:
        return False
    return bool(np.isfinite(J).all())


def influence_of(equations: Equations, beta: Array, weights: Array) -> Array:
    """J⁻¹ψ (n, k) at all rows."""
    return np.linalg.solve(equations.information(beta, weights), equations.scores(beta).T).T


def dependent_columns(X: Array, weights: Array, share: float = SINGULAR) -> Array | None:
    """A direction (k,) in which the columns, scaled, add up to 0 under probability weights (m,); None if there is none.

    share   of the largest eigenvalue, up to which an eigenvalue counts as 0.
    """
    at_points = X[: len(weights)]
    size = np.sqrt(np.maximum((at_points**2).T @ weights, 1e-300))
    scaled = at_points / size
    values, vectors = np.linalg.eigh((scaled * weights[:, None]).T @ scaled)
    return vectors[:, 0] if values[0] <= share * values[-1] else None
