"""The regression behind conditional distributions: the conditional mean embedding of one release.

Kernel ridge regression with the release's weights in place of 1/n: ĝ = b + h minimises Σ w_i (f_i − ĝ(x_i))² + λ‖h‖²
(Song et al. 2009; Grünewälder et al. 2012; Fukumizu, Song & Gretton 2013). The constant b is not penalised, so that the
weights α(x) in ĝ(x) = Σ α_i(x) f_i sum to one. The ridge is iterated once, on its residuals: this removes the first order
of its bias (twicing; Stuetzle & Mittal 1979).

With φ = (1, coordinates of k(x, ·) in the span of the points), A = Σ w φφᵀ, D the identity but for 0 at the constant and
G = (A + λD)⁻¹:   θ₁ = G Σ w φ f,   θ₂ = θ₁ + G Σ w φ (f − φᵀθ₁),   ĝ = φᵀθ₂.
A row z of weight δ moves them by dθ₁ = Gφ(z)(f(z) − φ(z)ᵀθ₁) and dθ₂ = Gφ(z)(f(z) − φ(z)ᵀθ₂) + λGD dθ₁, which is the
influence function. For f = φᵀθ without noise the two steps give φᵀ(1 − (λGD)²)θ: the remaining bias is φᵀ(λGD)²θ,
estimated to first order with θ₂ in place of θ.

The regulariser is public: λ = (1/N + 1/M)/3 + τ/(√3 B). Along a function of unit norm and variance μ the data err by μσ²/N as N
rows, by μσ²/M as M points, and by τ²σ²/B² for the noise, σ² being the residual's variance; a signal of variance s² there has
μ²s². The two are equal where μ is about (σ²/s²)(1/N + 1/M) + (σ/s)τ/B; there a ridge should cut (Bayes: λ = σ²/Ns²).
σ²/s² = 1/3 is a choice, rather too small than too large: intervals then depend less on the estimated bias. Given a
condition of probability c there are cN rows, cM points and noise τ/c: λ/c.

Measured (tests/benchmarks/conditional_expectation.py): with ten times this λ smooth curves are biased until intervals miss
them; so they are with N^-¼, the rate of theory for unknown smoothness, and a little with N^-½. A tenth of it costs some
variance. A kernel with all scales of the table kernel, down to 1/256 of the range, follows the noise: two to seven times
the error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from kmeanalyst.inference.estimate.population import Population, population_of, released_view
from kmeanalyst.inference.questions.amplitude import Amplitudes, amplitudes
from kmeanalyst.kernels import Kernel, MultiScale, SoftenedProduct
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.embedding import row_blocks
from kmeanalyst.kernels.features.nystroem import Nystroem
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import kernel_from_spec, table_kernel
from kmeanalyst.releases.release import Question, ReleaseData, View

_COARSEST = 8.0  # 1/8 of a column's range: no dependence on a smaller scale is fitted
_RESIDUAL_OVER_SIGNAL = 1 / 3  # variances, assumed
_BASIS = 500  # at most so many points span the functions
_SPAN = 1e-6  # squared distance to the span, at which a point adds nothing


def public_regulariser(release: ReleaseData) -> float:
    """λ = (1/N + 1/M)/3 + τ/(√3 B); without a measurement 1/3M alone, the points being taken for rows."""
    ratio, measurement = _RESIDUAL_OVER_SIGNAL, release.measurement
    if measurement is None:
        return ratio / len(release)
    noise = measurement.noise_scale / measurement.feature_map.norm_bound
    return ratio * (1 / measurement.n_rows + 1 / len(release)) + ratio**0.5 * noise


def smooth_kernel(domain: Domain) -> Kernel:
    """The table kernel of some columns without the lengthscales below an eighth of a column's range."""
    parts = []
    for part, column in zip(table_kernel(domain).kernels, domain.columns, strict=True):  # type: ignore[attr-defined]
        if isinstance(part, MultiScale):
            low, high = column.bounds  # type: ignore[attr-defined]
            coarse = [length for length in part.lengthscales if length >= (high - low) / _COARSEST * 0.999]
            part = MultiScale(lengthscales=tuple(coarse or part.lengthscales[-1:]))
        parts.append(part)
    return SoftenedProduct(kernels=tuple(parts), inclusion=0.5)


