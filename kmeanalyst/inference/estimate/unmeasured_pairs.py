"""How far answers may depart where tables of pairs were not measured (noisy scores bound it), or where a relation is expected.

A score is the L1 distance u of a pair's table from what the release assumed of it, with normal noise. Before it is seen u is
exponential with a mean in proportion to r = Σ √E over the cells' shares E; all pairs' scores give the proportion. A pair's own κ
= π/2 E[u²]/r², times 9 for events, which add departures of one sign. No event departs by more than half of the distance. Where a
relation is expected, as of a coefficient, the population may depart along its influence by a correlation of deviation ½.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, compress

import numpy as np
from scipy.special import log_ndtr

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import ChosenMargins
from kmeanalyst.releases.measurement import Measurement

_OF_EVENTS = 9.0  # squared departure of an event, relative to that of independent cells
_CAUTION = 2.0  # of what is usual: few relations are strong and most are weak
_SCALES = np.geomspace(1e-4, 1.0, 200)  # of distances, relative to r
_BOUND = 1.96  # standard errors of a bound


@dataclass(frozen=True, eq=False)
class UnmeasuredPairs:
    """The pairs whose tables were not measured, and κ of each.

    cells     (d, n) of each column, of each row.
    weights   (n,) of the rows.
    sizes     number of cells of each column.
    pairs     the columns of each pair's table: the target first, if there is one.
    spreads   (P,) κ of each pair.
    most      (P,) the most that the distance may be, as far as its score says.
    squared   (P,) squared distance as its score alone says.
    usual     κ of an average pair's table, cells taken for independent.
    """

    cells: Array
    weights: Array
    sizes: tuple[int, ...]
    pairs: tuple[tuple[int, ...], ...]
    spreads: Array
    most: Array
    squared: Array
    usual: float

    @classmethod
    def of(cls, measurement: Measurement, rows: Array, weights: Array) -> UnmeasuredPairs | None:
        """None where all pairs were measured, or nothing was scored."""
        kernel = measurement.feature_map.kernel
        if not measurement.scores or not isinstance(kernel, ChosenMargins):
            return None
        kept = np.array([pair not in set(kernel.chosen) for pair in combinations(kernel.others, 2)])
        if not kept.any():
            return None
        cells = np.ascontiguousarray(kernel.cells(rows).T)
        roots = [
            float(np.sqrt(np.bincount(own, weights, minlength=size)).sum())
            for own, size in zip(cells, kernel.sizes, strict=True)
        ]
        with_target = (kernel.target,) if kernel.target >= 0 else ()
        pairs = [(*with_target, i, j) for i, j in combinations(kernel.others, 2)]
        expected = np.array([math.prod(roots[j] for j in pair) for pair in pairs])
        last = measurement.scores[-1]
        scores = last.noisy / (last.step * measurement.n_rows)
        noise = measurement.noise_scale * measurement.grid_steps / last.step
        squared = squared_distances(scores, noise, expected)
        return cls(
            cells=cells, weights=weights, sizes=kernel.sizes, pairs=tuple(compress(pairs, kept)),
            spreads=_OF_EVENTS * math.pi / 2 * (squared / expected**2)[kept],
            most=np.maximum(scores + _BOUND * noise, 0.0)[kept],
            squared=_second_moments(scores / noise, noise)[kept],
            usual=_CAUTION * math.pi / 2 * squared[kept].sum() / (expected[kept] ** 2).sum(),
        )  # fmt: skip

    def covariance(self, rest: Array, ranges: Array, known: float) -> Array:
        """(k, k) what these pairs add to κ Cov of the part of functions that is not measured.

        rest     (n, k) what the features do not explain of the functions, of mean 0.
        ranges   (k,) of the functions.
        known    κ that all of this part already has.
        """
        added = np.zeros((rest.shape[1], rest.shape[1]))
        for i, (_, means, between, own) in enumerate(self._between_cells(rest)):
            wanted = np.minimum(self.spreads[i] * own, (self.most[i] * ranges / (2 * _BOUND)) ** 2)
            factor = np.sqrt(np.maximum(wanted - known * own, 0.0) / np.maximum(between, 1e-300))
            scaled = factor[:, None] * means
            added += scaled @ scaled.T
        return added

    def of_relation(self, rest: Array, ranges: Array) -> Array:
        """(k,) variance of what is not measured of functions as in `covariance`, if a relation of their main pair is expected."""
        largest = np.zeros(rest.shape[1])
        for i, (shares, means, between, own) in enumerate(self._between_cells(rest)):
            size = np.sqrt(shares) @ np.abs(means.T) * np.sqrt(own / np.maximum(between, 1e-300))
            shift = self.squared[i] * np.divide(own, size, out=np.zeros_like(own), where=size > 0) ** 2
            bound = np.minimum(own, (self.most[i] * ranges / (2 * _BOUND)) ** 2)  # the first: a correlation of 1
            largest = np.maximum(largest, np.minimum(shift, bound))
        return largest

    def _between_cells(self, rest: Array) -> Iterator[tuple[Array, Array, Array, Array]]:
        """For each pair its cells' shares (c,), means (k, c) there times their roots, the variance (k,), and that beyond chance."""
        weighted = np.ascontiguousarray((self.weights[:, None] * rest).T)
        total = (weighted.T * rest).sum(axis=0)
        for columns in self.pairs:
            places, shares = self._places(columns), self._shares[columns]
            used = shares > 0
            sums = np.array([np.bincount(places, own, minlength=len(shares))[used] for own in weighted])
            means = sums / np.sqrt(shares[used])
            between = (means**2).sum(axis=1)
            cells = means.shape[1]
            chance = (cells - 1) * np.maximum(total - between, 0.0) / max(len(rest) - cells, 1)
            yield shares[used], means, between, np.maximum(between - chance, 0.0)

    def prior_draws(self, k: int, rng: np.random.Generator, known: float) -> tuple[Array, float]:
        """(n, k) draws of the departures of these pairs' tables, and κ of what they add by chance to functions of other columns.

        known    κ that all of what is not measured already has.
        """
        n = len(self.weights)
        drawn, chance = np.zeros((n, k)), 0.0
        for columns, spread in zip(self.pairs, self.spreads, strict=True):
            places, shares = self._places(columns), self._shares[columns]
            more, cells = max(float(spread) - known, 0.0), int((shares > 0).sum())
            scale = np.sqrt(more / np.where(shares > 0, shares, np.inf))
            drawn += (scale[:, None] * rng.standard_normal((len(shares), k)))[places]
            chance += more * (cells - 1) / max(n - cells, 1)
        drawn *= self.weights[:, None]
        return drawn - self.weights[:, None] * drawn.sum(axis=0), chance

    def _places(self, columns: tuple[int, ...]) -> Array:
        places = self.cells[columns[0]]
        for j in columns[1:]:
            places = places * self.sizes[j] + self.cells[j]
        return places

    @cached_property
    def _shares(self) -> dict[tuple[int, ...], Array]:
        return {
            pair: np.bincount(self._places(pair), self.weights, minlength=math.prod(self.sizes[j] for j in pair))
            for pair in self.pairs
        }


