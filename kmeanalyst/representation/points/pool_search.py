"""Weighted points near a noisy mean of any features, found by search.

Random Fourier features and margins have methods of their own; all other features (random binning, Maclaurin) are only
evaluated here. Two steps alternate: the best probability weights on a pool of candidates, a convex problem whose
constraint keeps the noise out (probability weights cannot follow it); and a new pool made of the candidates with positive
weight, of points near them (nearer in each round) and of fresh draws from the domain. The last pool is thinned to the
points of the release (`thinning`), whose weights are fitted once more.

Source   Balog, Tolstikhin & Schölkopf 2018, Algorithm 2, line 5 (any reduced-set method).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.numbers import Number
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.representation.points.thinning import thinned
from kmeanalyst.representation.progress import Progress, silent
from kmeanalyst.representation.wanted import Points, Wanted
from kmeanalyst.representation.weights.convex_fit import PROBABILITIES, minimise_quadratic
from kmeanalyst.representation.weights.reweight import gap_tolerance, weights_for

_ROUNDS = 4
_FIRST_STEP = 0.25  # first step, as a share of a column's range; halved in each round
_FRESH = 0.2  # share of fresh draws among a pool's candidates, and among the cells of a moved candidate
_MOST_NUMBERS = 30_000_000  # features of a pool
_FEWEST, _MOST = 600, 2000  # candidates of a pool
_STEPS = 300


def search_points(measurement: Measurement, domain: Domain, wanted: Wanted, report: Progress = silent) -> Points:
    """Encoded points (M, d) and weights (M,) whose mean feature is near the measurement; public rows join the first pool."""
    search = _Search(measurement, domain, wanted.float32, np.random.default_rng(wanted.rng))
    size = wanted.effort.of(int(np.clip(_MOST_NUMBERS // measurement.feature_map.dimension, _FEWEST, _MOST)))
    pool = search.draw(size)
    if wanted.public is not None:
        chosen = search.rng.permutation(len(wanted.public))[: size // 2]
        pool = np.vstack([wanted.public[chosen], pool])
    for turn in range(_ROUNDS):
        weights = search.probability_weights(pool)
        report("placing points", (turn + 1) / (_ROUNDS + 1))
        if turn + 1 < _ROUNDS:
            pool = search.next_pool(pool, weights, size, _FIRST_STEP / 2**turn)
    points = search.choose(pool, weights, wanted.n_points)
    report("placing points", 1.0)
    if wanted.view == "uniform":
        return points, np.full(wanted.n_points, 1 / wanted.n_points)
    return points, weights_for(wanted.view, points, measurement, bound=wanted.bound)


@dataclass(frozen=True)
class _Search:
    """Candidates of the domain, rounded as a file stores them, and their weights for a measurement."""

    measurement: Measurement
    domain: Domain
    float32: bool
    rng: np.random.Generator

    def draw(self, n: int) -> Array:
        """Random candidates (n, d)."""
        return self.round(self.domain.draw(n, self.rng))

    def round(self, rows: Array) -> Array:
        """Rows as a file stores them."""
        return self.domain.encode(self.domain.decode(rows, float32=self.float32))

    def probability_weights(self, pool: Array) -> Array:
        """The probability weights whose mean feature is nearest to the measurement."""
        features = self.measurement.feature_map.compact(pool)
        G = features @ features.T
        G = np.asarray(G.toarray() if hasattr(G, "toarray") else G)
        b, tolerance = features @ self.measurement.vector, gap_tolerance(self.measurement)
        return minimise_quadratic(G, b, PROBABILITIES, tolerance=tolerance, most_steps=_STEPS)

    def next_pool(self, pool: Array, weights: Array, size: int, step: float) -> Array:
        """Candidates with positive weight, points near them, and fresh draws."""
        kept = pool[np.argsort(-weights, kind="stable")[: min(int((weights > 0).sum()), size // 2)]]
        n_fresh = int(_FRESH * size)
        near = self.near(pool, weights, size - len(kept) - n_fresh, step)
        return np.vstack([kept, self.round(np.vstack([near, self.domain.draw(n_fresh, self.rng)]))])

    def near(self, pool: Array, weights: Array, n: int, step: float) -> Array:
        """n draws from the pool, with normal steps of sd `step` times the range on numbers, and some cells drawn afresh."""
        rng = self.rng
        rows = pool[rng.choice(len(pool), n, p=weights / weights.sum())]
        moved, fresh = rows.copy(), self.domain.draw(n, rng)
        for j, column in enumerate(self.domain.columns):
            if isinstance(column, Number):
                low, high = column.bounds
                values = rows[:, j] + step * (high - low) * rng.standard_normal(n)
                moved[:, j] = np.where(np.isnan(rows[:, j]), np.nan, column.wrap(values))
        return np.where(rng.random(rows.shape) < _FRESH, fresh, moved)

    def choose(self, pool: Array, weights: Array, n: int) -> Array:
        """n candidates whose uniform mean is near the pool's embedding; if the pool is too small, also points near them."""
        few = min(n, len(pool))
        indices, _, _ = thinned(self.measurement.feature_map.kernel, pool, weights, few, "uniform")
        near = self.near(pool, weights, n - few, _FIRST_STEP / 2**_ROUNDS)
        return np.vstack([pool[indices], self.round(near)]) if n > few else pool[indices]
