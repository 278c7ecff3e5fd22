"""Tests of independence in noisy tables: T = dᵀV⁻d with V from the noise and the sampling of the rows.

d is a table minus the product of its margins. To first order it is a linear function of the table that is 0 on all products of
margins, and d and the contrasts z_kl = u_kᵀ x v_l of the table x carry the same, u_k orthogonal to the first column's shares p
and v_l to the second's, q. Under independence z has covariance U' diag(p) U ⊗ V' diag(q) V / N from sampling, and from noise τ²
times that of equal shares. Both are diagonal for the right u and v (a generalised eigenvalue problem for each column): their
variances are λ_k μ_l/N + τ². So T = Σ z²/(λμ/N + τ²), asymptotically χ² with (r−1)(c−1) degrees of freedom.

T spreads its power over all contrasts. Where noise leaves few of them visible, more is found by a statistic that looks
where dependence is to be expected: the score statistic of a random density ratio f(a, b), smooth along columns with an
order. `weighted_test` adds both, each divided by its standard deviation under independence; the sum is Σ e χ²₁ exactly.

Given a third column the contrasts are those of each of its cells, and f is the same in all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import eigh
from scipy.stats import chi2

from kmeanalyst.inference.contingency.strata import Side, Strata
from kmeanalyst.inference.weighted_chi_squared import weighted_chi_squared_sf
from kmeanalyst.kernels.base import Array

_LEADING = 12  # functions of a column in the score statistic
_SMOOTH_OVER = 0.3  # share of the rows over which a density ratio is alike
_ROUNDING = 1e-12
_CONSTANT = "one side has a single value, and a constant is independent of all. Name other columns."


@dataclass(frozen=True, eq=False)
class Contrasts:
    """The contrasts of all strata, whitened: independent with mean 0 and variance 1 if the columns are independent.

    values      (Z, r−1, c−1) z over its standard deviation.
    deviations  of the same shape.
    first       (Z, r, r−1) u, and second (Z, c, c−1) v.
    """

    strata: Strata
    values: Array
    deviations: Array
    first: Array
    second: Array

    @classmethod
    def of(cls, strata: Strata) -> Contrasts:
        """ValueError where a column has a single cell."""
        if min(strata.tables.shape[1:]) < 2:
            raise ValueError(_CONSTANT)
        first, lam = _eigen(strata.first, strata.sides[0].merged)
        second, mu = _eigen(strata.second, strata.sides[1].merged)
        sampling = strata.shares[:, None, None] * lam[:, :, None] * mu[:, None, :] / strata.n_rows
        deviations = np.sqrt(sampling + strata.noise**2)
        values = np.einsum("zri,zrc,zcj->zij", first, strata.tables, second) / deviations
        return cls(strata, values, deviations, first, second)

    @property
    def degrees(self) -> int:
        """Degrees of freedom: Z (r−1)(c−1)."""
        return self.values.size

    @property
    def statistic(self) -> float:
        """T."""
        return float((self.values**2).sum())

    @property
    def pvalue(self) -> float:
        """Of T, by χ²."""
        return float(chi2.sf(self.statistic, self.degrees))

    @cached_property
    def directions(self) -> Array:
        """(Z (r−1)(c−1), k) what each function of a random density ratio adds to the whitened contrasts."""
        pooled = [self.strata.shares @ p / self.strata.shares.sum() for p in (self.strata.first, self.strata.second)]
        roots = [_root(p, side) for p, side in zip(pooled, self.strata.sides, strict=True)]
        first = np.einsum("zri,zr,rk->zik", self.first, self.strata.first, roots[0])
        second = np.einsum("zcj,zc,cl->zjl", self.second, self.strata.second, roots[1])
        scale = self.strata.shares[:, None, None] / self.deviations
        return np.einsum("zij,zik,zjl->zijkl", scale, first, second).reshape(self.degrees, -1)


def _eigen(shares: Array, merged: Array) -> tuple[Array, Array]:
    """u (Z, r, r−1) orthogonal to p (Z, r) with uᵀ diag(merged) u = I and uᵀ diag(p) u = diag(λ), and λ (Z, r−1)."""
    found = []
    for p in shares:
        basis = np.linalg.svd(p[None])[2][1:].T
        values, vectors = eigh(basis.T @ (p[:, None] * basis), basis.T @ (merged[:, None] * basis))
        found.append((basis @ vectors, np.maximum(values, 0.0)))
    return np.array([u for u, _ in found]), np.array([values for _, values in found])


def _root(p: Array, side: Side) -> Array:
    """(r, k) a root of the covariance of a random function of the cells, the leading functions under shares p.

    Half of its variance is smooth along the cells with an order, the rest independent between cells.
    """
    ordered = np.isfinite(side.positions)
    safe = np.maximum(p, _ROUNDING)
    covariance = np.diag(1 / safe) / len(p)
    if ordered.sum() > 2:
        order = np.argsort(np.argsort(side.positions))
        middle = (np.cumsum(safe[np.argsort(side.positions)]) - safe[np.argsort(side.positions)] / 2)[order]
        smooth = np.exp(-0.5 * (np.subtract.outer(middle, middle) / _SMOOTH_OVER) ** 2)
        alike = np.where(np.outer(ordered, ordered), smooth, np.diag(np.ones(len(p))))
        covariance = (covariance + alike) / 2
    scale = np.sqrt(safe)
    values, vectors = np.linalg.eigh(scale[:, None] * covariance * scale)
    kept = np.argsort(-values)[:_LEADING]
    return vectors[:, kept] * np.sqrt(np.maximum(values[kept], 0.0)) / scale[:, None]


def weighted_test(contrasts: Contrasts) -> tuple[float, float]:
    """(statistic, p-value) of T and the score statistic together, each over its standard deviation."""
    s, Q = contrasts.values.ravel(), contrasts.directions
    degrees = len(s)
    e = np.sort(np.linalg.eigvalsh(Q.T @ Q if Q.shape[1] < degrees else Q @ Q.T))[::-1]
    e = np.maximum(e[:degrees], 0.0)
    spread = math.sqrt(float((e**2).sum()))
    if spread <= 0:
        return contrasts.statistic, contrasts.pvalue
    even, rest = 1 / math.sqrt(degrees), degrees - len(e)
    statistic = even * contrasts.statistic + float(((Q.T @ s) ** 2).sum()) / spread
    coefficients = np.append(even + e / spread, [even] * bool(rest))
    each = np.append(np.ones(len(e)), [float(rest)] * bool(rest))
    return statistic, weighted_chi_squared_sf(statistic, coefficients, degrees=each)


def mantel_haenszel(contrasts: Contrasts) -> tuple[float, int, float]:
    """(statistic, degrees of freedom, p-value) of the generalised Cochran–Mantel–Haenszel test of a common association.

    The differences d of all strata are added (Landis, Heyman & Koch 1978), with the covariance that sampling and noise give them.
    """
    strata = contrasts.strata
    own = [
        np.kron(differences(u, p)[:-1], differences(v, q)[:-1])
        for u, v, p, q in zip(contrasts.first, contrasts.second, strata.first, strata.second, strict=True)
    ]
    together = np.hstack([L * sd.ravel() for L, sd in zip(own, contrasts.deviations, strict=True)])
    d = together @ contrasts.values.ravel()
    statistic = float(d @ np.linalg.solve(together @ together.T, d))
    return statistic, len(d), float(chi2.sf(statistic, len(d)))


def departures(contrasts: Contrasts) -> tuple[Array, Array]:
    """(Z, r, c) tables less the products of their margins, to first order, and their standard deviations under independence."""
    strata, z = contrasts.strata, contrasts.values * contrasts.deviations
    d, deviations = np.empty_like(strata.tables), np.empty_like(strata.tables)
    for k, (u, v, p, q) in enumerate(zip(contrasts.first, contrasts.second, strata.first, strata.second, strict=True)):
        first, second = differences(u, p), differences(v, q)
        d[k] = first @ z[k] @ second.T
        deviations[k] = np.sqrt(first**2 @ contrasts.deviations[k] ** 2 @ (second**2).T)
    return d, deviations


def differences(u: Array, p: Array) -> Array:
    """(r, r−1) L with L uᵀ x = x − p Σ x, for every x (r,)."""
    inverse = u @ np.linalg.inv(u.T @ u)
    return inverse - np.outer(p, inverse.sum(axis=0))
