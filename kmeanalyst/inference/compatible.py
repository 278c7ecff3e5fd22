"""Room 4: the range of an answer over all populations on stated rows that agree with a measurement (METHODS §5).

A population is any probability weights p on the rows, smooth or not. It agrees with y if |v_kᵀ(Σ p φ(z) − y)| stays
within the noise and sampling errors of every one of K leading directions at once (normal law, Bonferroni). The least
and the largest Σ p h are two linear programs. Nothing is assumed but that the population is near one on these rows, and
where these are all the rows that the domain has not even that: the range is far wider than the interval of the most
plausible population, and is meant as the outer limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.special import ndtri

from kmeanalyst.kernels.base import Array

_LEADING = 80  # directions
_INFEASIBLE = 2  # scipy's status


@dataclass(frozen=True, eq=False)
class CompatiblePopulations:
    """Rows that a population may have, as the measurement sees them.

    coordinates  (n, K) features of the rows along leading directions, less the measurement's.
    errors       (K,) standard error of the measurement along them.
    everywhere   whether every row of the domain is among them, so that every population is on them.
    """

    coordinates: Array
    errors: Array
    everywhere: bool = False

    def range(self, values: Array, level: float) -> tuple[float, float]:
        """(least, largest) mean of `values` (n,) over the populations compatible at this simultaneous level.

        Where no population on the rows agrees at the level, the nearest ones are taken. ValueError if a program fails.
        """
        return self.least(values, level), -self.least(-values, level)

    def least(self, values: Array, level: float) -> float:
        """The least mean of `values` (n,) over the compatible populations."""
        K = len(self._seen)
        within = float(ndtri(1 - (1 - level) / (2 * K)))
        found = self._program(values, within)
        if found.status == _INFEASIBLE:
            found = self._program(values, 1.01 * self._nearest)
        if found.status != 0:
            raise ValueError(
                f"the range over compatible populations was not found: {found.message} Use kind='default' for this question."
            )
        return float(found.fun)

    @cached_property
    def _seen(self) -> Array:
        """(K, n) coordinates in standard errors."""
        K = min(_LEADING, len(self.errors))
        return (self.coordinates[:, :K] / self.errors[:K]).T

    @cached_property
    def _nearest(self) -> float:
        """The smallest largest deviation, in standard errors, that any population on the rows reaches."""
        K, n = self._seen.shape
        above, below = (np.column_stack([sign * self._seen, np.full(K, -1.0)]) for sign in (1, -1))
        ones = np.append(np.ones(n), 0.0)[None]
        found = milp(
            np.append(np.zeros(n), 1.0),
            constraints=[*(LinearConstraint(A, ub=0.0) for A in (above, below)), LinearConstraint(ones, 1.0, 1.0)],
        )
        return float(found.fun)

    def _program(self, values: Array, within: float) -> Any:
        everything = LinearConstraint(np.ones((1, len(values))), 1.0, 1.0)
        agrees = LinearConstraint(self._seen, -within, within)
        return milp(values, constraints=[agrees, everything], bounds=Bounds(0.0, np.inf))
