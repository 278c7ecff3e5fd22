"""A noisy one-way table, smoothed: softmax of logits under normal priors, averaged over priors by their evidence.

The priors are independent logits of several spreads, and random walks along the declared order of the cells. Where noise is
small the table is left as it is; where it is as large as the shares, neighbours share what is known of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import softmax

from kmeanalyst.kernels.base import Array

_SPREADS = (0.5, 1.0, 2.0, 3.0)  # standard deviations of independent logits
_STEPS = (0.1, 0.2, 0.4, 0.8)  # of random walks
_WIDEST = 3.0  # standard deviation of a walk's level
_NEWTON_STEPS = 50
_ENOUGH = 1e-8
_MOST_CELLS = 300  # of a table; larger ones are left to their projection


def smoothed_column(noisy: Array, variance: float) -> Array:
    """(Y, a) shares of sum 1: the average of the maxima a posteriori, weighted by Laplace's approximation of the evidence.

    noisy      (Y, a) with normal noise; a walk is along each line.
    """
    values = noisy.ravel()
    if len(values) > _MOST_CELLS or len(values) < 2:
        return noisy
    found, evidences = [], []
    for precision in _priors(*noisy.shape):
        shares, evidence = _most_plausible(values, variance, precision)
        found.append(shares)
        evidences.append(evidence)
    return (softmax(np.array(evidences)) @ np.array(found)).reshape(noisy.shape)


def _priors(lines: int, cells: int) -> Iterator[Array]:
    """Precisions (Y·a, Y·a) of logits."""
    for spread in _SPREADS:
        yield np.eye(lines * cells) / spread**2
    differences = np.diff(np.eye(cells), axis=0)
    for step in _STEPS if cells > 2 else ():
        walk = differences.T @ differences / step**2
        yield np.kron(np.eye(lines), walk) + np.eye(lines * cells) / _WIDEST**2


def _most_plausible(values: Array, variance: float, precision: Array) -> tuple[Array, float]:
    """The shares (cells,) that maximise the posterior, and the logarithm of the evidence; by damped Gauss-Newton steps."""
    logits = np.zeros(len(values))
    shares, lost = _loss(logits, values, variance, precision)
    for _ in range(_NEWTON_STEPS):
        slopes = np.diag(shares) - np.outer(shares, shares)
        gradient = slopes @ (shares - values) / variance + precision @ logits
        step = cho_solve(cho_factor(slopes @ slopes / variance + precision), gradient)
        length = 1.0
        while length > _ENOUGH:
            moved = logits - length * step
            others, loss = _loss(moved, values, variance, precision)
            if loss < lost:
                break
            length /= 2
        if length <= _ENOUGH or lost - loss < _ENOUGH:
            break
        logits, shares, lost = moved, others, loss
    slopes = np.diag(shares) - np.outer(shares, shares)
    curvature = np.linalg.slogdet(slopes @ slopes / variance + precision)[1]
    return shares, -lost + 0.5 * (np.linalg.slogdet(precision)[1] - curvature)


def _loss(logits: Array, values: Array, variance: float, precision: Array) -> tuple[Array, float]:
    shares = softmax(logits)
    return shares, 0.5 * float(((shares - values) ** 2).sum()) / variance + 0.5 * float(logits @ precision @ logits)
