"""The law of Σ e_i χ²₁: the null distribution of a quadratic form in normal variables."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr

from kmeanalyst.kernels.base import Array


def weighted_chi_squared_sf(statistic: float, coefficients: Array) -> float:
    """P(Σ e_i χ²₁ > statistic), by the saddlepoint approximation (Kuonen 1999; Lugannani & Rice 1980).

    coefficients   e (K,), non-negative, at least one positive.
    The relative error is a few per cent at most, in the far tail too.

    >>> round(weighted_chi_squared_sf(3.841, np.array([1.0, 0.0])), 3)   # one χ²₁: 0.050
    0.05
    """
    e = coefficients[coefficients > 1e-12 * coefficients.max(initial=0.0)]
    if len(e) == 0:
        raise ValueError("every coefficient is zero: the statistic has no spread. The two sides are constant.")
    if statistic <= 0:
        return 1.0
    if len(e) == 1:
        return float(2 * np.exp(log_ndtr(-np.sqrt(statistic / e[0]))))
    e, q = e / e.max(), statistic / e.max()
    t = _saddlepoint(e, q)
    if abs(t) * np.sqrt(2 * (e**2).sum()) < 1e-4:  # at the mean the formula is 0/0: its limit is linear in t
        low, high = (_lugannani_rice(e, e.sum() + s * 2e-3 * np.sqrt(2 * (e**2).sum())) for s in (-1, 1))
        return (low + high) / 2
    return _lugannani_rice(e, q)


def _saddlepoint(e: Array, q: float) -> float:
    """t with K′(t) = q, K(t) = −½ Σ log(1 − 2 e_i t), t < ½ (the largest e is 1)."""

    def slope(t: float) -> float:
        return float((e / (1 - 2 * e * t)).sum()) - q

    high = 0.5 - 0.25 / max(q, 1.0)  # slope(high) ≥ 1/(1 − 2·high) − q = 2·max(q, 1) − q > 0
    low = -0.5 * len(e) / q  # slope(low) ≤ len/(2|low|) − q = 0
    return float(brentq(slope, low, high, xtol=1e-15, rtol=1e-14, maxiter=300))


def _lugannani_rice(e: Array, q: float) -> float:
    t = _saddlepoint(e, q)
    cumulant = -0.5 * float(np.log1p(-2 * e * t).sum())
    curvature = 2 * float((e**2 / (1 - 2 * e * t) ** 2).sum())
    w = np.sign(t) * np.sqrt(2 * max(t * q - cumulant, 0.0))
    v = t * np.sqrt(curvature)
    # P = Φ̄(w + log(v/w)/w): Barndorff-Nielsen's form, always a probability
    return float(np.exp(log_ndtr(-(w + np.log(v / w) / w))))
