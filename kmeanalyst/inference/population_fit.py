"""Room 4: populations that a measurement allows, the most plausible one and others beside it (METHODS §5).

A population is a mixture p of small clouds of rows: rows as they are, and rows blurred by two widths, all of them near
the released points or anywhere in the domain. The measurement y pulls p away from a reference q, and relative entropy
holds it there: p minimises ½‖y − Aᵀp‖²_{R⁻¹} + KL(p‖q)/κ, R = τ²I + Cov_p A/N being noise and sampling. That is the
maximum entropy method under noise, its dual smooth and of as few dimensions as there are directions above the noise
(Dudík, Phillips & Schapire 2007); blurred clouds carry nearly all of q, so that a density is smooth unless the
measurement says otherwise. κ is read off the measurement by empirical Bayes: MacKay's update, κ = 2 KL(p‖q)/γ with γ
the number of directions that the measurement settles.

The error of a question h has then three sources. aᵀφ is the part of h that the measurement settles: it brings the
noise, τ‖a‖; the table is a sample of N rows, √(Var h/N). The rest of h is free but for q: √(κ Var(h − aᵀφ)). What the
method itself bends (a maximum is no mean) shows when measurements drawn from p are fitted again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigh
from scipy.special import logsumexp

from kmeanalyst.inference.compatible import CompatiblePopulations
from kmeanalyst.inference.noise_aware import principal
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.embedding import row_blocks
from kmeanalyst.kernels.features import FeatureMap
from kmeanalyst.releases.columns import Number
from kmeanalyst.releases.domain import Domain
from kmeanalyst.releases.measurement import Measurement, feature_mean
from kmeanalyst.releases.release import Release

_EVEN, _SHARP, _BROAD = 300, 280, 420  # clouds: anywhere, near the points, near their columns' laws
_SHARES = (0.2, 0.2, 0.6)  # of the reference that these have
_KEPT = (0.9, 0.5)  # of a near row's cells that are of one point; the others are of another
_SPREAD = (0.01, 0.1)  # of a column's range, by which they are moved
_BLURS = (0.04, 0.1)  # of a column's range: widths of the blurred clouds
_AS_IT_IS = 0.01  # of the reference's mass: clouds of a single row
_COPIES = 8  # rows of a blurred cloud
_DIRECTIONS = 200
_REPLICATES = 30
_DOUBT = 2.0  # standard errors of κ
_OUTSIDE = 0.03  # of the rest's variance is taken under the reference, which also lies where the fit has no mass
_BESIDE_ATOM = 0.002  # of a column's range: a fitted cell this near to an atom stands for it


@dataclass(frozen=True, eq=False)
class PopulationFit:
    """The most plausible population, and what decides how far the truth may be from it.

    rows        (n, d) encoded: m single rows, then m blurred clouds of _COPIES rows, for each of the widths.
    weights     (n,) p of each row: probabilities.
    replicates  (n_clouds, B) p fitted to measurements drawn from the population.
    """

    rows: Array
    weights: Array
    replicates: Array
    coordinates: Array  # (n_clouds, K) A: features of the clouds along the directions, centred under p
    clouds: Array  # (n_clouds,) p
    reference: Array  # (n_clouds,) q
    factor: Any  # Cholesky of Cov_p A + R/κ
    noise_scale: float
    n_rows: int
    spread: float  # κ
    compatible: CompatiblePopulations  # on the first row of each cloud

    def cloud_means(self, values: Array) -> Array:
        """Values (n, k) at the rows → (n_clouds, k) means over each cloud."""
        m = len(self.clouds) // (1 + len(_BLURS))
        blurred = values[m:].reshape(len(_BLURS), _COPIES, m, -1).mean(axis=1)
        return np.vstack([values[:m], blurred.reshape(len(_BLURS) * m, -1)])

    def first_rows(self, values: Array) -> Array:
        """Values (n, ...) at the rows → (n_clouds, ...) at the first row of each cloud."""
        m = len(self.clouds) // (1 + len(_BLURS))
        return np.concatenate([values[:m], *(values[m * (1 + i * _COPIES) :][:m] for i in range(len(_BLURS)))])

    def parts(self, influence: Array) -> dict[str, Array]:
        """Standard errors (k,) by source of statistics with these influence functions (n, k) at the rows."""
        p, (h, a, seen, refitted) = self.clouds[:, None], self._split(influence)
        variance = self.weights @ (influence - self.weights @ influence) ** 2
        privacy = self.noise_scale**2 * np.einsum("ik,ik->k", a, a)
        excess = refitted.var(axis=0, ddof=1) - privacy - (p * seen**2).sum(axis=0) / self.n_rows
        bent = refitted.mean(axis=0) ** 2 + np.maximum(excess, 0.0)
        free = self.spread * (self._mass * (h - seen) ** 2).sum(axis=0)
        return {
            "privacy": np.sqrt(privacy),
            "sampling": np.sqrt(variance / self.n_rows),
            "resolution": np.sqrt(free + bent),
        }

    def covariance(self, influence: Array) -> dict[str, Array]:
        """Joint covariances (k, k) by source of such statistics: the squares of `parts` are their diagonals."""
        p, (h, a, seen, refitted) = self.clouds[:, None], self._split(influence)
        centred = influence - self.weights @ influence
        privacy = self.noise_scale**2 * a.T @ a
        around = refitted - refitted.mean(axis=0)
        excess = around.T @ around / (len(refitted) - 1) - privacy - (p * seen).T @ seen / self.n_rows
        bent = np.outer(refitted.mean(axis=0), refitted.mean(axis=0)) + _positive_part(excess)
        return {
            "privacy": privacy,
            "sampling": (self.weights[:, None] * centred).T @ centred / self.n_rows,
            "resolution": self.spread * (self._mass * (h - seen)).T @ (h - seen) + bent,
        }

    def _split(self, influence: Array) -> tuple[Array, Array, Array, Array]:
        """Of the clouds' centred means h (n_clouds, k): a (K, k), what is seen of h, and the refitted means (B, k)."""
        h, p = self.cloud_means(influence), self.clouds[:, None]
        h = h - (p * h).sum(axis=0)
        a = cho_solve(self.factor, self.coordinates.T @ (p * h))
        return h, a, self.coordinates @ a, self.replicates.T @ h

    @property
    def _mass(self) -> Array:
        """(n_clouds, 1) what the unseen part of a question is averaged over."""
        return (1 - _OUTSIDE) * self.clouds[:, None] + _OUTSIDE * self.reference[:, None]


