"""min ½wᵀGw − bᵀw over a convex set of weights, solved to a duality gap: by accelerated projected gradients
(`minimise_quadratic`) or, where G is nearly singular and the gap small, by an interior-point method too (`solve_quadratic`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve, lapack

from kmeanalyst.kernels.base import Array

_DEFAULT_BOUNDS = {"bounded": 1.0, "signed": 2.0}
_MOST_STEPS = 5000
_FIRST_STEPS = 300  # steps of projected gradients before the first factorisation
_CHECK_EVERY = 10
_MOST_NEWTON_STEPS = 60
_STAY_INSIDE = 0.99  # longest step, as a share of the way to the boundary
_RANK_TOLERANCE = 1e-14
_LARGEST_CONDITION = 1e14


@dataclass(frozen=True)
class ConvexSet:
    """{w ≥ 0, Σ w = total}, or if signed {Σ|w| ≤ total}."""

    total: float
    signed: bool

    def project(self, v: Array) -> Array:
        return project_to_ball(v, self.total) if self.signed else self.total * project_to_simplex(v / self.total)

    def least(self, g: Array) -> float:
        return -self.total * float(np.abs(g).max()) if self.signed else self.total * float(g.min())


PROBABILITIES = ConvexSet(1.0, signed=False)


def default_set(view: str, bound: float | None = None) -> ConvexSet:
    """The set of "probability", "bounded" (Σ|w| ≤ bound, 1 by default) or "signed" weights (2 by default)."""
    if view == "probability":
        return PROBABILITIES
    return ConvexSet(_DEFAULT_BOUNDS[view] if bound is None else bound, signed=True)


def ridged_gram(features: Array, ridge: float) -> Array:
    """ΦΦᵀ + ridge·I, (M, M), of features (M, F)."""
    G = features @ features.T
    G[np.diag_indices_from(G)] += ridge
    return np.asarray(G)


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


def duality_gap(G: Array, b: Array, allowed: ConvexSet, w: Array) -> float:
    """An upper bound on ½wᵀGw − bᵀw minus its minimum over the set, and so on ½(w − w*)ᵀG(w − w*)."""
    gradient = G @ w - b
    return float(gradient @ w) - allowed.least(gradient)


def minimise_quadratic(
    G: Array, b: Array, allowed: ConvexSet, *, tolerance: float, start: Array | None = None,
    most_steps: int = _MOST_STEPS,
) -> Array:  # fmt: skip
    """argmin ½wᵀGw − bᵀw over the set: stops at a duality gap of `tolerance`, or after `most_steps`.

    G (M, M) positive semi-definite, b (M,). Accelerated projected gradient with restart (O'Donoghue & Candès 2015).
    """
    step = 1 / _largest_eigenvalue(G)
    w = momentum = np.full(len(b), allowed.total / len(b)) if start is None else allowed.project(start)
    t = 1.0
    for i in range(most_steps):
        new = allowed.project(momentum - step * (G @ momentum - b))
        if (momentum - new) @ (new - w) > 0:
            t = 1.0
        t_next = (1 + np.sqrt(1 + 4 * t * t)) / 2
        momentum = new + (t - 1) / t_next * (new - w)
        w, t = new, t_next
        if i % _CHECK_EVERY == 0 and duality_gap(G, b, allowed, w) <= tolerance:
            break
    return w


def _largest_eigenvalue(G: Array) -> float:
    """1.05 λ_max(G), by power iteration from a random start: a structured G may be orthogonal to a constant one."""
    v = np.random.default_rng(0).standard_normal(len(G))
    for _ in range(30):
        v = G @ v
        v /= max(float(np.linalg.norm(v)), 1e-300)
    return max(1.05 * float(v @ (G @ v)), 1e-300)


def solve_quadratic(G: Array, b: Array, allowed: ConvexSet, *, tolerance: float, start: Array | None = None) -> Array:
    """argmin ½wᵀGw − bᵀw over the set, to a duality gap of `tolerance`, or about 1e-13 of the largest G_mm · total²."""
    rough = minimise_quadratic(G, b, allowed, tolerance=tolerance, start=start, most_steps=_FIRST_STEPS)
    if duality_gap(G, b, allowed, rough) <= tolerance:
        return rough
    fine = _interior_point(G, b, allowed, tolerance)
    return min(fine, rough, key=lambda w: duality_gap(G, b, allowed, w))


def _interior_point(G: Array, b: Array, allowed: ConvexSet, tolerance: float) -> Array:
    """Mehrotra's predictor-corrector method (1992) for weights w = A x, x ≥ 0, Σ x = total, A the corners of the set.

    At the optimum the multipliers z ≥ 0 of x satisfy Aᵀ(G A x − b) = z + constant and x z = 0; each step aims at x z = a
    smaller constant.
    """
    R, atoms = _square_root(G), _Atoms(len(b), allowed.signed)
    step = 1 / _largest_eigenvalue(G)
    x = np.full(atoms.number, allowed.total / atoms.number)
    w = atoms.combine(x)
    gradient = G @ w - b
    along = atoms.inner(gradient)
    z = along - along.min() + max(float(np.ptp(along)), float(np.abs(along).max()), 1e-300)
    best, least_gap = w, np.inf
    for _ in range(_MOST_NEWTON_STEPS):
        x, z = _newton_step(R, atoms, x, z, atoms.inner(gradient))
        w = atoms.combine(x)
        gradient = G @ w - b
        clean = allowed.project(w - step * gradient)  # no worse, and exactly zero where the multiplier is positive
        gap = duality_gap(G, b, allowed, clean)
        if gap < least_gap:
            best, least_gap = clean, gap
        if least_gap <= tolerance or not np.isfinite(gap):
            break
    return best


class _Atoms:
    """The matrix A of atoms, (m, number): I, or (I, −I, 0) if signed."""

    def __init__(self, m: int, signed: bool) -> None:
        self.m, self.signed, self.number = m, signed, 2 * m + 1 if signed else m

    def combine(self, x: Array) -> Array:
        return x[: self.m] - x[self.m : -1] if self.signed else x

    def inner(self, g: Array) -> Array:
        return np.concatenate([g, -g, [0.0]]) if self.signed else g

    def diagonal(self, d: Array) -> Array:
        return d[: self.m] + d[self.m : -1] if self.signed else d


def _square_root(G: Array) -> Array:
    """R (m, rank) with R Rᵀ = G up to rounding."""
    factor, pivots, rank, _ = lapack.dpstrf(G, tol=_RANK_TOLERANCE * float(G.diagonal().max()), lower=1)
    R = np.empty((len(G), rank))
    R[pivots - 1] = np.tril(factor)[:, :rank]
    return R


def _newton_step(R: Array, atoms: _Atoms, x: Array, z: Array, gradient: Array) -> tuple[Array, Array]:
    """The next (x, z): a trial step towards x z = 0 gives the target of x z and the second-order correction."""
    most = _LARGEST_CONDITION / max(float((R**2).sum()), 1e-300)  # of d: keeps the factorisation accurate
    solve = _newton_solver(R, atoms, np.minimum(x / z, most))
    by_ones = solve(np.ones_like(x))
    unmet = z + float((gradient - z).mean()) - gradient

    def direction(change: Array) -> tuple[Array, Array]:
        """The Newton direction along which x z changes by `change`, and Σ x stays."""
        dx = solve(unmet + change / x)
        dx -= by_ones * (dx.sum() / by_ones.sum())
        return dx, (change - z * dx) / x

    dx, dz = direction(-x * z)
    length = _longest_step(x, z, dx, dz)
    now, ahead = float(x @ z), float((x + length * dx) @ (z + length * dz))
    aim = now / len(x) * min(1.0, ahead / now) ** 3
    dx, dz = direction(aim - x * z - dx * dz)
    length = _STAY_INSIDE * _longest_step(x, z, dx, dz)
    return x + length * dx, z + length * dz


def _newton_solver(R: Array, atoms: _Atoms, d: Array) -> Callable[[Array], Array]:
    """r ↦ (AᵀGA + D⁻¹)⁻¹ r with G = R Rᵀ and D = diag(d), by Woodbury: what is factorised has the size of G's rank."""
    scaled = np.sqrt(atoms.diagonal(d))[:, None] * R
    inner = scaled.T @ scaled
    inner[np.diag_indices_from(inner)] += 1.0
    factor = cho_factor(inner, lower=True, overwrite_a=True, check_finite=False)

    def solve(r: Array) -> Array:
        across = R @ cho_solve(factor, R.T @ atoms.combine(d * r), check_finite=False)
        return d * (r - atoms.inner(across))

    return solve


def _longest_step(x: Array, z: Array, dx: Array, dz: Array) -> float:
    return float(1 / max(1.0, (-dx / x).max(), (-dz / z).max()))
