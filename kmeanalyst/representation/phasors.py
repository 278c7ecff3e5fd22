"""Room 3: a mean random Fourier feature as phasors: one complex number e^{ip} for each pair of cosine and sine."""

from __future__ import annotations

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features import RandomFourier


def as_phasors(mean: Array, features: RandomFourier) -> Array:
    """(F,) of a mean feature → (R,) complex, in units of one frequency's norm."""
    R = features.n_frequencies
    return (mean[:R] + 1j * mean[R:]) / _size(features)


def from_phasors(phasors: Array, features: RandomFourier) -> Array:
    """(R,) complex → (F,): the inverse of `as_phasors`."""
    return np.concatenate([phasors.real, phasors.imag]) * _size(features)


def _size(features: RandomFourier) -> float:
    """The norm of one frequency's cosine and sine."""
    return features.norm_bound / float(np.sqrt(features.n_frequencies))


def unit_phasors(phase: Array, log_size: Array | None = None) -> Array:
    """e^{ip} times e^{log size}, complex64; the phase is reduced in double precision first."""
    reduced = (phase - 2 * np.pi * np.rint(phase / (2 * np.pi))).astype(np.float32)
    out = np.empty(phase.shape, dtype=np.complex64)
    np.cos(reduced, out=out.real)
    np.sin(reduced, out=out.imag)
    if log_size is not None:
        out *= np.exp(log_size.astype(np.float32))
    return out
