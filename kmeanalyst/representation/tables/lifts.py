"""Noisy tables, smoothed: how many times as frequent each cell is as a guess says, by the distribution of all cells' lifts.

Most lifts are near 1, some are 0 and few are large: the posterior mean under their own distribution, the nonparametric maximum
likelihood estimate on a grid (Kiefer & Wolfowitz 1956; Koenker & Mizera 2014), is far nearer than the noisy share.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kmeanalyst.kernels.base import Array

_LIFTS = np.concatenate([[0.0, 0.02, 0.05], np.geomspace(0.1, 64.0, 34)])
_WIDTH = 0.057  # a point of the grid stands for normal lifts around it, of this relative deviation: half a step
_POOLED_STEPS, _OWN_STEPS = 60, 30  # of expectation maximisation, over all tables and for each
_POOLED_CELLS = 5.0  # cells that the distribution over all tables counts for, in that of one table
_MOST_CELLS = 20_000  # from which the pooled distribution is estimated
_PROJECTIONS, _SCALINGS = 60, 20
_TINY = 1e-15


def smoothed_tables(noisy: Sequence[Array], guesses: Sequence[Array], noise: Sequence[float]) -> list[Array]:
    """The posterior mean of each table of shares.

    noisy    tables of any shapes, with normal noise of one deviation a table.
    guesses  likewise, at least 0.
    noise    the deviations.
    """
    if not noisy:
        return []
    likelihoods = [_likelihoods(*each) for each in zip(noisy, guesses, noise, strict=True)]
    together = np.concatenate(likelihoods)
    pooled = np.full(len(_LIFTS), 1 / len(_LIFTS))
    step = -(-len(together) // _MOST_CELLS)
    for _ in range(_POOLED_STEPS):
        pooled = _posterior(together[::step], pooled).mean(axis=0)
    weights = [_weights(likelihood, pooled) for likelihood in likelihoods]
    means = [_posterior_means(*each) for each in zip(noisy, guesses, noise, strict=True)]
    return [(w * m).sum(axis=1).reshape(guess.shape) for w, m, guess in zip(weights, means, guesses, strict=True)]


def _likelihoods(noisy: Array, guess: Array, noise: float) -> Array:
    means = guess.ravel()[:, None] * _LIFTS
    variances = noise**2 + (_WIDTH * means) ** 2
    logs = -0.5 * ((noisy.ravel()[:, None] - means) ** 2 / variances + np.log(variances))
    return np.exp(logs - logs.max(axis=1, keepdims=True))


def _posterior_means(noisy: Array, guess: Array, noise: float) -> Array:
    means = guess.ravel()[:, None] * _LIFTS
    spread = (_WIDTH * means) ** 2
    return means + spread / (noise**2 + spread) * (noisy.ravel()[:, None] - means)


def _posterior(likelihood: Array, prior: Array) -> Array:
    joint = likelihood * prior
    return joint / np.maximum(joint.sum(axis=1, keepdims=True), _TINY)


def _weights(likelihood: Array, pooled: Array) -> Array:
    own = pooled
    for _ in range(_OWN_STEPS):
        found = _posterior(likelihood, own)
        own = (found.sum(axis=0) + _POOLED_CELLS * pooled) / (len(found) + _POOLED_CELLS)
    return _posterior(likelihood, own)


def with_margins(table: Array, rows: Array, columns: Array, may: Array | bool = True) -> Array:
    """The nearest table with these margins and no negative cell, nearly; then scaled to the margins.

    table   (..., a, b); rows (..., a) and columns (..., b), of equal sums. Leading indices number separate tables.
    may     which cells may differ from 0.
    Source  Dykstra 1983; the scaling is iterative proportional fitting.
    """
    a, b = table.shape[-2:]
    left = np.zeros_like(table)
    for _ in range(_PROJECTIONS):
        table = table + ((rows - table.sum(axis=-1)) / b)[..., None]
        table = table + ((columns - table.sum(axis=-2)) / a)[..., None, :]
        moved = table + left
        table = np.where(may, np.maximum(moved, 0.0), 0.0)
        left = moved - table
    return scaled_to(table, rows, columns)


def scaled_to(table: Array, rows: Array, columns: Array) -> Array:
    """A table of no negative cell, scaled to margins: cells of 0 stay 0."""
    for _ in range(_SCALINGS):
        table = table * (rows / np.maximum(table.sum(axis=-1), _TINY))[..., None]
        table = table * (columns / np.maximum(table.sum(axis=-2), _TINY))[..., None, :]
    return table
