"""Multinomial logit: log-odds of each level against the first (McFadden 1974)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import softmax

from kmeanalyst.inference.regression.equations.score_equations import LevelEquations
from kmeanalyst.kernels.base import Array


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
        """P (n, c) and its derivative P_c (1{c = d} − P_d) x."""
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
        """(n, c) linear predictors; 0 of the first level."""
        return np.column_stack([np.zeros(len(X)), X @ beta.reshape(len(self.levels) - 1, -1).T])

    def _probabilities(self, beta: Array, X: Array) -> Array:
        return softmax(self._linear(beta, X), axis=1)

    @staticmethod
    def _spread_out(values: Array, X: Array) -> Array:
        """(n, c k) products of values (n, c) with X (n, k)."""
        return (values[:, :, None] * X[:, None, :]).reshape(len(X), -1)
