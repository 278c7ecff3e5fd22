"""A conditional exponential family, fitted to a noisy mean by Gauss and Newton.

    π(c | x) ∝ q(c) exp(Σ_r t_r(c) θ_rᵀψ(x))

c are the values (or bins) of one column, t their scores, ψ a basis on the other columns. θ minimises a misfit that the caller
defines (`Misfit`: half a squared distance in units of its error) plus ½ Σ_b ‖θ_b‖²/s_b². The prior standard deviation s_b of
each block b of θ is estimated from the measurement: MacKay 1992's update s_b² = ‖θ_b‖²/γ_b, γ_b the number of the block's
directions that the measurement determines, with one pseudo-direction of size 0.1, without which noise alone could give a
large s_b. So nothing needs tuning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.embedding import row_blocks

_PRECISIONS = (1e-2, 1e4)  # between which 1/s_b² stays
_PSEUDO_DIRECTIONS, _PSEUDO_SIZE = 1.0, 0.1  # prior observations of each s_b: their number, and the size of θ there


class Basis(Protocol):
    """ψ: (n, d) encoded rows → (n, P), a constant first; blocks (P,) are the functions' blocks, −1 for the constant."""

    blocks: Array

    def __call__(self, X: Array) -> Array: ...


class Misfit(Protocol):
    """Half the squared distance of the family's mean to the measurement, in units of its error."""

    def value(self, pi: Array) -> tuple[float, Array]:
        """The misfit at probabilities (n, C), and the residual."""

    def linearise(self, pi: Array, psi: Array, residual: Array) -> tuple[Array, Array]:
        """In θ, r slowest: the Gauss–Newton curvature (RP, RP) and the gradient (RP,)."""


@dataclass(frozen=True)
class FitRules:
    """When a fit ends, and its first prior.

    steps              the most steps.
    shortest_step      below which a step is no longer halved.
    change, gain       a fit has converged when no log precision changes by more, and the objective falls by less.
    first_precision    of all blocks.
    constant_precision of the constants; None treats them as one more block, whose precision is estimated too.
    """

    steps: int
    shortest_step: float
    change: float
    gain: float
    first_precision: float
    constant_precision: float | None


@dataclass(frozen=True, eq=False)
class ConditionalExponentialFamily:
    """A fitted π(c | x), and how well θ is known.

    scores      (C, R) t_r(c).
    log_base    (C,) log q(c).
    theta       (R, P).
    covariance  (RP, RP) of θ, r slowest: of the Gaussian approximation to the posterior at its mode.
    precision   (R, P) the estimated 1/s_b² of each block's prior.
    misfit      at the end of the fit.
    """

    basis: Basis
    scores: Array
    log_base: Array
    theta: Array
    covariance: Array
    precision: Array
    misfit: float

    def probabilities(self, X: Array) -> Array:
        """π (n, C) at encoded rows (n, d); the target's own values are not used."""
        parts = [self._probabilities(self.basis(X[block])) for block in self._rows(X)]
        return np.concatenate(parts or [np.zeros((0, len(self.log_base)))])

    def standard_errors(self, X: Array, values: Array) -> Array:
        """(n, k) of Σ_c π(c|x) v_c, for v (C, k): to first order in θ."""
        parts = [self._errors(self.basis(X[block]), values) for block in self._rows(X)]
        return np.concatenate(parts or [np.zeros((0, values.shape[1]))])

    def _probabilities(self, psi: Array) -> Array:
        return family_probabilities(psi, self.theta, self.scores, self.log_base)

    def _errors(self, psi: Array, values: Array) -> Array:
        pi, out = self._probabilities(psi), np.empty((len(psi), values.shape[1]))
        for k, v in enumerate(values.T):
            tilts = (pi * v) @ self.scores - (pi @ v)[:, None] * (pi @ self.scores)  # Cov_π(v, t_r), (n, R)
            slopes = (tilts[:, :, None] * psi[:, None, :]).reshape(len(psi), -1)
            out[:, k] = np.sqrt(np.maximum(np.einsum("ni,ni->n", slopes @ self.covariance, slopes), 0.0))
        return out

    def _rows(self, X: Array) -> list[slice]:
        return row_blocks(len(X), 2 * self.theta.size + len(self.basis.blocks))