@dataclass(frozen=True, eq=False)
class Smoother:
    """The regression on some columns of a population, for any question about the others.

    population   in the view that is used.
    conditioning the columns that are given.
    basis        coordinates of k(x, ·).
    features     (n, r + 1) φ at the rows of population.model.frame.
    regulariser  λ.
    notes        what every answer should say.
    """

    population: Population
    conditioning: Domain
    basis: Nystroem
    features: Array
    regulariser: float
    notes: tuple[str, ...] = ()

    @cached_property
    def _factor(self) -> Any:
        return cho_factor(_moments(self.population, self.features) + self.regulariser * self._penalty)

    @cached_property
    def _penalty(self) -> Array:
        return np.diag(np.r_[0.0, np.ones(self.features.shape[1] - 1)])

    def _step(self, right: Array) -> Array:
        """G right."""
        return cho_solve(self._factor, right)

    def _kept(self, theta: Array) -> Array:
        """λ G D θ: the part of θ that one step of the ridge leaves out."""
        return self.regulariser * self._step(self._penalty @ theta)

    def at(self, rows: Array) -> Array:
        """φ (q, r + 1) at encoded rows of the conditioning columns."""
        return _with_constant(self.basis(rows))

    def weights(self, at: Array) -> Array:
        """α (q, M) for φ (q, r + 1): ĝ(x) = Σ α_i(x) f_i; each row sums to one."""
        v, points = self.population.weights, self.features[: len(self.population.release)]
        once = self._step(at.T)
        return (points @ (once + self._kept(once))).T * v

    def amplitudes(self, at: Array) -> Amplitudes | None:
        """What the measurement says of the amplitude of conditional means at φ (q, r + 1)."""
        once = self._step(at.T)
        return amplitudes(self.population, self.conditioning.names, self.features @ (once + self._kept(once)))

    def fitted(self, values: Array) -> tuple[Array, Array]:
        """(θ₁, θ₂) for f (n,) at the rows of the frame."""
        points = slice(len(self.population.release))
        first = self._step(self.features[points].T @ (self.population.weights * values[points]))
        return first, first + self._kept(first)

    def answers(self, values: Array, at: Array) -> tuple[Array, Array, Array]:
        """ĝ (q,), its influence functions (n, q), and its remaining bias (q,), to first order."""
        first, second = self.fitted(values)
        once = self._step(at.T)
        derivative = (self.features @ once) * (values - self.features @ second)[:, None]
        derivative += (self.features @ self._kept(once)) * (values - self.features @ first)[:, None]
        left = at @ (self._kept(self._kept(second)))
        return at @ second, self.population.influence(derivative), left

    def unknown(self, at: Array) -> Array:
        """(q,) share of the prior variance at x that the release leaves: 0 between its points, 1 far from them."""
        prior = (at[:, 1:] ** 2).sum(axis=1)
        return self.regulariser * np.einsum("qr,rq->q", at, self._step(at.T)) / np.maximum(prior, 1e-12)


def smoother(
    release: ReleaseData,
    columns: Sequence[str],
    *,
    where: Question | None,
    view: View | None,
    kernel: Kernel | str | None,
) -> Smoother:
    """The regression on these columns; if the released weights allow none, in the probability view, with a note."""
    if view == "fitted":
        raise ValueError(
            "a conditional distribution is of the released points, and the fitted population has other rows. Ask for "
            'view="signed" or "probability".'
        )
    conditioning = Domain(tuple(release.columns[name] for name in columns))
    chosen = smooth_kernel(conditioning) if kernel is None else kernel_from_spec(kernel, conditioning)
    asked = view or released_view(release)
    found = _regression(population_of(release, where=where, view=asked), conditioning, chosen)
    if _is_definite(found):
        return found
    if view is not None:
        raise ValueError(
            "the released weights are negative along some function of the given columns, by more than the regulariser: "
            'the regression has a saddle point and no minimum. Ask for view="probability".'
        )
    within = _regression(population_of(release, where=where, view="probability"), conditioning, chosen)
    note = "the released weights are negative along some function of the given columns: probability weights were used"
    return replace(within, notes=(note,))


def _regression(population: Population, conditioning: Domain, kernel: Kernel) -> Smoother:
    X = conditioning.encode(population.model.frame)
    points = np.unique(X[: len(population.weights)][population.weights != 0], axis=0)
    basis = Nystroem.fit(kernel, points[:: -(-len(points) // _BASIS)], tolerance=_SPAN)
    regulariser = public_regulariser(population.release) / population.probability
    coordinates = np.vstack([basis(X[block]) for block in row_blocks(len(X), basis.dimension)])
    return Smoother(population, conditioning, basis, _with_constant(coordinates), regulariser)


def _is_definite(found: Smoother) -> bool:
    """Whether the covariance of φ under the weights is above −λ/2, so that A + λD has a bounded inverse."""
    A = _moments(found.population, found.features)
    covariance = A[1:, 1:] - np.outer(A[1:, 0], A[0, 1:]) / A[0, 0]
    return A[0, 0] > 0 and float(np.linalg.eigvalsh(covariance)[0]) > -found.regulariser / 2


def _moments(population: Population, features: Array) -> Array:
    """A = Σ w φφᵀ."""
    points = features[: len(population.weights)]
    return (points * population.weights[:, None]).T @ points


def _with_constant(coordinates: Array) -> Array:
    return np.column_stack([np.ones(len(coordinates)), coordinates])
