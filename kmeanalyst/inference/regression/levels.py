"""Equations of targets of several levels: multinomial logit (McFadden 1974), and proportional odds (McCullagh 1980)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import expit, logit, softmax

from kmeanalyst.inference.regression.equations import Equations
from kmeanalyst.kernels.base import Array


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
        known = self.y[: len(weights)] >= 0
        found = np.bincount(self.y[: len(weights)][known], weights[known], minlength=len(self.levels))
        return found / found.sum()


@dataclass(frozen=True, eq=False)
class MultinomialEquations(LevelEquations):
    """Scores (1{y = c} − P_c) x of each level c but the first; β stands level by level.

    X        (n, k) the design.
    """

    @property
    def columns(self) -> Array:
        return np.tile(np.arange(self.X.shape[1]), len(self.levels) - 1)

    def scores(self, beta: Array) -> Array:
        residual = self._chosen - self._probabilities(beta, self.X)
        residual[self.y < 0] = np.nan
        return self._spread_out(residual[:, 1:], self.X)

    def information(self, beta: Array, weights: Array, *, expected: bool = False) -> Array:
        X = self.X[: len(weights)]
        P = self._probabilities(beta, X)[:, 1:]
        c, k = P.shape[1], X.shape[1]
        J = np.empty((c, k, c, k))
        for a in range(c):
            for b in range(c):
                J[a, :, b] = X.T @ ((weights * P[:, a] * ((a == b) - P[:, b]))[:, None] * X)
        return J.reshape(c * k, c * k)

    def start(self, weights: Array) -> Array:
        return np.zeros((len(self.levels) - 1) * self.X.shape[1])

    def means(self, beta: Array, X: Array) -> tuple[Array, Array]:
        P = self._probabilities(beta, X)
        slopes = [self._spread_out(P[:, [c]] * ((np.arange(P.shape[1]) == c) - P)[:, 1:], X) for c in range(P.shape[1])]
        return P, np.stack(slopes, axis=1)

    def mean_slopes(self, beta: Array, X: Array, dX: Array) -> tuple[Array, Array]:
        """P_c (a_c − ā), a the linear predictors' changes and ā their mean."""
        P, by_beta = self.means(beta, X)
        a = self._linear(beta, dX)
        centred = a - (P * a).sum(axis=1)[:, None]
        mean_moves = np.einsum("nck,nc->nk", by_beta, a) + self._spread_out(P[:, 1:], dX)
        own = np.zeros_like(by_beta)
        for c in range(1, P.shape[1]):
            k = X.shape[1]
            own[:, c, (c - 1) * k : c * k] = dX
        return P * centred, by_beta * centred[:, :, None] + P[:, :, None] * (own - mean_moves[:, None])

    @cached_property
    def _chosen(self) -> Array:
        return (self.y[:, None] == np.arange(len(self.levels))).astype(float)

    def _linear(self, beta: Array, X: Array) -> Array:
        return np.column_stack([np.zeros(len(X)), X @ beta.reshape(len(self.levels) - 1, -1).T])

    def _probabilities(self, beta: Array, X: Array) -> Array:
        return softmax(self._linear(beta, X), axis=1)

    @staticmethod
    def _spread_out(values: Array, X: Array) -> Array:
        return (values[:, :, None] * X[:, None, :]).reshape(len(X), -1)


_FAR = 700.0  # where the distribution function is 0 or 1


