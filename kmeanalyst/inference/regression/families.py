"""Generalised linear models: the score equations of the exponential families (McCullagh & Nelder 1989, ch. 2).

With μ = g⁻¹(xᵀβ) and the variance function V, the score of a row is x s, s = (y − μ) μ′/V, derivatives by η = xᵀβ, and its
derivative is x xᵀ s′, s′ = −μ′²/V + (y − μ)(μ″V − μ′²V′)/V². For canonical links s = y − μ and s′ = −μ′.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import expit, ndtr, ndtri

from kmeanalyst.inference.regression.equations import Equations
from kmeanalyst.kernels.base import Array


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
    links      their names, the default first.
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


def _is_binary(y: Array) -> Array:
    return (y == 0) | (y == 1)


def _inside(mu: Array) -> Array:
    return (mu > 0) & (mu < 1)


FAMILIES = {
    family.name: family
    for family in (
        Family("gaussian", lambda mu: (np.ones_like(mu), np.zeros_like(mu)), ("identity", "log"), _halfway),
        Family(
            "binomial", lambda mu: (mu * (1 - mu), 1 - 2 * mu), ("logit", "probit", "cloglog"), lambda y, mean: (y + 0.5) / 2,
            _inside, _is_binary, "a condition, or a column of two levels",
        ),
        Family(
            "poisson", lambda mu: (mu, np.ones_like(mu)), ("log", "identity"), _halfway,
            lambda mu: mu > 0, lambda y: y >= 0, "numbers that are not negative",
        ),
        Family("gamma", lambda mu: (mu**2, 2 * mu), ("inverse", "log", "identity"), _halfway,
               lambda mu: mu > 0, lambda y: y > 0, "positive numbers"),
    )
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class GlmEquations(Equations):
    """The score equations of a generalised linear model.

    X   (n, k) the design.
    y   (n,) the target.
    """

    X: Array
    y: Array
    family: Family
    link: Link

    def scores(self, beta: Array) -> Array:
        """x s (n, k)."""
        return self.X * self._score(beta, slice(None))[0][:, None]

    def information(self, beta: Array, weights: Array, *, expected: bool = False) -> Array:
        """−Σ w x xᵀ s′ (k, k); `expected` leaves out the term with y − μ."""
        m = len(weights)
        _, slope, fisher = self._score(beta, slice(m))
        X = self.X[:m]
        return X.T @ ((weights * (fisher if expected else -slope))[:, None] * X)

    def is_feasible(self, beta: Array, m: int) -> bool:
        """Whether the means of the first m rows are in the family's range."""
        mu = self.link.backward(self.X[:m] @ beta)[0]
        return bool(np.isfinite(mu).all() and (self.family.mean_allowed(mu) | self._saturated(mu)).all())

    def _saturated(self, mu: Array) -> Array:
        """Means that are 0 or 1 by rounding alone."""
        return (mu == 0) | (mu == 1) if self.family.name == "binomial" else (mu == 0) & (self.link.name == "log")

    def start(self, weights: Array) -> Array:
        """Weighted least squares of g(μ) for a μ near y; `weights` are not negative."""
        m = len(weights)
        mean = float(weights @ self.y[:m] / weights.sum())
        eta = self.link.forward(self.family.start(self.y[:m], mean))
        beta = np.linalg.lstsq(self.X[:m] * np.sqrt(weights)[:, None], eta * np.sqrt(weights), rcond=None)[0]
        if self.is_feasible(beta, m):
            return beta
        flat = np.full(m, self.link.forward(np.array([mean]))[0])  # all means alike
        return np.linalg.lstsq(self.X[:m], flat, rcond=None)[0]

    def means(self, beta: Array, X: Array) -> tuple[Array, Array]:
        """μ (n, 1), and its derivative by β (n, 1, k), at rows X (n, k)."""
        mu, slope, _ = self.link.backward(X @ beta)
        return mu[:, None], (slope[:, None] * X)[:, None, :]

    def mean_slopes(self, beta: Array, X: Array, dX: Array) -> tuple[Array, Array]:
        """dμ/dx = μ′ · dXβ (n, 1), and its derivative by β (n, 1, k)."""
        _, first, second = self.link.backward(X @ beta)
        along = dX @ beta
        return (first * along)[:, None], ((second * along)[:, None] * X + first[:, None] * dX)[:, None, :]

    def interval_of_eta(self, eta: Array, half: Array) -> tuple[Array, Array]:
        with np.errstate(all="ignore"):
            low, high = (self.link.backward(eta + side * half)[0] for side in (-1, 1))
        if self.link.name == "inverse":  # past η = 0 the mean has no upper end
            high, low = high, np.where(eta - half > 0, low, np.inf)
        return np.minimum(low, high), np.maximum(low, high)

    def _score(self, beta: Array, rows: slice) -> tuple[Array, Array, Array]:
        """s, s′ and μ′²/V (n,)."""
        with np.errstate(all="ignore"):
            mu, first, second = self.link.backward(self.X[rows] @ beta)
            residual = self.y[rows] - mu
            if self.is_canonical:
                return residual * self._sign, -np.abs(first), np.abs(first)
            V, slope = self.family.variance(mu)
            V = np.maximum(V, 1e-300)
            fisher = first**2 / V
            return residual * first / V, -fisher + residual * (second * V - first**2 * slope) / V**2, fisher

    @property
    def _sign(self) -> float:
        return -1.0 if self.link.name == "inverse" else 1.0

    @cached_property
    def is_canonical(self) -> bool:
        """Whether μ′ = ± V."""
        pairs = ("gaussian", "identity"), ("binomial", "logit"), ("poisson", "log"), ("gamma", "inverse")
        return (self.family.name, self.link.name) in pairs