def squared_distances(scores: Array, noise: float, expected: Array) -> Array:
    """(P,) posterior means of squared distances, from scores (P,) with normal noise, exponential with means ∝ `expected`."""
    means = _SCALES[:, None] * expected
    shifted = (scores - noise**2 / means) / noise
    likelihood = (noise**2 / (2 * means**2) - scores / means - np.log(means) + log_ndtr(shifted)).sum(axis=1)
    return _second_moments(shifted[likelihood.argmax()], noise)


def _second_moments(centres: Array, noise: float) -> Array:
    """E u² (P,) of normal u around these centres, in units of the noise, cut off at 0."""
    hazard = np.exp(-0.5 * centres**2 - 0.5 * math.log(2 * math.pi) - log_ndtr(centres))
    return noise**2 * (1 + centres**2 + centres * hazard)


VARIANCE_OF_CORRELATION = 0.25  # of a correlation of which nothing is known


def left_open(variance: Array, share: Array, error: Array) -> Array:
    """(k,) variance of what an answer leaves open of an expected relation: (1 − s)²/(1/(Var h/4) + s²/v).

    variance   (k,) Var h of the influences, as far as the measurement could show it.
    share      (k,) s in [0, 1] that the answers follow of it.
    error      (k,) v, variance of their errors otherwise; positive where the share is.

    >>> left_open(np.array([4.0, 4.0, 4.0]), np.array([0.0, 0.5, 1.0]), np.array([0.0, 0.25, 0.1]))
    array([1.   , 0.125, 0.   ])
    """
    prior = VARIANCE_OF_CORRELATION * variance
    followed = share**2 * prior
    with_noise = followed + error
    unknown = prior * np.divide(error, with_noise, out=np.ones_like(prior), where=with_noise > 0)
    return (1 - share) ** 2 * unknown
