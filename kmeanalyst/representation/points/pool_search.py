"""Weighted points near a noisy mean of any features, found by search.

Random Fourier features and margins have methods of their own; all other features (random binning, Maclaurin) are only
evaluated here. Two steps alternate: the best probability weights on a pool of candidates, a convex problem whose
constraint keeps the noise out (probability weights cannot follow it); and a new pool made of the candidates with positive
weight, of points near them (nearer in each round) and of fresh draws from the domain. The last pool is thinned to the
points of the release (`thinning`), whose weights are fitted once more.

Source   Balog, Tolstikhin & Schölkopf 2018, Algorithm 2, line 5 (any reduced-set method).
"""

from __future__ import annotations

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.numbers import Number
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.representation.effort import FULL, Effort
from kmeanalyst.representation.points.thinning import thinned
from kmeanalyst.representation.progress import Progress, silent
from kmeanalyst.representation.weights.convex_fit import minimise_quadratic, probability_set
from kmeanalyst.representation.weights.reweight import gap_tolerance, weights_for

_ROUNDS = 4
_FIRST_STEP = 0.25  # of a column's range; halved in each round
_FRESH = 0.2  # share of fresh draws among a pool's candidates, and among the cells of a moved candidate
_MOST_NUMBERS = 30_000_000  # features of a pool
_FEWEST, _MOST = 600, 2000  # candidates of a pool
_STEPS = 300


def search_points(
    measurement: Measurement,
    domain: Domain,
    *,
    n_points: int,
    view: str,
    bound: float | None = None,
    public: Array | None = None,
    float32: bool = False,
    rng: np.random.Generator,
    effort: Effort = FULL,
    progress: Progress | None = None,
) -> tuple[Array, Array]:
    """Encoded points (M, d) and weights (M,) whose mean feature is near the measurement.

    The arguments are those of `represent`. public: rows that join the first pool.
    """
    report = progress or silent
    size = effort.of(int(np.clip(_MOST_NUMBERS // measurement.feature_map.dimension, _FEWEST, _MOST)))
    pool = _as_released(domain.draw(size, rng), domain, float32)
    if public is not None:
        pool = np.vstack([public[rng.permutation(len(public))[: size // 2]], pool])
    for turn in range(_ROUNDS):
        weights = _probability_weights(pool, measurement)
        report("placing points", (turn + 1) / (_ROUNDS + 1))
        if turn + 1 < _ROUNDS:
            pool = _next_pool(pool, weights, domain, size, _FIRST_STEP / 2**turn, float32, rng)
    points = _choose(pool, weights, measurement, n_points, domain, float32, rng)
    report("placing points", 1.0)
    if view == "uniform":
        return points, np.full(n_points, 1 / n_points)
    return points, weights_for(view, points, measurement, bound=bound)


def _as_released(rows: Array, domain: Domain, float32: bool) -> Array:
    """Rows after rounding to what a file stores."""
    return domain.encode(domain.decode(rows, float32=float32))


def _probability_weights(pool: Array, measurement: Measurement) -> Array:
    features = measurement.feature_map.compact(pool)
    G = features @ features.T
    G = np.asarray(G.toarray() if hasattr(G, "toarray") else G)
    b = features @ measurement.vector
    return minimise_quadratic(G, b, probability_set(), tolerance=gap_tolerance(measurement), most_steps=_STEPS)


def _next_pool(
    pool: Array, weights: Array, domain: Domain, size: int, step: float, float32: bool, rng: np.random.Generator
) -> Array:
    """Candidates with positive weight, points near them, and fresh draws."""
    kept = pool[np.argsort(-weights, kind="stable")[: min(int((weights > 0).sum()), size // 2)]]
    n_fresh = int(_FRESH * size)
    parents = pool[rng.choice(len(pool), size - len(kept) - n_fresh, p=weights / weights.sum())]
    near = _move(parents, domain, step, rng)
    return np.vstack([kept, _as_released(np.vstack([near, domain.draw(n_fresh, rng)]), domain, float32)])


def _move(rows: Array, domain: Domain, step: float, rng: np.random.Generator) -> Array:
    """Rows with normal steps of sd `step` times the range added to their numbers, and some cells drawn afresh."""
    moved, fresh = rows.copy(), domain.draw(len(rows), rng)
    for j, column in enumerate(domain.columns):
        if isinstance(column, Number):
            low, high = column.bounds
            values = rows[:, j] + step * (high - low) * rng.standard_normal(len(rows))
            moved[:, j] = np.where(np.isnan(rows[:, j]), np.nan, column.wrap(values))
    return np.where(rng.random(rows.shape) < _FRESH, fresh, moved)


def _choose(
    pool: Array,
    weights: Array,
    measurement: Measurement,
    n_points: int,
    domain: Domain,
    float32: bool,
    rng: np.random.Generator,
) -> Array:
    """Candidates whose uniform mean is near the pool's embedding; if the pool is too small, also points near them."""
    kernel, few = measurement.feature_map.kernel, min(n_points, len(pool))
    indices, _, _ = thinned(kernel, pool, weights, few, "uniform")
    parents = pool[rng.choice(len(pool), n_points - few, p=weights / weights.sum())]
    near = _move(parents, domain, _FIRST_STEP / 2**_ROUNDS, rng)
    return np.vstack([pool[indices], _as_released(near, domain, float32)]) if n_points > few else pool[indices]