def family_probabilities(psi: Array, theta: Array, scores: Array, log_base: Array) -> Array:
    """π (n, C) from ψ (n, P)."""
    exponents = log_base + psi @ theta.T @ scores.T
    exponents -= exponents.max(axis=1, keepdims=True)
    pi = np.exp(exponents)
    return pi / pi.sum(axis=1, keepdims=True)


def fit_family(
    basis: Basis, scores: Array, log_base: Array, X: Array, misfit: Misfit, rules: FitRules
) -> ConditionalExponentialFamily:
    """The family of least misfit and penalty, with basis functions of the encoded rows X (n, d); deterministic."""
    return _Fit(basis, scores, log_base, basis(X), misfit, rules).solve()


class _Fit:
    """Gauss–Newton steps, halved where they do not lower the objective, each followed by an update of the precisions."""

    def __init__(
        self, basis: Basis, scores: Array, log_base: Array, psi: Array, misfit: Misfit, rules: FitRules
    ) -> None:
        self.basis, self.scores, self.log_base, self.psi = basis, scores, log_base, psi
        self.misfit, self.rules = misfit, rules
        self.theta = np.zeros((scores.shape[1], psi.shape[1]))
        self.precision = np.full(self.theta.shape, rules.first_precision)
        if rules.constant_precision is not None:
            self.precision[:, basis.blocks < 0] = rules.constant_precision

    def solve(self) -> ConditionalExponentialFamily:
        rules = self.rules
        pi, value, residual = self._state(self.theta)
        for _ in range(rules.steps):
            curvature, gradient = self.misfit.linearise(pi, self.psi, residual)
            factor = cho_factor(curvature + np.diag(self.precision.ravel()))
            step = cho_solve(factor, gradient + (self.precision * self.theta).ravel()).reshape(self.theta.shape)
            before = value + self._penalty(self.theta)
            length, gained = 1.0, 0.0
            while length > rules.shortest_step:
                theta = self.theta - length * step
                state = self._state(theta)
                after = state[1] + self._penalty(theta)
                if after <= before:
                    self.theta, (pi, value, residual), gained = theta, state, before - after
                    break
                length /= 2
            covariance = cho_solve(factor, np.eye(self.theta.size))
            change = self._update_precisions(np.diag(covariance).reshape(self.theta.shape))
            if change < rules.change and gained < 1e-5 * abs(before) + rules.gain:
                break
        return ConditionalExponentialFamily(
            self.basis, self.scores, self.log_base, self.theta, covariance, self.precision, value
        )

    def _state(self, theta: Array) -> tuple[Array, float, Array]:
        """π, the misfit and the residual."""
        pi = family_probabilities(self.psi, theta, self.scores, self.log_base)
        return pi, *self.misfit.value(pi)

    def _penalty(self, theta: Array) -> float:
        return 0.5 * float((self.precision * theta**2).sum())

    def _update_precisions(self, variances: Array) -> float:
        """MacKay's update of each block's precision for each score; the largest change of a logarithm."""
        largest, blocks = 0.0, self.basis.blocks
        for b in range(-1 if self.rules.constant_precision is None else 0, blocks.max() + 1):
            own = blocks == b
            for theta, precision, variance in zip(self.theta, self.precision, variances, strict=True):
                old = precision[own][0]
                determined = max(float((1 - old * variance[own]).sum()), 1e-3)
                new = (determined + _PSEUDO_DIRECTIONS) / (
                    float((theta[own] ** 2).sum()) + _PSEUDO_DIRECTIONS * _PSEUDO_SIZE**2
                )
                precision[own] = new = float(np.clip(new, *_PRECISIONS))
                largest = max(largest, abs(np.log(new / old)))
        return largest
