"""A posterior of smooth features: the most plausible population on clouds of rows, by maximum entropy under noise.

A mixture p of clouds minimises ½‖y − Aᵀp‖²_{R⁻¹} + KL(p‖q)/κ (Dudík, Phillips & Schapire 2007), which also says what κ is.
Derivation: tutorials/derivations.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import eigh
from scipy.sparse import csr_array
from scipy.special import logsumexp

from kmeanalyst.inference.posterior.equations import Equations
from kmeanalyst.inference.posterior.feature_covariance import FeatureCovariance
from kmeanalyst.inference.posterior.posterior import EvenDepartures, Posterior, validation
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.embedding import row_blocks
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.features.principal import principal_directions
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.measurement import Measurement, feature_mean
from kmeanalyst.representation.near_rows import clouds_around

_DIRECTIONS = 250
_NEWTON_STEPS, _ENOUGH = 100, 1e-6  # a step that would gain less than this ends a fit
_DOUBT = 3.0  # standard errors of κ
_LEAST_NOISE = 1e-5  # relative to the bound of the features: with less no population of so few clouds agrees
_OUTSIDE = 0.03  # share of the reference in the mass under which variances are taken


def around_clouds(measurement: Measurement, domain: Domain, points: Array, probabilities: Array) -> Posterior:
    """The posterior on clouds of rows near points (M, d); deterministic, some seconds at most."""
    rows, clouds, reference = clouds_around(domain, points, probabilities, np.random.default_rng(0))
    noise = max(measurement.noise_scale, _LEAST_NOISE * measurement.feature_map.norm_bound)  # as much as a fit can show
    m = int((np.diff(clouds.indptr) == 1).sum())  # clouds of one row, the first
    seen = _Seen.of(measurement.feature_map, rows[:m], reference[:m] / reference[:m].sum(), noise)
    A, target = clouds @ seen(rows), seen.vectors.T @ measurement.vector - seen.origin
    problem = _Problem(A, target, np.log(reference), noise**2, measurement.n_rows)
    p, second, kappa, finest, determined = problem.with_spread_from_evidence()
    finest *= validation(determined, clouds.T @ p)
    mass = (1 - _OUTSIDE) * p + _OUTSIDE * reference
    inverse = np.linalg.inv(kappa * _covariance(A, mass) + noise**2 * np.eye(A.shape[1]))
    equations = Equations(FeatureCovariance.of(csr_array(A), mass), kappa, noise**2, inverse)
    return Posterior(
        rows, seen, target, p, second, equations, EvenDepartures(mass, finest, reference - mass), 1.0,
        measurement.noise_scale, measurement.n_rows, clouds,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Seen:
    """Features (n, K) of rows along a reference's directions above the noise, less its mean."""

    feature_map: FeatureMap
    vectors: Array  # (F, K)
    origin: Array  # (K,)

    @classmethod
    def of(cls, feature_map: FeatureMap, rows: Array, mass: Array, noise: float) -> _Seen:
        along = principal_directions(feature_map, rows, mass, most=_DIRECTIONS)
        vectors = along.vectors[:, : max(2, int((along.variances > noise**2 / 2).sum()))]
        return cls(feature_map, vectors, vectors.T @ feature_mean(feature_map, rows, mass))

    def __call__(self, rows: Array) -> Array:
        blocks = row_blocks(len(rows), self.feature_map.width)
        return np.vstack([self.feature_map.compact(rows[block]) @ self.vectors for block in blocks]) - self.origin


@dataclass(frozen=True, eq=False)
class _Problem:
    """min over p of ½‖y − Aᵀp‖²_{R⁻¹} + KL(p‖q)/κ, solved for its dual β: p ∝ q exp(Aβ)."""

    A: Array
    target: Array
    log_reference: Array
    noise_variance: float
    n_rows: int

    def error(self, p: Array) -> Array:
        return self.noise_variance * np.eye(self.A.shape[1]) + _covariance(self.A, p) / self.n_rows

    def with_spread_from_evidence(self) -> tuple[Array, Array, float, float, float]:
        """(p, what a fit to p's own means would add, κ, κ′, γ): κ three standard errors above the fixed point of 2 KL(p‖q)/γ.

        Too small a κ makes errors too small.
        """
        p, dual, kappa = np.exp(self.log_reference), np.zeros(self.A.shape[1]), 1.0
        for _ in range(15):
            R = self.error(p)
            dual, p = self._solved(R, kappa, dual)
            ratios = np.maximum(eigh(_covariance(self.A, p), R, eigvals_only=True), 0.0)
            determined = float((kappa * ratios / (1 + kappa * ratios)).sum())
            entropy = float(p @ (np.log(np.maximum(p, 1e-300)) - self.log_reference))
            wanted = float(np.clip(2 * entropy / max(determined, 1e-9), 1e-6, 1e3))
            if abs(wanted / kappa - 1) < 0.05:
                break
            dual, kappa = dual * wanted / kappa, wanted
        cautious = kappa + _DOUBT / np.sqrt(((ratios / (1 + kappa * ratios)) ** 2).sum() / 2)
        dual, p = self._solved(R, cautious, dual * cautious / kappa)
        second = p - replace(self, target=self.A.T @ p)._solved(R, cautious, dual)[1]
        return p, second, cautious, self._spread_of_finest(dual, p, R, cautious), determined

    def _spread_of_finest(self, dual: Array, p: Array, R: Array, kappa: float) -> float:
        """κ′, the κ of the directions that are determined least, and together have half of γ: three standard errors above its most
        likely value, at most κ.

        What the measurement leaves open is assumed to depart as the finest features that it shows. Each departs by
        b ~ N(0, κ′ + r/c), c and r its variances in the population and in the measurement.
        """
        ratios, vectors = eigh(_covariance(self.A, p), R)
        ratios = np.maximum(ratios, 1e-12)
        settled = kappa * ratios / (1 + kappa * ratios)
        squares = ratios * (vectors.T @ (R @ dual)) ** 2 / settled**2
        last = np.cumsum(settled) <= settled.sum() / 2
        errors, squares = 1 / ratios[last], squares[last]
        spreads = kappa * np.geomspace(1e-6, 1, 400)[:, None]
        likelihood = -(np.log(spreads + errors) + squares / (spreads + errors)).sum(axis=1)
        likely = float(spreads[likelihood.argmax(), 0])
        return min(kappa, likely + _DOUBT / np.sqrt(((1 / (likely + errors)) ** 2).sum() / 2))

    def _solved(self, R: Array, kappa: float, dual: Array) -> tuple[Array, Array]:
        """Newton's method on the dual log Σ q exp(Aβ) − yᵀβ + βᵀRβ/2κ, halving steps that decrease it too little.

        ValueError where it does not end.
        """
        value, p = self._dual(dual, R, kappa)
        for _ in range(_NEWTON_STEPS):
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
        if decrease > _ENOUGH:
            raise ValueError(
                f"the population that agrees with the measurement was not found: after {_NEWTON_STEPS} steps the next one would "
                f'still gain {decrease:.1e}. Please report it with the file; view="signed" answers without it.'
            )
        return dual, p

    def _dual(self, dual: Array, R: Array, kappa: float) -> tuple[float, Array]:
        exponents = self.log_reference + self.A @ dual
        normaliser = logsumexp(exponents)
        return float(normaliser - self.target @ dual + dual @ R @ dual / (2 * kappa)), np.exp(exponents - normaliser)


def _covariance(A: Array, p: Array) -> Array:
    mean, root = p @ A, A * np.sqrt(p)[:, None]
    return root.T @ root - np.outer(mean, mean)  # a matrix times its own transpose: half of the work