def fit_population(release: Release, measurement: Measurement) -> PopulationFit:
    """The population fit of a release; deterministic, some seconds at most."""
    rng = np.random.default_rng(0)
    singles, reference = _singles(release, rng)
    rows = [
        singles,
        *(np.vstack([_blurred(release.domain, singles, width, rng) for _ in range(_COPIES)]) for width in _BLURS),
    ]
    each_row, target = _coordinates(measurement, rows, reference)
    A = np.vstack([part.reshape(-1, len(singles), part.shape[1]).mean(axis=0) for part in each_row])
    shares = np.array([_AS_IT_IS, *[(1 - _AS_IT_IS) / len(_BLURS)] * len(_BLURS)])
    problem = _Problem(A, target, np.log(np.kron(shares, reference)), measurement.noise_scale**2, measurement.n_rows)
    dual, p, kappa = problem.with_spread_from_evidence()
    R = problem.error(p)
    curvature = _covariance(A, p) + R / kappa
    factor = cho_factor(curvature)
    drawn = (A.T @ p)[:, None] + np.linalg.cholesky(R) @ rng.standard_normal((A.shape[1], _REPLICATES))
    m = len(singles)
    each = [p[:m], *(np.tile(part / _COPIES, _COPIES) for part in p[m:].reshape(len(_BLURS), m))]
    return PopulationFit(
        rows=np.vstack(rows),
        weights=np.concatenate(each),
        replicates=problem.refitted(drawn, dual, R, kappa, factor),
        coordinates=A - p @ A,
        clouds=p,
        reference=np.exp(problem.log_reference),
        factor=factor,
        noise_scale=measurement.noise_scale,
        n_rows=measurement.n_rows,
        spread=kappa,
        compatible=CompatiblePopulations(
            coordinates=np.vstack([part[:m] for part in each_row]) - target,
            errors=np.sqrt(measurement.noise_scale**2 + np.diag(_covariance(A, p)) / measurement.n_rows),
        ),
    )


