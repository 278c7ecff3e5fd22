"""Weights on given points from a noisy mean: min ½‖Σ w_m φ(z_m) − y‖² over a convex set of weights.

    probability   w ≥ 0, Σ w = 1
    bounded       Σ|w| ≤ C                       (Balog et al. 2018, Theorem 11)
    signed        the best signed weights known: see `public_weights`, else Σ|w| ≤ 2 and a ridge
    published     L⁻ᵀβ as printed                (Algorithm 1, line 5)

The set removes noise: with probability weights the expected squared error is at most τ√(2 log M), whatever the number of features
(Nikolov, Talwar & Zhang 2013). Where all points are public rows, y is first shrunk towards their uniform mean (`public_prior`).
"""

from __future__ import annotations

import numpy as np

from kmeanalyst.kernels import Kernel
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.nystroem import Nystroem
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.representation.weights import convex_fit
from kmeanalyst.representation.weights.public_prior import posterior_of_public, ridge_to_uniform

WEIGHT_VIEWS = ("probability", "bounded", "signed", "published")
_FINE = 0.01  # factor on `gap_tolerance` for a fit that is made once
_RAKINGS, _VARY = 10, 1.0  # rounds, and relative variance of a cell of rows
_DOUBT, _NEGLIGIBLE = 0.1, 1e-9  # relative variance by which probabilities may be wrong; a ridge for rounding alone
_ROUNDING = 1e-14  # no gap below this share of the largest k(z, z) can be certified


def fit_weights(features: Array, measurement: Measurement, allowed: convex_fit.ConvexSet, *, ridge: float = 0.0) -> Array:
    """Weights (M,) in `allowed` whose mean feature is nearest to the measurement.

    features   (M, F) φ of the points.
    ridge      adds ridge/2 · ‖w‖².
    """
    G = convex_fit.ridged_gram(features, ridge)
    return convex_fit.solve_quadratic(G, features @ measurement.vector, allowed, tolerance=_fine_tolerance(measurement))


def public_weights(features: Array, measurement: Measurement, allowed: convex_fit.ConvexSet | None) -> Array:
    """Weights (M,) on public rows for the measurement shrunk towards their uniform mean, within `allowed`.

    features   (M, F) φ of the points, which span the subspace of the measurement.
    allowed    None: any signed weights. A set: its weights nearest to those in the norm of G + λ, where λ is the
               ridge of `ridge_to_uniform`.
    """
    vector, noise_scale = measurement.vector, measurement.noise_scale
    coordinates, _ = posterior_of_public(features, vector, noise_scale, n_rows=measurement.n_rows)
    free, ridge = ridge_to_uniform(features, coordinates, measurement.noise_scale)
    if allowed is None:
        return free
    G = convex_fit.ridged_gram(features, ridge)
    return convex_fit.solve_quadratic(G, G @ free, allowed, tolerance=_fine_tolerance(measurement), start=free)


def _fine_tolerance(measurement: Measurement) -> float:
    return max(_FINE * gap_tolerance(measurement), _ROUNDING * measurement.feature_map.norm_bound**2)


def gap_tolerance(measurement: Measurement) -> float:
    """A negligible duality gap: the noise variance of one coordinate."""
    return measurement.noise_scale**2


def weights_for(view: str, points: Array, measurement: Measurement, *, bound: float | None = None, n_public: int = 0) -> Array:
    """Weights (M,) on the points, of one of the views above.

    view      "probability", "bounded", "signed" or "published".
    points    (M, d) encoded.
    bound     C for bounded (default 1) and signed (default 2; none where all points are public rows).
    n_public  how many of the points are public rows (the first ones). If all of them are, and span the subspace of
              the measurement, every view except the published one uses them as a prior (see `public_weights`).
    """
    if view not in WEIGHT_VIEWS:
        raise ValueError(f"weights must be probability, bounded, signed or published, got {view!r}. Name one of these.")
    if view == "published":
        return published_weights(points, measurement)
    features = measurement.feature_map(points)
    if n_public == len(points) and isinstance(measurement.feature_map, Nystroem):
        free = view == "signed" and bound is None
        return public_weights(features, measurement, None if free else convex_fit.default_set(view, bound))
    ridge = measurement.noise_scale / np.sqrt(len(points)) if view == "signed" else 0.0
    return fit_weights(features, measurement, convex_fit.default_set(view, bound), ridge=ridge)


def nearest_probability_weights(kernel: Kernel, points: Array, weights: Array) -> Array:
    """Probability weights p that minimise ‖Σ (p_m − w_m) k(z_m, ·)‖: the probability view of signed weights."""
    if weights.min() >= 0 and abs(weights.sum() - 1) < 1e-9:
        return weights
    G = kernel.gram(points, points)
    return convex_fit.solve_quadratic(G, G @ weights, convex_fit.PROBABILITIES, tolerance=1e-9 * kernel.bound**2, start=weights)


def published_weights(points: Array, measurement: Measurement) -> Array:
    """Algorithm 1's raw weights L⁻ᵀβ on the basis points, zero on points outside the basis."""
    feature_map = measurement.feature_map
    if not isinstance(feature_map, Nystroem):
        raise ValueError(
            "published weights belong to Algorithm 1: random features have no basis of points to solve for. "
            'Pass weights="probability", "bounded" or "signed", or method="subspace".'
        )
    solved = feature_map.coefficients(measurement.vector)
    index_of = {row.tobytes(): m for m, row in reversed(list(enumerate(points)))}
    weights = np.zeros(len(points))
    for row, weight in zip(feature_map.points, solved, strict=True):
        weights[index_of[row.tobytes()]] += weight
    return weights


def raked_weights(points: Array, measurement: Measurement) -> Array:
    """Weights (M,) of rows drawn from tables, raked to every measured table in turn, each cell as far as its noise lets it.

    For cells that rows are not drawn from: finer ones of several columns.
    """
    features = measurement.feature_map
    assert isinstance(features, MarginFeatures)
    weights, squares = np.full(len(points), 1 / len(points)), np.concatenate([each.squares for each in features.groups])
    tables = list(zip(features.cell_indices(points), squares, features.starts, features.starts[1:], strict=False))
    for _ in range(_RAKINGS):
        for cells, square, first, last in tables:
            of_rows, own = np.bincount(cells - first, weights, last - first), slice(first, last)
            noise = measurement.variances[own] / square
            measured = np.maximum(measurement.vector[own] / np.sqrt(square), 0.0)
            moved = (_VARY * of_rows * measured + noise) / (_VARY * of_rows**2 + noise)
            weights = weights * moved[cells - first]
        weights /= weights.sum()
    return np.asarray(weights)


def tilted_weights(values: Array, weights: Array, measured: Array, noise_variance: float) -> Array:
    """Probabilities (m,) times 1 + a(x) ≥ 0, a linear: a rare level then has about its measured share.

    values   (m, K) of the points. measured: their mean (K,), with noise of this variance.
    a is the ridge regression of what is measured beyond the points' mean, of a relative variance of a tenth.
    """
    centred = values - weights @ values
    covariance = _DOUBT * (centred.T * weights) @ centred
    covariance += (noise_variance + _NEGLIGIBLE * np.trace(covariance)) * np.eye(len(covariance))
    tilt = np.linalg.solve(covariance, measured - weights @ values)
    tilted: Array = weights * np.maximum(1 + _DOUBT * centred @ tilt, 0.0)
    return tilted / tilted.sum()
