"""Noisy tables of some pairs of columns, completed for latent classes: what is not observed is nearly as a tree implies.

Left alone, classes invent relations between columns whose pair was not measured. So every pair has pseudo-observations of the
tree's table E, with the deviation τ E^0.65 of a cell: weakly for measured pairs, where τ follows from how far the noisy table
is from E, and more strongly for the others, where it follows from the noisy score of the pair, if there is one.
"""

from __future__ import annotations

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.representation.mixture.latent_classes import ObservedShares
from kmeanalyst.representation.tables.estimates import Observed, TableEstimates
from kmeanalyst.representation.tables.tree import implied_tables

_POWER = 0.65  # of a cell's share, in the deviation of its pseudo-observation
_MEASURED, _UNMEASURED = 0.01, 0.3  # weights of pseudo-observations
_DISTANCE = 1.25  # deviation over mean |deviation|
_LEAST_DISTANCE = 0.02  # L1 distance of a pair's table from the tree's, at least
_SMALLEST = 1e-4  # share of a cell in the deviation of its pseudo-observation: less would take many more steps to fit


def completed_shares(
    measurement: Measurement, observed: Observed, estimates: TableEstimates
) -> dict[str, ObservedShares]:
    """Observations and pseudo-observations of all tables of one and two columns, for `fit_classes_to`."""
    ends = np.concatenate([[0], np.cumsum(observed.sizes)])
    width, values = int(ends[-1]), observed.values
    twos, precision = np.zeros((values, width, width)), np.zeros((values, width, width))
    distances = _scored_distances(measurement)
    implied = implied_tables(estimates.tree, estimates.pairs)
    for n, (pair, guess) in enumerate(sorted(implied.items())):
        shares, weight = _completed(guess, observed.pairs.get(pair), distances[n] if len(distances) else 0.0)
        (i, j), block = pair, np.s_[:, ends[pair[0]] : ends[pair[0] + 1], ends[pair[1]] : ends[pair[1] + 1]]
        twos[block], precision[block] = shares, weight
        across = np.s_[:, ends[j] : ends[j + 1], ends[i] : ends[i + 1]]
        twos[across], precision[across] = shares.swapaxes(1, 2), weight.swapaxes(1, 2)
    found = {"pairs by target" if values > 1 else "pairs": ObservedShares(twos, _deviation(precision))}
    ones = np.hstack(estimates.ones)  # with what all tables say of it; the noise is that of the one-way tables
    noise = [_noise_of_one(observed, j) * np.ones(size) for j, size in enumerate(observed.sizes)]
    found["one-way by target" if values > 1 else "one-way"] = ObservedShares(ones, np.concatenate(noise))
    if values > 1:
        least = min(variance for _, variance in observed.target)
        found["target"] = ObservedShares(estimates.target, least**0.5)
    return found


def _completed(guess: Array, measured: tuple[Array, float] | None, distance: float) -> tuple[Array, Array]:
    """Shares (Y, a, b) of a pair and the precision of each, from its noisy table, if there is one, and the guess."""
    powers = np.maximum(guess, _SMALLEST) ** _POWER
    least = _DISTANCE * _LEAST_DISTANCE / powers.sum()
    if measured is None:
        spread = max(_DISTANCE * distance / powers.sum(), least)
        return guess, _UNMEASURED / (spread * powers) ** 2
    shares, variance = measured
    excess = float(((shares - guess) ** 2 - variance).sum() / (powers**2).sum())
    prior = _MEASURED / (max(excess, least**2) * powers**2)
    precision = prior + 1 / variance
    return (shares / variance + prior * guess) / precision, precision


def _scored_distances(measurement: Measurement) -> Array:
    """For all pairs √(score² − noise²) of the last scores, in shares; empty without scores."""
    if not measurement.scores:
        return np.zeros(0)
    last = measurement.scores[-1]
    whole = last.step * measurement.n_rows
    score, noise = last.noisy / whole, _grid_noise(measurement) / whole
    return np.sqrt(np.maximum(score**2 - noise**2, 0.0))


def _grid_noise(measurement: Measurement) -> float:
    """Standard deviation of the noise in steps of the grid."""
    return measurement.noise_scale * measurement.n_rows * measurement.grid_steps


def _noise_of_one(observed: Observed, j: int) -> float:
    variances = [variance for _, variance in (observed.ones[j] if observed.values > 1 else observed.alone[j])]
    return float((1 / sum(1 / variance for variance in variances)) ** 0.5)


def _deviation(precision: Array) -> Array:
    with np.errstate(divide="ignore"):
        return 1 / np.sqrt(precision)