# ---------------------------------------------------------------- rows


def _singles(release: Release, rng: np.random.Generator) -> tuple[Array, Array]:
    """Rows (m, d) and the reference's mass (m,) on them.

    Released points were fitted to the noise: a reference of nothing but them would leave the measurement nothing to
    say, and κ would vanish. Hence rows whose columns are mostly independent, far more blurred, and even draws.
    """
    points, p = _on_atoms(release.domain, release.encoded_points), release.view_weights("probability")
    near = [
        _blurred(release.domain, _exchanged(points, p, n, kept, rng), spread, rng)
        for n, kept, spread in zip((_SHARP, _BROAD), _KEPT, _SPREAD, strict=True)
    ]
    parts = [release.domain.draw(_EVEN, rng), *near]
    mass = [np.full(len(part), share / len(part)) for part, share in zip(parts, _SHARES, strict=True)]
    return np.vstack(parts), np.concatenate(mass)


def _on_atoms(domain: Domain, rows: Array) -> Array:
    """Cells hardly beside a declared atom moved onto it: the features hardly tell the two, and mass is declared there."""
    rows = rows.copy()
    for j, column in enumerate(domain.columns):
        if isinstance(column, Number):
            low, high = column.bounds
            for atom in column.atom_codes:
                rows[np.abs(rows[:, j] - atom) < _BESIDE_ATOM * (high - low), j] = atom
    return rows


def _exchanged(points: Array, p: Array, n: int, kept: float, rng: np.random.Generator) -> Array:
    """n rows: each cell of one drawn point with chance `kept`, else of another."""
    home, other = (points[rng.choice(len(p), n, p=p / p.sum())] for _ in range(2))
    return np.where(rng.random(home.shape) < kept, home, other)


def _blurred(domain: Domain, rows: Array, width: float, rng: np.random.Generator) -> Array:
    """Numbers moved by a normal of that share of the range, reflected at the bounds; atoms, levels, missing cells stay."""
    out = rows.copy()
    for j, column in enumerate(domain.columns):
        if isinstance(column, Number):
            low, high = column.bounds
            moved = np.abs(rows[:, j] + width * (high - low) * rng.standard_normal(len(rows)) - low) + low
            moved = np.clip(np.where(moved > high, 2 * high - moved, moved), low, high)
            stay = ~np.isfinite(rows[:, j]) | np.isin(rows[:, j], column.atom_codes)
            out[:, j] = np.where(stay, rows[:, j], column.rounded(moved))
    return out


def _coordinates(measurement: Measurement, rows: list[Array], reference: Array) -> tuple[list[Array], Array]:
    """Features of the rows (n, K) and the measurement (K,), along the reference's directions above the noise."""
    feature_map, singles = measurement.feature_map, rows[0]
    along = principal(feature_map, singles, reference, most=_DIRECTIONS)
    above = max(2, int((along.variances > measurement.noise_scale**2 / 2).sum()))
    vectors = along.vectors[:, :above]
    origin = vectors.T @ feature_mean(feature_map, singles, reference)
    return [_projected(feature_map, part, vectors) - origin for part in rows], vectors.T @ measurement.vector - origin


def _projected(feature_map: FeatureMap, rows: Array, vectors: Array) -> Array:
    return np.vstack([feature_map.compact(rows[block]) @ vectors for block in row_blocks(len(rows), feature_map.width)])


# ---------------------------------------------------------------- the fit


