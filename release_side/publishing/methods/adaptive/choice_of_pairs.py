"""Which pairs of columns a round measures, and what it spends on single columns again: what is expected to err least.

A distance u that is not measured is left; measured with noise e, u·e/√(u² + e²) is left, since the table is smoothed around the
guess. Distances are known from noisy scores, by empirical Bayes over all pairs. Derivation: tutorials/derivations.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.representation.tables.estimates import NOISE_IN_DISTANCE
from kmeanalyst.representation.tables.tree import Pair

MOST_DISTANCE = 2.0  # of two tables, in L1
_SHARES_OF_LARGEST = np.concatenate([[0.0], np.geomspace(0.005, 1.0, 40)])
_STEPS = 100  # of expectation maximisation
_KEPT = 0.55  # of a table's noise after smoothing, when it is compared with the distance
_OF_COLUMNS = 0.4  # of the columns' squared errors in that of a pair's table
_WEIGHT = 5.0  # of a pair's gain, since other pairs' tables follow from it in part
_COUNTS = 16  # numbers of pairs that are tried
_PARTS = np.linspace(0.0, 0.9, 7)  # parts of a round for single columns that are tried
_TINY = 1e-15


@dataclass(frozen=True, eq=False)
class Distances:
    """How far pairs' tables are from their guesses, in L1: in part by chance, in part since the columns are related.

    values          (P, G) of the second part, possible ones.
    probabilities   (P, G) of these.
    by_chance       (P,) the first part.
    """

    values: Array
    probabilities: Array
    by_chance: Array

    @classmethod
    def of_scores(cls, scores: Array, noise: float, *, largest: Array, by_chance: Array, of_guesses: Array) -> Distances:
        """The posterior given noisy scores (P,).

        noise        standard deviation of the scores' noise.
        largest      (P,) what the second part can be at most.
        of_guesses   (P,) distances of the guesses from what they would be without noise.
        """
        values = largest[:, None] * _SHARES_OF_LARGEST
        means = np.hypot(values, np.hypot(by_chance, of_guesses)[:, None])
        logs = -0.5 * ((scores[:, None] - means) / noise) ** 2
        likelihood = np.exp(logs - logs.max(axis=1, keepdims=True))
        prior = np.full(len(_SHARES_OF_LARGEST), 1 / len(_SHARES_OF_LARGEST))
        for _ in range(_STEPS):
            prior = _normalised(likelihood * prior).mean(axis=0)
        return cls(values, _normalised(likelihood * prior), by_chance)

    def expected(self, values: Array) -> Array:
        """(P,) means of a function of the distances, given as (P, G)."""
        return (values * self.probabilities).sum(axis=1)

    def left(self, noise: Array) -> Array:
        """(P, G) of each distance, once the tables are measured with this noise (P,) in L1; all of it where that is infinite."""
        return np.hypot(_shrunk(self.values, _KEPT * noise[:, None]), _shrunk(self.by_chance, noise)[:, None])

    def gains(self, noise: Array) -> Array:
        """(P,) by how much measuring a pair with this noise (P,) is expected to lower its error."""
        return self.expected(self.left(np.full(len(noise), np.inf)) - self.left(noise))


def _shrunk(distance: Array, noise: Array) -> Array:
    """u·e/√(u² + e²)."""
    return distance / np.hypot(1.0, distance / np.maximum(noise, _TINY))


def _normalised(joint: Array) -> Array:
    return joint / joint.sum(axis=1, keepdims=True)


def largest_distance(guess: Array) -> float:
    """The most that a table (a, b) with a guess's margins can differ from independent columns, in L1.

    Σ_a 2 p_a (1 − p_a), by either column: given a, the other column's distribution differs from its own by at most 1 − p_a.

    >>> round(largest_distance(np.full((2, 2), 0.25)), 6)
    1.0
    """
    return 2 * min(_spread(guess.sum(axis=1)), _spread(guess.sum(axis=0)))


def _spread(one: Array) -> float:
    """Σ p (1 − p / Σp)."""
    total = max(float(one.sum()), _TINY)
    return total - float((one**2).sum()) / total


@dataclass(frozen=True, eq=False)
class Prospect:
    """What is known before a round of tables.

    distances   of all pairs.
    pairs       their columns.
    powers      (P,) squared heights that their tables would have, up to a factor.
    unit        standard deviation of the noise on a share that is measured with height 1.
    columns     (d,) squared noise of single columns so far, in L1.
    spent       on them so far, as a squared height.
    """

    distances: Distances
    pairs: list[Pair]
    powers: Array
    unit: float
    columns: Array
    spent: float

    def noise(self, count: float, square: float) -> Array:
        """(P,) noise of each pair's table in L1, if a squared height is shared with tables whose powers add up to `count`."""
        return NOISE_IN_DISTANCE * self.unit * self.powers * np.sqrt(count / square)

    def error(self, chosen: list[int], square: float, again: float) -> float:
        """Expected, of all pairs' tables, if these are measured with a squared height and single columns with another one."""
        noise = np.full(len(self.pairs), np.inf)
        if chosen:
            noise[chosen] = self.noise(self.powers[chosen].sum(), square)[chosen]
        columns = _OF_COLUMNS * self.columns * self.spent / (self.spent + again)
        first, second = np.array(self.pairs).T
        left = self.distances.left(noise)
        found = self.distances.expected(np.sqrt(left**2 + (columns[first] + columns[second])[:, None]))
        return float((found - (_WEIGHT - 1) * self.distances.gains(noise)).sum())

    def best(self, allowed: list[int], square: float) -> tuple[list[int], float]:
        """The pairs to measure, best first, and the part of a squared height for single columns: 1 if no pair is worth it."""
        usual = np.median(self.powers) * len(self.columns)
        worth = self.distances.gains(self.noise(usual, square)) / self.powers
        order = sorted(allowed, key=lambda p: -worth[p])
        best: tuple[list[int], float] = ([], 1.0)
        least = self.error([], 0.0, square)
        counts = np.unique(np.rint(np.geomspace(1, len(order), _COUNTS)).astype(int)) if order else ()
        for count in counts:
            for part in _PARTS:
                error = self.error(order[:count], (1 - part) * square, part * square)
                if error < least:
                    best, least = (order[:count], float(part)), error
        return best
