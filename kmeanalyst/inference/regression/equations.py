"""Estimating equations Σ w ψ(row, β) = 0, their root with its influence function, and the families of generalised linear models.

Newton's method with halved steps, started from the root of probability weights, as fitted weights are now and then negative; a
root counts only where the information J = −Σ w ∂ψ/∂β is positive definite. Its influence is J⁻¹ψ (Huber 1967; White 1982). With
μ = g⁻¹(xᵀβ) and variance V the score of a row is x (y − μ) μ′/V (McCullagh & Nelder 1989, ch. 2).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, ndtr, ndtri

from kmeanalyst.kernels.base import Array

_MOST_STEPS, _HALVINGS = 100, 30
_CLOSE = 1e-8  # a score below this is 0, and a step ends the search: standard errors are some 1e-2 in these coordinates
_FLAT = 1e-6  # information relative to that at the start, below which a direction has no finite root
SINGULAR = 1e-11  # share of the largest eigenvalue of XᵀX, scaled to diagonal 1, below which it counts as singular
NEARLY_SINGULAR = 1e-6  # and below which a note says so: where the condition number passes 1,000


class NoRoot(ValueError):
    """There is no root that the search found; the message says why."""


class Separated(NoRoot):
    """Some coefficients have no finite root.

    direction   (k,) in which the information vanishes.
    """

    def __init__(self, direction: Array) -> None:
        super().__init__("the information vanishes in a direction: the coefficients there are not finite")
        self.direction = direction


def root(equations: Equations, weights: Array, start: Array, reference: Array, held: int | None = None) -> Array:
    """β with Σ w ψ = 0; NoRoot where there is none, or the information is not positive definite there.

    start       β to start from.
    reference   (k, k) what is expected of the information at the start: the metric of steps and directions.
    held        the index of a coefficient that keeps its value; its own equation is left out.
    """
    with np.errstate(all="ignore"):  # a root counts only where scores and information are finite
        return _Search(equations, weights, np.arange(len(start)) != held, reference).root(start)


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
        if not np.isfinite(J).all():
            return NoRoot("the information is not finite: some rows have a mean at the end of its range")
        values, vectors = np.linalg.eigh((J + J.T) / 2)
        if values[0] < -_FLAT:
            return NoRoot("the information is negative in a direction, as weights are where it is determined")
        direction = np.zeros(len(self.free))
        direction[self.free] = self.inverse.T @ vectors[:, 0]
        return Separated(direction)


def is_positive_definite(J: Array) -> bool:
    try:
        np.linalg.cholesky(J)
    except np.linalg.LinAlgError:
        return False
    return bool(np.isfinite(J).all())


def dependent_columns(X: Array, weights: Array, share: float = SINGULAR) -> Array | None:
    """A direction (k,) in which the columns, scaled, add up to 0 under probability weights (m,); None if there is none.

    share   of the largest eigenvalue, up to which an eigenvalue counts as 0.
    """
    at_points = X[: len(weights)]
    size = np.sqrt(np.maximum((at_points**2).T @ weights, 1e-300))
    scaled = at_points / size
    values, vectors = np.linalg.eigh((scaled * weights[:, None]).T @ scaled)
    return vectors[:, 0] if values[0] <= share * values[-1] else None


@dataclass(frozen=True)
class Link:
    """g: μ → η, and η → (μ, μ′, μ″)."""

    name: str
    forward: Callable[[Array], Array]
    backward: Callable[[Array], tuple[Array, Array, Array]]


def _logistic(eta: Array) -> tuple[Array, Array, Array]:
    mu = expit(eta)
    return mu, mu * (1 - mu), mu * (1 - mu) * (1 - 2 * mu)


def _normal(eta: Array) -> tuple[Array, Array, Array]:
    density = np.exp(-(eta**2) / 2) / np.sqrt(2 * np.pi)
    return ndtr(eta), density, -eta * density


def _gompertz(eta: Array) -> tuple[Array, Array, Array]:
    rate = np.exp(np.minimum(eta, 700.0))
    slope = np.exp(eta - rate)
    return -np.expm1(-rate), slope, slope * (1 - rate)


LINKS = {
    link.name: link
    for link in (
        Link("identity", lambda mu: mu, lambda eta: (eta, np.ones_like(eta), np.zeros_like(eta))),
        Link("log", np.log, lambda eta: (np.exp(eta),) * 3),
        Link("inverse", lambda mu: 1 / mu, lambda eta: (1 / eta, -1 / eta**2, 2 / eta**3)),
        Link("logit", lambda mu: np.log(mu / (1 - mu)), _logistic),
        Link("probit", ndtri, _normal),
        Link("cloglog", lambda mu: np.log(-np.log1p(-mu)), _gompertz),
    )
}


@dataclass(frozen=True)
class Family:
    """A family of distributions of the target.

    variance   μ → (V, V′).
    links      their names, the canonical one, which is the default, first.
    start      y and its mean → μ to start from.
    allowed    the mean's and the target's range, in words, and whether a value of μ, and of y, is in it.
    """

    name: str
    variance: Callable[[Array], tuple[Array, Array]]
    links: tuple[str, ...]
    start: Callable[[Array, float], Array]
    mean_allowed: Callable[[Array], Array] = np.isfinite
    target_allowed: Callable[[Array], Array] = np.isfinite
    targets: str = "numbers"


def _halfway(y: Array, mean: float) -> Array:
    return (y + mean) / 2


FAMILIES = {
    family.name: family
    for family in (
        Family("gaussian", lambda mu: (np.ones_like(mu), np.zeros_like(mu)), ("identity", "log"), _halfway),
        Family(
            "binomial", lambda mu: (mu * (1 - mu), 1 - 2 * mu), ("logit", "probit", "cloglog"), lambda y, mean: (y + 0.5) / 2,
            lambda mu: (mu > 0) & (mu < 1), lambda y: (y == 0) | (y == 1), "a condition, or a column of two levels",
        ),
        Family("poisson", lambda mu: (mu, np.ones_like(mu)), ("log", "identity"), _halfway,
               lambda mu: mu > 0, lambda y: y >= 0, "numbers that are not negative"),
        Family("gamma", lambda mu: (mu**2, 2 * mu), ("inverse", "log", "identity"), _halfway,
               lambda mu: mu > 0, lambda y: y > 0, "positive numbers"),
    )
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Equations:
    """The score equations of a generalised linear model.

    X   (n, k) the design.
    y   (n,) the target.
    """

    X: Array
    y: Array
    family: Family
    link: Link

    def scores(self, beta: Array) -> Array:
        """ψ (n, k) at all rows."""
        return self.X * self._score(beta, slice(None))[0][:, None]

    def information(self, beta: Array, weights: Array, *, expected: bool = False) -> Array:
        """J = −Σ w x xᵀ s′ (k, k); `expected` leaves out the term with y − μ: positive definite under weights ≥ 0."""
        m = len(weights)
        _, slope, fisher = self._score(beta, slice(m))
        X = self.X[:m]
        return X.T @ ((weights * (fisher if expected else -slope))[:, None] * X)

    def is_feasible(self, beta: Array, m: int) -> bool:
        mu = self.link.backward(self.X[:m] @ beta)[0]
        saturated = (mu == 0) | (mu == 1) if self.family.name == "binomial" else (mu == 0) & (self.link.name == "log")
        return bool(np.isfinite(mu).all() and (self.family.mean_allowed(mu) | saturated).all())

    def total(self, beta: Array, weights: Array) -> Array:
        return weights @ self.scores(beta)[: len(weights)]

    def start(self, weights: Array) -> Array:
        """β (k,) to start from, under weights that are not negative."""
        m = len(weights)
        mean = float(weights @ self.y[:m] / weights.sum())
        eta = self.link.forward(self.family.start(self.y[:m], mean))
        beta = np.linalg.lstsq(self.X[:m] * np.sqrt(weights)[:, None], eta * np.sqrt(weights), rcond=None)[0]
        if self.is_feasible(beta, m):
            return beta
        flat = np.full(m, self.link.forward(np.array([mean]))[0])  # all means alike
        return np.linalg.lstsq(self.X[:m], flat, rcond=None)[0]

    def means(self, beta: Array, X: Array) -> tuple[Array, Array]:
        """μ (n,) at rows X, and its derivative by β (n, k)."""
        mu, slope, _ = self.link.backward(X @ beta)
        return mu, slope[:, None] * X

    def interval(self, eta: Array, half: Array) -> tuple[Array, Array]:
        with np.errstate(all="ignore"):
            low, high = (self.link.backward(eta + side * half)[0] for side in (-1, 1))
        if self.link.name == "inverse":  # past η = 0 the mean has no upper end
            high, low = high, np.where(eta - half > 0, low, np.inf)
        return np.minimum(low, high), np.maximum(low, high)

    def _score(self, beta: Array, rows: slice) -> tuple[Array, Array, Array]:
        with np.errstate(all="ignore"):
            mu, first, second = self.link.backward(self.X[rows] @ beta)
            residual = self.y[rows] - mu
            if self.link.name == self.family.links[0]:  # the canonical one
                sign = -1.0 if self.link.name == "inverse" else 1.0
                return residual * sign, -np.abs(first), np.abs(first)
            V, slope = self.family.variance(mu)
            V = np.maximum(V, 1e-300)
            fisher = first**2 / V
            return residual * first / V, -fisher + residual * (second * V - first**2 * slope) / V**2, fisher
