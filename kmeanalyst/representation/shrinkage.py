"""Kernel means shrunk towards zero, or towards a public guess. Post-processing: no privacy is spent.

For an analyst's own sample: the kernel mean shrinkage estimators of Muandet, Sriperumbudur, Fukumizu, Gretton & Schölkopf
(2016, JMLR 17). "Simple" uses one factor for all directions, "flexible" shrinks more where the sample varies less; the
amount minimises the leave-one-out error, in closed form. For a release: the noisy mean, shrunk by the known noise
(James & Stein 1961). Points and weights are not made this way: `public_prior` (public rows) and `denoise` (random
features) shrink each direction separately, towards more than one point; tests/benchmarks/shrinkage.py compares.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from kmeanalyst.kernels import Kernel, KernelMean
from kmeanalyst.kernels.base import Array, as_rows
from kmeanalyst.releases.measurement import Measurement

Shrinkage = Literal["simple", "flexible"]
_MOST_ROWS = 5000  # more have too large a Gram matrix to decompose
_RIDGES = np.geomspace(1e-10, 1e3, 400)  # ridges, in units of the mean eigenvalue and in steps of 8 %


def shrunk_mean(kernel: Kernel, rows: Array, *, how: Shrinkage = "flexible") -> KernelMean:
    """An estimate of the population's embedding, on average nearer to it than the sample's own mean embedding.

    rows      (n, d) encoded, n ≥ 2, independent.
    how       "simple" (S-KMSE: all weights (1 − α)/n) or "flexible" (F-KMSE: weights (K + λ)⁻¹K·1/n).
    Returns   KernelMean on the rows, with weights that sum to less than 1.
    Errors    ValueError for one row, or more than 5000 for "flexible".
    Source    Muandet et al. 2016, §3-5.

    >>> from kmeanalyst.kernels import Gaussian
    >>> mean = shrunk_mean(Gaussian(1.0), [[0.0], [0.5], [3.0]], how="simple")
    >>> [round(float(w), 4) for w in mean.weights]
    [0.1587, 0.1587, 0.1587]
    """
    rows = as_rows(rows)
    if how not in ("simple", "flexible"):
        raise ValueError(
            f"how must be simple or flexible, got {how!r:.80}: these two are known to help. Name one of them."
        )
    if len(rows) < 2:
        raise ValueError(
            f"{len(rows)} rows do not show how much they vary, so none can be left out. Pass at least two."
        )
    if how == "flexible":
        return KernelMean(kernel, rows, _flexible_weights(kernel, rows))
    return KernelMean(kernel, rows, np.full(len(rows), (1 - simple_shrinkage(kernel, rows)) / len(rows)))


def simple_shrinkage(kernel: Kernel, rows: Array) -> float:
    """The α in [0, 1] that minimises the leave-one-out error of (1 − α)·(mean of the other rows), in the RKHS.

    With ϱ = (1/n) Σ k(x_i, x_i) and ρ = (1/n²) ΣΣ k(x_i, x_j) it is (ϱ − ρ)/((n − 2)ρ + ϱ/n), at most 1.
    """
    rows = as_rows(rows)
    n, diagonal = len(rows), float(kernel.diagonal(rows).mean())
    square = KernelMean(kernel, rows).squared_norm()
    below = (n - 2) * square + diagonal / n
    return float(np.clip((diagonal - square) / below, 0.0, 1.0)) if below > 0 else 1.0


def _flexible_weights(kernel: Kernel, rows: Array) -> Array:
    """(K + λ)⁻¹K·1/n with the λ of least leave-one-out error."""
    n = len(rows)
    if n > _MOST_ROWS:
        raise ValueError(
            f"flexible shrinkage decomposes a matrix of {n} × {n} numbers, and does so for {_MOST_ROWS} rows at most. "
            'Pass how="simple", which gives nearly the same for so many rows.'
        )
    eigenvalues, vectors = np.linalg.eigh(kernel.gram(rows, rows))
    eigenvalues, ones = np.maximum(eigenvalues, 0.0), vectors.sum(axis=0)
    ridges = _RIDGES * float(eigenvalues.mean())
    scores = [left_out_error(eigenvalues, ones, ridge) for ridge in ridges]
    gain = eigenvalues / (eigenvalues + ridges[int(np.argmin(scores))])
    return vectors @ (gain * ones) / n


def left_out_error(eigenvalues: Array, ones: Array, ridge: float) -> float:
    """Mean over rows i of ‖Σ_j β_j k(x_j, ·) − k(x_i, ·)‖², where β = (K + ridge)⁻¹K·1₋ᵢ/(n − 1) leaves out row i.

    eigenvalues   d (n,) of K; ones: u (n,), the sums of its eigenvectors' entries.

    In the eigenbasis, with s = d/(d + ridge)/(n − 1), row i adds Σ_k d_k (s_k(u_k − U_ik) − U_ik)²; and Σ_i U_ik = u_k,
    Σ_i U_ik² = 1.
    """
    n = len(eigenvalues)
    s = eigenvalues / (eigenvalues + ridge) / (n - 1)
    return float((eigenvalues * ((n * s**2 - 2 * s * (s + 1)) * ones**2 + (s + 1) ** 2)).sum() / n)


def shrunk_vector(measurement: Measurement, *, towards: Array | None = None) -> Array:
    """The noisy mean y (F,) shrunk towards a public guess, by the known noise (positive-part James-Stein).

    towards   (F,) the guess: zero (default), or the mean feature of public rows or of uniform draws from the domain.
    Errors    ValueError for a guess of another shape.

    For any table and any guess made without looking at y, E‖shrunk − mean‖² < E‖y − mean‖² = F·τ² (Gaussian noise,
    F > 2). The gain is larger for a better guess, and negligible where ‖mean − guess‖² is much larger than F·τ².

    >>> ka.shrunk_vector(release.measurement).shape
    (1000,)
    """
    y = measurement.vector
    guess = np.zeros_like(y) if towards is None else np.asarray(towards, dtype=np.float64)
    if guess.shape != y.shape:
        raise ValueError(
            f"the guess must have one number per feature, {y.shape}, got {guess.shape}. Pass a mean feature."
        )
    square = float(((y - guess) ** 2).sum())
    noise = max(0, len(y) - 2) * measurement.noise_scale**2
    return guess + (max(0.0, 1 - noise / square) if square > 0 else 0.0) * (y - guess)
