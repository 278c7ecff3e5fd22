"""An estimate of the table's mean from the noisy mean of random Fourier features.

1. Probability weights on a few free points, fitted to the measurement: a first sketch (`reduced_set`).
2. A mixture of product distributions fitted to the measurement, from clusters of the sketch (`mixture`): few parameters
   follow little noise.
3. The posterior mean over mixtures, given the measurement (`posterior`).
4. Where the residual is larger than noise alone would make it, a Wiener step towards the measurement, along the directions
   in which draws of the mixture vary; marginal likelihood sets its size.

Public rows, if given, are a second estimate (`public_prior`), averaged with the first by precision: the mixture is precise
where the noise is small, the rows where they are many.

The result is an empirical-Bayes estimate. It is much better than shrinking the measurement itself (James & Stein; Muandet
et al. 2016): the noise is spread evenly over thousands of coordinates, the signal is not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.representation.mixture.component_laws import as_phasors, from_phasors
from kmeanalyst.representation.mixture.mixture import Mixture, MixtureFit, fit_mixture, mean_phasors
from kmeanalyst.representation.mixture.posterior import draw_posterior
from kmeanalyst.representation.points.reduced_set import reduced_set
from kmeanalyst.representation.progress import Progress, between, silent
from kmeanalyst.representation.wanted import FULL, Effort
from kmeanalyst.representation.weights.public_prior import posterior_of_public

_SKETCH_POINTS = 300
_DRAWS = 1500  # draws of the mixture, for the directions of the Wiener step
_RANK_TOLERANCE = 1e-10  # share of a Gram matrix's largest eigenvalue: smaller ones are left out
_STANDARD_ERRORS = 3.0  # the squared residual must exceed that of noise by so many for the Wiener step


@dataclass(frozen=True)
class Denoised:
    """An estimate of the table's mean feature, and a mixture with this mean.

    mean           (F,).
    posterior_sd   the expected distance between `mean` and the table's mean: the spread of the posterior.
    mixture        has this mean, except for the Wiener step and public rows.
    public         share of the public rows in the mean.
    """

    mean: Array
    posterior_sd: float
    mixture: Mixture
    public: float = 0.0


def denoise_measurement(
    measurement: Measurement,
    domain: Domain,
    *,
    public: Array | None = None,
    rng: np.random.Generator | int | None = None,
    effort: Effort = FULL,
    progress: Progress = silent,
) -> Denoised:
    """The mean feature of the table, estimated from its noisy measurement.

    public    (m, d) encoded public rows: the start of the sketch, and a second estimate.
    Errors    ValueError unless the measurement is of random Fourier features.
    """
    features = measurement.feature_map
    if not isinstance(features, RandomFourier):
        raise ValueError(
            "a measurement is denoised in random Fourier features, and this one is of other features. "
            "Give the points yourself, and fit weights on them with weights_for."
        )
    rng = np.random.default_rng(rng)
    parts = [between(low, high, progress) for low, high in ((0.0, 0.25), (0.25, 0.65), (0.65, 1.0))]
    points, weights = reduced_set(
        features, measurement.vector, domain, n_points=effort.of(_SKETCH_POINTS), start=public, rng=rng,
        effort=effort, enough=measurement.noise_scale, progress=lambda _, share: parts[0]("sketching", share),
    )  # fmt: skip
    noise = measurement.noise_scale / features.norm_bound
    search = MixtureFit(features, domain, as_phasors(measurement.vector, features), noise, effort)
    with threadpool_limits(limits=1, user_api="blas"):  # a second thread only slows thousands of small products
        mixture = fit_mixture(
            search, points=points[weights > 0], weights=weights[weights > 0], rng=rng,
            progress=lambda share: parts[1]("finding clusters", share),
        )  # fmt: skip
        posterior = draw_posterior(search, mixture, rng, progress=lambda share: parts[2]("weighing clusters", share))
    if posterior is None:
        phasors = mixture.weights @ mean_phasors(mixture, features.n_frequencies)
        posterior_sd = measurement.noise_scale * float(np.sqrt(len(mixture) * search.free))
    else:
        phasors, posterior_sd, mixture = posterior.phasors, posterior.spread * features.norm_bound, posterior.pooled
    mean = from_phasors(phasors, features)
    if not _explained(measurement, mean):
        mean, more = _wiener_step(measurement, mean, mixture.draw(effort.of(_DRAWS), rng))
        posterior_sd = float(np.hypot(posterior_sd, more))
    estimate = Denoised(mean, float(posterior_sd), mixture)
    return estimate if public is None else _with_public(estimate, measurement, public)


def _with_public(estimate: Denoised, measurement: Measurement, public: Array) -> Denoised:
    """The precision-weighted average of the estimate and of the posterior mean given public rows."""
    features = measurement.feature_map(public)
    _, basis = _principal_directions(features)
    inside, posterior_sd = posterior_of_public(
        features @ basis, basis.T @ measurement.vector, measurement.noise_scale, n_rows=measurement.n_rows
    )
    mean = basis @ inside
    if not _explained(measurement, mean):  # the public rows do not cover the table
        return estimate
    square = float(((mean - estimate.mean) ** 2).sum())  # larger than both variances: the rows' own is too small
    posterior_sd = max(posterior_sd, float(np.sqrt(max(square - estimate.posterior_sd**2, 0.0))))
    share = estimate.posterior_sd**2 / (estimate.posterior_sd**2 + posterior_sd**2)
    mean = share * mean + (1 - share) * estimate.mean
    return Denoised(mean, min(estimate.posterior_sd, posterior_sd), estimate.mixture, share)


def _explained(measurement: Measurement, mean: Array) -> bool:
    """Whether noise alone explains ‖y − mean‖²."""
    F, variance = len(mean), measurement.noise_scale**2
    square = float(((measurement.vector - mean) ** 2).sum())
    return square <= variance * (F + _STANDARD_ERRORS * np.sqrt(2 * F))


def _principal_directions(A: Array) -> tuple[Array, Array]:
    """The eigenvalues of AᵀA (n, F) that are not zero, and their orthonormal eigenvectors (F, rank)."""
    eigenvalues, U = np.linalg.eigh(A @ A.T)
    seen = eigenvalues > _RANK_TOLERANCE * eigenvalues[-1]
    return eigenvalues[seen], A.T @ (U[:, seen] / np.sqrt(eigenvalues[seen]))


def _wiener_step(measurement: Measurement, mean: Array, rows: Array) -> tuple[Array, float]:
    """The posterior mean under N(mean, q·Cov/N), with Cov of the rows' features and q by marginal likelihood; its error."""
    A = measurement.feature_map(rows)
    A = (A - A.mean(axis=0)) / np.sqrt(len(A))
    eigenvalues, directions = _principal_directions(A)
    z, noise = directions.T @ (measurement.vector - mean), measurement.noise_scale**2
    candidates = np.concatenate([[0.0], np.geomspace(1e-2, 1e7, 200)])
    variance = candidates[:, None] * eigenvalues / measurement.n_rows + noise
    q = candidates[np.argmin((np.log(variance) + z**2 / variance).sum(axis=1))]
    gain = q * eigenvalues / (q * eigenvalues + noise * measurement.n_rows)
    return mean + directions @ (gain * z), float(np.sqrt(noise * gain.sum()))
