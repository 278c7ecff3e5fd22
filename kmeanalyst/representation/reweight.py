"""Room 3: weights on given points from a noisy mean. Post-processing: no privacy is spent here.

Every fit is min ½‖Σ w_m φ(z_m) − y‖² over a convex set of weights, solved to a duality gap. The set is
what removes noise: a probability measure cannot follow it (METHODS §2), while the papers' raw
coordinates can and do.

    probability   w ≥ 0, Σ w = 1
    bounded       Σ|w| ≤ C                       (Balog et al. 2018, Theorem 11)
    signed        the best signed weights known: see `wiener_coordinates` and `ridge_weights`
    published     L⁻ᵀβ as printed                (Algorithm 1, line 5)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kmeanalyst.kernels import Kernel
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features import Nystroem
from kmeanalyst.releases.measurement import Measurement

WEIGHT_VIEWS = ("probability", "bounded", "signed", "published")
_MOST_STEPS = 5000
_CHECK_EVERY = 10


@dataclass(frozen=True)
class ConvexSet:
    """A convex set of weights: its Euclidean projection, and its linear minimiser (for the duality gap)."""

    project: Callable[[Array], Array]
    least: Callable[[Array], float]  # min over the set of ⟨g, w⟩
    start: Callable[[int], Array]


def project_to_simplex(v: Array) -> Array:
    """Nearest point of {w ≥ 0, Σ w = 1} (Held, Wolfe & Crowder 1974).

    >>> project_to_simplex(np.array([0.5, 0.8, -1.0]))
    array([0.35, 0.65, 0.  ])
    """
    v = v - v.max()  # the same answer, and no overflow of a large v
    descending = np.sort(v)[::-1]
    excess = np.cumsum(descending) - 1
    last = np.nonzero(descending * np.arange(1, len(v) + 1) > excess)[0][-1]
    return np.maximum(v - excess[last] / (last + 1), 0.0)


def project_to_ball(v: Array, bound: float) -> Array:
    """Nearest point of {Σ|w| ≤ bound}."""
    if np.abs(v).sum() <= bound:
        return v
    return np.sign(v) * bound * project_to_simplex(np.abs(v) / bound)


def probability_set() -> ConvexSet:
    """Probability weights."""
    return ConvexSet(project_to_simplex, lambda g: float(g.min()), lambda m: np.full(m, 1 / m))


def bounded_set(bound: float) -> ConvexSet:
    """Σ|w| ≤ bound."""
    return ConvexSet(
        lambda v: project_to_ball(v, bound), lambda g: -bound * float(np.abs(g).max()), lambda m: np.full(m, bound / m)
    )


def minimise_quadratic(
    G: Array, b: Array, allowed: ConvexSet, *, tolerance: float, start: Array | None = None,
    most_steps: int = _MOST_STEPS,
) -> Array:  # fmt: skip
    """argmin ½wᵀGw − bᵀw over the set, to a duality gap of `tolerance` (or `most_steps`).

    Accelerated projected gradient with restart when the momentum points uphill (O'Donoghue & Candès 2015).
    G (M, M) positive semi-definite, b (M,)  →  w (M,).
    """
    step = 1 / _largest_eigenvalue(G)
    w = momentum = allowed.start(len(b)) if start is None else allowed.project(start)
    t = 1.0
    for i in range(most_steps):
        new = allowed.project(momentum - step * (G @ momentum - b))
        if (momentum - new) @ (new - w) > 0:
            t = 1.0
        t_next = (1 + np.sqrt(1 + 4 * t * t)) / 2
        momentum = new + (t - 1) / t_next * (new - w)
        w, t = new, t_next
        if i % _CHECK_EVERY == 0:
            gradient = G @ w - b
            if gradient @ w - allowed.least(gradient) <= tolerance:
                break
    return w


def _largest_eigenvalue(G: Array) -> float:
    """λ_max(G), and 5 % more: a power iteration from a start that no structure of G is orthogonal to."""
    v = np.random.default_rng(0).standard_normal(len(G))
    for _ in range(30):
        v = G @ v
        v /= max(float(np.linalg.norm(v)), 1e-300)
    return max(1.05 * float(v @ (G @ v)), 1e-300)


def fit_weights(features: Array, measurement: Measurement, allowed: ConvexSet, *, ridge: float = 0.0) -> Array:
    """Weights (M,) in `allowed` whose mean feature is nearest to the measurement.

    features   (M, F) φ of the points.
    ridge      adds ridge/2 · ‖w‖².
    """
    G = features @ features.T
    G[np.diag_indices_from(G)] += ridge
    b = features @ measurement.vector
    return minimise_quadratic(G, b, allowed, tolerance=gap_tolerance(measurement))


def gap_tolerance(measurement: Measurement) -> float:
    """A duality gap that no longer matters: the noise on one coordinate, squared."""
    return measurement.noise_scale**2


def weights_for(
    view: str, points: Array, measurement: Measurement, *, bound: float | None = None, n_public: int = 0
) -> Array:
    """Weights (M,) on the points in one of the ways named above.

    view      "probability", "bounded", "signed" or "published".
    points    (M, d) encoded.
    bound     C for bounded (default 1) and signed (default 2).
    n_public  how many of the points are public rows (the first ones); signed weights step towards them.
    """
    if view == "published":
        return published_weights(points, measurement)
    if view == "signed" and n_public == len(points) and isinstance(measurement.feature_map, Nystroem):
        return published_weights(points, measurement, wiener_coordinates(points, measurement))
    features = measurement.feature_map(points)
    if view == "probability":
        return fit_weights(features, measurement, probability_set())
    if view == "bounded":
        return fit_weights(features, measurement, bounded_set(1.0 if bound is None else bound))
    if view == "signed":
        ridge = measurement.noise_scale * np.sqrt(len(points)) / len(points)
        return fit_weights(features, measurement, bounded_set(2.0 if bound is None else bound), ridge=ridge)
    raise ValueError(f"weights must be probability, bounded, signed or published, got {view!r}. Name one of these.")


def nearest_probability_weights(kernel: Kernel, points: Array, weights: Array) -> Array:
    """Probability weights p that minimise ‖Σ (p_m − w_m) k(z_m, ·)‖: the probability view of signed weights."""
    if weights.min() >= 0 and abs(weights.sum() - 1) < 1e-9:
        return weights
    G = kernel.gram(points, points)
    return minimise_quadratic(
        G, G @ weights, probability_set(), tolerance=1e-9 * kernel.bound**2, start=weights, most_steps=20_000
    )


def published_weights(points: Array, measurement: Measurement, coordinates: Array | None = None) -> Array:
    """Algorithm 1's raw weights L⁻ᵀβ on the basis points, zero on points that the basis does not need."""
    feature_map = measurement.feature_map
    if not isinstance(feature_map, Nystroem):
        raise ValueError(
            "published weights belong to Algorithm 1: random features have no basis of points to solve for. "
            'Pass weights="probability", "bounded" or "signed", or method="subspace".'
        )
    solved = feature_map.coefficients(measurement.vector if coordinates is None else coordinates)
    place = {row.tobytes(): m for m, row in reversed(list(enumerate(points)))}
    weights = np.zeros(len(points))
    for row, weight in zip(feature_map.points, solved, strict=True):
        weights[place[row.tobytes()]] += weight
    return weights


def wiener_coordinates(points: Array, measurement: Measurement) -> Array:
    """The noisy coordinates drawn towards the uniform mean of the public rows, as far as those can be trusted.

    posterior mean = baseline + P(P + τ²I)⁻¹(β − baseline), P = q·Cov·(1/M + 1/N) the prior covariance of
    the difference between the table's embedding and the public baseline; q ≥ 1 by empirical Bayes, so that a
    biased public sample is believed less (METHODS §2).
    """
    features = measurement.feature_map(points)
    baseline = features.mean(axis=0)
    centred = features - baseline
    covariance = centred.T @ centred / max(1, len(points) - 1)
    eigenvalues, vectors = np.linalg.eigh(covariance * (1 / len(points) + 1 / measurement.n_rows))
    eigenvalues = np.maximum(eigenvalues, 0.0)
    z = vectors.T @ (measurement.vector - baseline)
    trust = _prior_inflation(z, eigenvalues, measurement.noise_scale**2) * eigenvalues
    return baseline + vectors @ (trust / (trust + measurement.noise_scale**2) * z)


def _prior_inflation(z: Array, eigenvalues: Array, noise_variance: float) -> float:
    """q ≥ 1 that maximises Σ log N(z_i; 0, q e_i + τ²), on a fine logarithmic grid."""
    candidates = np.geomspace(1.0, 1e6, 241)
    variance = candidates[:, None] * eigenvalues + noise_variance
    return float(candidates[np.argmin((np.log(variance) + z**2 / variance).sum(axis=1))])
