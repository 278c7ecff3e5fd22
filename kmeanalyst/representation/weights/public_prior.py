"""A prior for the table's mean from public rows, and the posterior mean given the noisy mean.

M rows of the same population have a uniform mean b with μ − b ~ N(0, Cov/M). As the rows may be biased or too alike, the size of
this prior, and a second part of another shape, are averaged over: where the measurement contradicts it, the noisy mean counts.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from kmeanalyst.kernels.base import Array

_INFLATIONS = np.geomspace(0.25, 256, 21)  # factors on the variance that the central limit theorem gives
_SECOND_SIZES = 32
_SECOND_SHAPES = (0.0, 0.5, 2.0)  # powers of the eigenvalues: any; rougher than the sample; smoother
_NEGLIGIBLE = 1e-9  # share of the posterior
_CLOSE = 0.2  # share of the noise on one coordinate: adds 2 % to the least possible error
_RIDGES = np.geomspace(1e-14, 1.0, 340)  # ridges, as shares of the trace; smaller ones are lost in rounding


def posterior_of_public(features: Array, vector: Array, noise_scale: float, *, n_rows: int) -> tuple[Array, float]:
    """E[μ | vector] (F,), where vector = μ + noise and the prior of μ comes from public rows; and its error.

    features      (M, F) of the public rows.
    vector        (F,) noisy mean of n_rows rows; noise_scale its standard deviation on each coordinate.

    In the eigenvectors of the rows' covariance, with eigenvalues e, z = vector − b is N(0, v + τ²), v = p·e·(1/M + 1/N) + q·e^a.
    The mean v/(v + τ²)·z of μ − b and its variance are averaged over (p, q, a) by their posterior probabilities.
    """
    baseline = features.mean(axis=0)
    eigenvalues, vectors = _spectrum(features, baseline)
    z = vectors.T @ (vector - baseline)
    expected = eigenvalues * (1 / len(features) + 1 / n_rows)
    trust = _trust(z, eigenvalues, expected, noise_scale**2)
    return baseline + vectors @ (trust * z), noise_scale * float(np.sqrt(trust.sum()))


def _spectrum(features: Array, baseline: Array) -> tuple[Array, Array]:
    """Eigenvalues (F,) and eigenvectors of the rows' covariance, with a pseudo-row of weight 1/M that varies in all directions."""
    m, dimension = features.shape
    centred = features - baseline
    eigenvalues, vectors = np.linalg.eigh(centred.T @ centred)
    isotropic = float((features**2).sum()) / (m * dimension)
    return (np.maximum(eigenvalues, 0.0) + isotropic / m) / (m - 1 + 1 / m), vectors


def _trust(z: Array, eigenvalues: Array, expected: Array, noise_variance: float) -> Array:
    weighted = [
        (log_prior - 0.5 * float((np.log(v + noise_variance) + z**2 / (v + noise_variance)).sum()), v)
        for log_prior, v in _variances(eigenvalues, expected, noise_variance, largest=float((z**2).sum()))
    ]
    evidence = np.exp(np.array([log for log, _ in weighted]) - max(log for log, _ in weighted))
    evidence /= evidence.sum()
    return np.sum([p * v / (v + noise_variance) for p, (_, v) in zip(evidence, weighted, strict=True) if p > _NEGLIGIBLE], axis=0)


def _variances(eigenvalues: Array, expected: Array, noise_variance: float, *, largest: float) -> Iterator[tuple[float, Array]]:
    """(log prior probability, prior variances (F,)): p = 1, q = 0 with probability ½.

    Else p is likely near 1 (density min(p, 1/p) on the logarithmic scale), a is any of its values, and q is 0 or, as likely at
    each step of a logarithmic scale, from hardly any noise to all of |vector − b|².
    """
    yield np.log(0.5), expected
    shares = np.minimum(_INFLATIONS, 1 / _INFLATIONS)
    shares *= 0.5 / (shares.sum() * len(_SECOND_SHAPES) * _SECOND_SIZES)
    sizes = np.geomspace(1e-3 * noise_variance, max(noise_variance, largest), _SECOND_SIZES - 1)
    relative = eigenvalues / max(float(eigenvalues.max()), 1e-300)
    for power in _SECOND_SHAPES:
        shape = relative**power
        for inflation, share in zip(_INFLATIONS, shares, strict=True):
            for size in (0.0, *sizes):
                yield float(np.log(share)), inflation * expected + size * shape


def ridge_to_uniform(features: Array, coordinates: Array, noise_scale: float) -> tuple[Array, float]:
    """Weights (M,) with Σ w_m φ(z_m) close to these coordinates (F,), each as near to 1/M as possible; and λ.

    features   (M, F) of rank F, such as those of the points that a Nystroem basis was chosen from.

    w minimises ½‖Σ w_m φ(z_m) − coordinates‖² + ½λ‖w − 1/M‖² with the largest λ whose residual is at most a fifth of the noise
    scale:
    w = 1/M + Φx with (ΦᵀΦ + λ)x = coordinates − mean φ and residual λx.
    """
    missing = coordinates - features.mean(axis=0)
    second_moment = features.T @ features
    ridges = _RIDGES * float(np.trace(second_moment))
    low, high = 0, len(ridges)
    while high - low > 1:  # the residual grows with the ridge
        middle = (low + high) // 2
        norm = np.linalg.norm(_ridge_solution(second_moment, missing, ridges[middle]))
        too_far = ridges[middle] * norm > _CLOSE * noise_scale
        low, high = (low, middle) if too_far else (middle, high)
    ridge = float(ridges[low])
    return 1 / len(features) + features @ _ridge_solution(second_moment, missing, ridge), ridge


def _ridge_solution(A: Array, b: Array, ridge: float) -> Array:
    shifted = A.copy()
    shifted[np.diag_indices_from(shifted)] += ridge
    return cho_solve(cho_factor(shifted, lower=True, overwrite_a=True, check_finite=False), b, check_finite=False)
