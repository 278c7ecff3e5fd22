"""Room 4: how far apart, beside whether: an interval for a distance, and the smallest distance a test could have found.

Both rest on one law: of d ~ N(δ, V), the squared length of d is a weighted sum of noncentral χ², whose coefficients
are V's eigenvalues e and whose noncentralities are ‖δ‖²·p/e, p the shares of ‖δ‖² along the eigenvectors.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq

from kmeanalyst.inference.weighted_chi_squared import weighted_chi_squared_isf, weighted_chi_squared_sf
from kmeanalyst.kernels.base import Array


def distance_interval(
    squared: float, coefficients: Array, shares: Array, *, degrees: Array | None = None, level: float = 0.95
) -> tuple[float, float]:
    """(low, high) for ‖δ‖ from ‖d‖² of d ~ N(δ, V), each limit missed with chance (1 − level)/2.

    squared       ‖d‖².
    coefficients  e (K,), variances of d along groups of directions.
    shares        p (K,), how ‖δ‖² is spread over the groups; they sum to one.
    degrees       h (K,), number of directions in each group; 1 each by default.
    A squared length below the median of pure noise is read as that median: the interval never shrinks to nothing.
    """
    beyond = (1 - level) / 2
    positive = coefficients > 0
    e, p = coefficients[positive], shares[positive]
    h = None if degrees is None else degrees[positive]

    def exceeds(distance: float, than: float) -> float:
        return weighted_chi_squared_sf(than, e, degrees=h, noncentrality=distance**2 * p / e)

    seen = max(squared, weighted_chi_squared_isf(0.5, e, degrees=h))
    low = 0.0 if exceeds(0.0, squared) >= beyond else _crossing(lambda x: exceeds(x, squared) - beyond, squared)
    return low, _crossing(lambda x: exceeds(x, seen) - (1 - beyond), seen)


def shares_of(excess: Array, coefficients: Array) -> Array:
    """A cautious spread of ‖δ‖² over directions (K,): half as d² less its noise shows it, half on the noisiest one.

    What shows is itself noisy; with all of ‖δ‖² where it seems to be, limits were missed twice as often as they claim.
    """
    shown, noisiest = np.maximum(excess, 0.0), (np.arange(len(excess)) == np.argmax(coefficients)).astype(float)
    return (shown / shown.sum() + noisiest) / 2 if shown.sum() > 0 else noisiest


def detectable_distance(
    null: Array, weights: Array, signal: Array, *, level: float = 0.05, power: float = 0.8
) -> float:
    """The ‖δ‖ at which a test of Σ w_k d_k², d ~ N(δ, V), at `level` rejects with chance `power`.

    null     V (K, K).
    weights  w (K,).
    signal   λ (K,): ‖δ‖² is spread over the directions as these are.
    """
    root = np.sqrt(weights)
    coefficients, basis = np.linalg.eigh(root[:, None] * null * root)
    keep = coefficients > 1e-14 * coefficients.max(initial=0.0)
    e = coefficients[keep]
    gains = (basis[:, keep] ** 2).T @ (weights * signal / signal.sum()) / e
    critical = weighted_chi_squared_isf(level, e)
    return _crossing(
        lambda x: weighted_chi_squared_sf(critical, e, noncentrality=x**2 * gains) - power, critical / (e @ gains)
    )


def _crossing(increasing: Callable[[float], float], squared_guess: float) -> float:
    """Where a function of a distance, negative at zero, becomes positive."""
    high = float(np.sqrt(squared_guess))
    while increasing(high) < 0:
        high *= 2
    return float(brentq(increasing, 0.0, high, xtol=1e-9 * high, rtol=1e-7))