@dataclass(frozen=True, eq=False)
class _Problem:
    """min over p of ½‖y − Aᵀp‖²_{R⁻¹} + KL(p‖q)/κ, solved for its dual β: p ∝ q exp(Aβ)."""

    A: Array
    target: Array
    log_reference: Array
    noise_variance: float
    n_rows: int

    def error(self, p: Array) -> Array:
        """R = τ²I + Cov_p A/N."""
        return self.noise_variance * np.eye(self.A.shape[1]) + _covariance(self.A, p) / self.n_rows

    def with_spread_from_evidence(self) -> tuple[Array, Array, float]:
        """(β, p, κ), κ two standard errors above the fixed point of κ = 2 KL(p‖q)/γ.

        What is too little rather than too much spread makes error bars too narrow; where the measurement says hardly
        anything the fixed point is near 0, and the standard errors are all there is.
        """
        p, dual, kappa = np.exp(self.log_reference), np.zeros(self.A.shape[1]), 1.0
        for _ in range(15):
            R = self.error(p)
            dual, p = self._solved(R, kappa, dual)
            C = _covariance(self.A, p)
            settled = float(np.trace(np.linalg.solve(kappa * C + R, kappa * C)))
            entropy = float(p @ (np.log(np.maximum(p, 1e-300)) - self.log_reference))
            wanted = float(np.clip(2 * entropy / max(settled, 1e-9), 1e-6, 1e3))
            if abs(wanted / kappa - 1) < 0.05:
                break
            dual, kappa = dual * wanted / kappa, wanted
        ratios = eigh(C, R, eigvals_only=True)
        cautious = kappa + _DOUBT / np.sqrt(((ratios / (1 + kappa * ratios)) ** 2).sum() / 2)
        return *self._solved(R, cautious, dual * cautious / kappa), cautious

    def _solved(self, R: Array, kappa: float, dual: Array) -> tuple[Array, Array]:
        """Newton's method on the dual log Σ q exp(Aβ) − yᵀβ + βᵀRβ/2κ, halving steps that do not pay."""
        value, p = self._dual(dual, R, kappa)
        for _ in range(100):
            slope = self.A.T @ p - self.target + R @ dual / kappa
            step = np.linalg.solve(_covariance(self.A, p) + R / kappa, slope)
            decrease, length = float(slope @ step), 1.0
            if decrease < 1e-10:
                break
            tried, at = self._dual(dual - step, R, kappa)
            while tried > value - 1e-4 * length * decrease and length > 1e-6:
                length /= 2
                tried, at = self._dual(dual - length * step, R, kappa)
            dual, value, p = dual - length * step, tried, at
        return dual, p

    def _dual(self, dual: Array, R: Array, kappa: float) -> tuple[float, Array]:
        exponents = self.log_reference + self.A @ dual
        normaliser = logsumexp(exponents)
        return float(normaliser - self.target @ dual + dual @ R @ dual / (2 * kappa)), np.exp(exponents - normaliser)

    def refitted(self, drawn: Array, dual: Array, R: Array, kappa: float, factor: Any) -> Array:
        """p (n_clouds, B) for each target (K, B), all at once: one curvature, a step length for each."""
        duals, length = np.repeat(dual[:, None], drawn.shape[1], axis=1), np.ones(drawn.shape[1])

        def values(at: Array) -> tuple[Array, Array]:
            exponents = self.log_reference[:, None] + self.A @ at
            normaliser = logsumexp(exponents, axis=0)
            penalty = (at * (R @ at)).sum(axis=0) / (2 * kappa)
            return normaliser - (drawn * at).sum(axis=0) + penalty, np.exp(exponents - normaliser)

        value, p = values(duals)
        for _ in range(80):
            slope = self.A.T @ p - drawn + R @ duals / kappa
            step = cho_solve(factor, slope)
            decrease = (slope * step).sum(axis=0)
            if decrease.max() < 1e-4:
                break
            tried, at = values(duals - length * step)
            better = tried <= value - 1e-4 * length * decrease
            duals = np.where(better, duals - length * step, duals)
            value, p = np.where(better, tried, value), np.where(better, at, p)
            length = np.where(better, np.minimum(1.5 * length, 1.0), length / 2)
        return p


def _covariance(A: Array, p: Array) -> Array:
    mean = p @ A
    return (A * p[:, None]).T @ A - np.outer(mean, mean)


def _positive_part(S: Array) -> Array:
    """A positive semi-definite matrix with the diagonal of S, cut off at 0, from a symmetric S (k, k)."""
    eigenvalues, vectors = np.linalg.eigh(S)
    positive = (vectors * np.maximum(eigenvalues, 0.0)) @ vectors.T
    scale = np.sqrt(np.maximum(np.diag(S), 0.0) / np.maximum(np.diag(positive), 1e-300))
    return scale[:, None] * positive * scale
