"""The null distribution of a small sample, from samples of as many rows that are drawn from a release's points.

Where a level is rare most small samples lack it, and their covariance is 0 there: a normal distribution from it rejects a
true hypothesis. Under the hypothesis the rows are distributed as the release's points are in the probability view; but where
the features see little, this is a matter of their fit. So both are used: the covariance is a mean of the sample's and the
points', and the ratio of the statistic to its mean under that covariance is compared with the ratios of samples drawn from
the points (a studentised bootstrap: Hall 1992), in which an error of the points' covariance hardly counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_array

from kmeanalyst.inference.weighted_chi_squared import NormalQuadraticForm
from kmeanalyst.kernels.base import Array

_DRAWS = 999
_MOST_ROWS = 1000  # of a sample that is drawn; a mean of more is taken as normal
_POINTS_COUNT_AS = 100  # rows, in the covariance

Noises = Callable[[], Iterable[Array]]  # gives covariances (K, K) of the noise, each as likely


@dataclass(frozen=True, eq=False)
class Draws:
    """Samples of n rows drawn from points, in K coordinates that are 0 at the points' mean.

    values, weights   (m, K), (m,): the points and their probabilities.
    n_rows            n.
    share             of the points' covariance in that of a row; the rest is of the sample's own.
    sources           (G, m) the probabilities that rows were drawn with, in as many even parts of the draws.
    counts            (B, m) how often each point is among the rows of a covariance, over their number; None for many rows.
    means             (B, K) of all rows of each draw.
    blended           (K, K) the covariance of a row as both say; None where it is the points'.
    """

    values: Array
    weights: Array
    n_rows: int
    share: float
    sources: Array
    counts: csr_array | None = None
    means: Array | None = None
    blended: Array | None = None

    @classmethod
    def of(cls, values: Array, weights: Array, n_rows: int, n_left_out: int, sources: Array | None = None) -> Draws:
        """`n_left_out` of the rows have no part in a covariance; sources: the weights if None."""
        values = values - weights @ values
        share = _POINTS_COUNT_AS / (_POINTS_COUNT_AS + n_rows)
        every = cls(values, weights, n_rows, share, weights[None] if sources is None else sources)
        if n_rows > _MOST_ROWS:
            return every
        uniform = np.array_split(np.random.default_rng(0).random((_DRAWS, n_rows)), len(every.sources))
        drawn = np.vstack(
            [np.searchsorted(np.cumsum(own)[:-1], part, side="right") for own, part in zip(every.sources, uniform, strict=True)]
        )
        used = _shares(drawn[:, n_left_out:], len(values))
        return replace(every, counts=used, means=every._apart(_shares(drawn, len(values)) if n_left_out else used, values))

    def _apart(self, counts: csr_array, values: Array) -> Array:
        """(B, K) the mean of each draw beyond that of what it was drawn from."""
        parts = np.array_split(counts @ values, len(self.sources))
        return np.vstack([part - mean for part, mean in zip(parts, self.sources @ values, strict=True)])

    @property
    def covariance(self) -> Array:
        return (self.values.T * self.weights) @ self.values

    @property
    def of_a_row(self) -> Array:
        return self.covariance if self.blended is None else self.blended

    def of_values(self, values: Array) -> Draws | None:
        """The same samples with these values (m, K) of the points, whose covariance is a row's; None of many rows."""
        if self.counts is None:
            return None
        values = values - self.weights @ values
        return replace(self, values=values, share=1.0, means=self._apart(self.counts, values))

    def along(self, form: Array) -> Draws:
        """The same in other coordinates, those times `form` (K, k)."""
        means = None if self.means is None else self.means @ form
        blended = None if self.blended is None else form.T @ self.blended @ form
        return replace(self, values=self.values @ form, means=means, blended=blended)

    def ratios(self, weights: Array, shrink: float, noises: Noises) -> Array:
        """(B,): Σ w_k d_k² of each draw, over its mean under the draw's own covariance."""
        assert self.counts is not None and self.means is not None
        rng, points, n = np.random.default_rng(1), self.covariance, self.n_rows
        others = (shrink - 1 / n) * points  # the release's own rows
        parts = np.array_split(self.means, sum(1 for _ in noises()))
        drawn = [
            part + rng.standard_normal(part.shape) @ root_of(others + noise) for part, noise in zip(parts, noises(), strict=True)
        ]
        squares = self.counts @ (np.square(self.values) @ weights) - np.square(self.means) @ weights
        spread = (1 - self.share) * squares * n / (n - 1) + self.share * (weights @ np.diag(points))
        ratios: Array = np.square(np.vstack(drawn)) @ weights
        return ratios / (shrink * spread + weights @ np.diag(_mean(noises)))


def null_tail(statistic: float, weights: Array, covariance: Array, shrink: float, noises: Noises, draws: Draws | None) -> float:
    """P(Σ w_k d_k² ≥ statistic) under the hypothesis; without draws d is normal.

    covariance   (K, K) of a row, of which d has the part `shrink`.
    """
    least = 1.0
    if draws is not None and draws.counts is not None:
        mean = shrink * covariance + _mean(noises)
        drawn = draws.ratios(weights, shrink, noises) * (weights @ np.diag(mean))
        least, reached = 1 / (_DRAWS + 1), int((drawn >= statistic * (1 - 1e-9)).sum())
        if reached:
            return (reached + 1) * least
        # beyond all draws: a weighted χ² that is scaled to reach as far as they do
        statistic *= NormalQuadraticForm(mean, weights).isf(least) / drawn.max()
    tails = [NormalQuadraticForm(shrink * covariance + noise, weights).sf(statistic) for noise in noises()]
    return min(least, float(np.mean(tails)))


def _mean(noises: Noises) -> Array:
    total, count = np.zeros(()), 0
    for noise in noises():
        total, count = total + noise, count + 1
    return np.asarray(total / count)


def _shares(drawn: Array, size: int) -> csr_array:
    """(B, size): how often each index was drawn, over the number of draws (B, n) in a row."""
    n_draws, n = drawn.shape
    return csr_array((np.full(drawn.size, 1 / n), drawn.ravel(), np.arange(n_draws + 1) * n), shape=(n_draws, size))


def root_of(covariance: Array) -> Array:
    """The symmetric root (K, K), the one that rounding errors hardly change."""
    variances, vectors = np.linalg.eigh(covariance)
    return np.asarray(vectors * np.sqrt(np.maximum(variances, 0.0)) @ vectors.T)
