"""What noisy scores say of the distances of pairs' tables from those of independent columns."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import log_ndtr

from kmeanalyst.kernels.base import Array

_SCALES = np.geomspace(1e-4, 1.0, 200)  # of distances, relative to r


def squared_distances(scores: Array, noise: float, expected: Array) -> Array:
    """(P,) posterior means of squared distances, from scores (P,) with normal noise, exponential with means ∝ `expected`."""
    means = _SCALES[:, None] * expected
    shifted = (scores - noise**2 / means) / noise
    likelihood = (noise**2 / (2 * means**2) - scores / means - np.log(means) + log_ndtr(shifted)).sum(axis=1)
    return _second_moments(shifted[likelihood.argmax()], noise)


def squares_beyond(scores: Array, noise: float, expected: Array, n_rows: int) -> Array:
    """(P,) E (u² − c²)₊ of the distances u of populations' tables, as scores alone say it.

    A score is the distance of the table's own N rows: those of unrelated columns have c = √(2/πN) Σ√E from chance, more or less
    by √((1 − 2/π)/N).
    """
    chance = expected * math.sqrt(2 / math.pi / n_rows)
    return _second_moments(scores / (noise := math.hypot(noise, math.sqrt((1 - 2 / math.pi) / n_rows))), noise, chance)


def _second_moments(centres: Array, noise: float, least: Array | float = 0.0) -> Array:
    """E (u² − least²)₊ (P,) of normal u around these centres, in units of the noise, cut off at 0."""
    ends, there = least / noise - centres, log_ndtr(centres)
    density = np.exp(-0.5 * ends**2 - 0.5 * math.log(2 * math.pi) - there)
    beyond = (1 + centres**2 - (least / noise) ** 2) * np.exp(log_ndtr(-ends) - there) + (2 * centres + ends) * density
    return noise**2 * np.maximum(beyond, 0.0)