@dataclass(frozen=True, eq=False)
class OrdinalEquations(LevelEquations):
    """Scores of log P(y): parameters are the thresholds θ, increasing, and then β.

    With u and l the upper and lower threshold minus xᵀβ, and p = F(u) − F(l), they are f(u)/p by u and −f(l)/p by l.

    X        (n, 1 + k) the design, the intercept first: it has no coefficient, as thresholds stand in its place.
    """

    @property
    def columns(self) -> Array:
        return np.concatenate([np.full(self._cuts, -1), np.arange(1, self.X.shape[1])])

    @property
    def _cuts(self) -> int:
        return len(self.levels) - 1

    def scores(self, beta: Array) -> Array:
        upper, lower, p = self._ends(beta, self.X, self.y)
        f = self._density
        with np.errstate(all="ignore"):  # where p is 0 by rounding there is no root
            scores = self._by(f(upper) / p, self.y, self.X) - self._by(f(lower) / p, self.y - 1, self.X)
        scores[self.y < 0] = np.nan
        return scores

    def information(self, beta: Array, weights: Array, *, expected: bool = False) -> Array:
        """−Σ w ∂² log p: positive definite under weights that are not negative, as log p is concave."""
        m = len(weights)
        X, y = self.X[:m], self.y[:m]
        upper, lower, p = self._ends(beta, X, y)
        fu, fl = self._density(upper), self._density(lower)
        with np.errstate(all="ignore"):
            uu, ll, ul = self._slope(upper) / p - (fu / p) ** 2, -self._slope(lower) / p - (fl / p) ** 2, fu * fl / p**2
        ones = np.ones(m)
        U, L = self._by(ones, y, X), self._by(ones, y - 1, X)
        cross = U.T @ ((weights * ul)[:, None] * L)
        return -(U.T @ ((weights * uu)[:, None] * U) + L.T @ ((weights * ll)[:, None] * L) + cross + cross.T)

    def start(self, weights: Array) -> Array:
        shares = np.bincount(self.y[: len(weights)], weights, minlength=len(self.levels))
        below = np.clip(np.cumsum(shares)[:-1] / shares.sum(), 1e-9, 1 - 1e-9)
        return np.concatenate([logit(below), np.zeros(self.X.shape[1] - 1)])

    def is_feasible(self, beta: Array, m: int) -> bool:
        return bool(np.isfinite(beta).all() and (np.diff(beta[: self._cuts]) > 0).all())

    def moved(self, beta: Array, index: int, value: float) -> Array:
        start = super().moved(beta, index, value)
        if index < self._cuts:
            start[: self._cuts] = beta[: self._cuts] + (value - beta[index])
        return start

    def means(self, beta: Array, X: Array) -> tuple[Array, Array]:
        each = [np.full(len(X), c) for c in range(len(self.levels))]
        ends = [self._ends(beta, X, y) for y in each]
        f = self._density
        pairs = zip(ends, each, strict=True)
        slopes = [self._by(f(u), y, X) - self._by(f(lower), y - 1, X) for (u, lower, _), y in pairs]
        return np.column_stack([p for _, _, p in ends]), np.stack(slopes, axis=1)

    def mean_slopes(self, beta: Array, X: Array, dX: Array) -> tuple[Array, Array]:
        along = dX[:, 1:] @ beta[self._cuts :]
        f, slope = self._density, self._slope
        values, by_beta = [], []
        for c in range(len(self.levels)):
            y = np.full(len(X), c)
            upper, lower, _ = self._ends(beta, X, y)
            difference = f(upper) - f(lower)
            moved = self._by(slope(upper), y, X) - self._by(slope(lower), y - 1, X)
            own = np.column_stack([np.zeros((len(X), self._cuts)), dX[:, 1:]])
            values.append(-difference * along)
            by_beta.append(-along[:, None] * moved - difference[:, None] * own)
        return np.column_stack(values), np.stack(by_beta, axis=1)

    def _ends(self, beta: Array, X: Array, y: Array) -> tuple[Array, Array, Array]:
        """u and l, far out for the last and the first level, and p, for codes (n,)."""
        cuts = np.concatenate([[-np.inf], beta[: self._cuts], [np.inf]])
        eta = X[:, 1:] @ beta[self._cuts :]
        upper, lower = (np.clip(cuts[np.maximum(y, 0) + side] - eta, -_FAR, _FAR) for side in (1, 0))
        high = lower > 0  # differences of upper tails are exact where those of lower tails are not
        p = np.where(high, expit(-lower) - expit(-upper), expit(upper) - expit(lower))
        return upper, lower, np.maximum(p, 1e-300)

    def _by(self, values: Array, cut: Array, X: Array) -> Array:
        """values · ∂(θ_cut − xᵀβ) by all parameters (n, c + k); 0 where there is no such threshold."""
        found = np.zeros((len(X), self._cuts + X.shape[1] - 1))
        there = (cut >= 0) & (cut < self._cuts)
        found[there, cut[there]] = values[there]
        found[:, self._cuts :] = np.where(there, -values, 0.0)[:, None] * X[:, 1:]
        return found

    @staticmethod
    def _density(x: Array) -> Array:
        return expit(x) * expit(-x)

    @staticmethod
    def _slope(x: Array) -> Array:
        return expit(x) * expit(-x) * (expit(-x) - expit(x))
