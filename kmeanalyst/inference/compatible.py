"""Room 4: the range of an answer over all populations on stated rows that agree with a measurement (METHODS §5).

A population is any probability weights p on the rows, smooth or not. It agrees with y if |v_kᵀ(Σ p φ(z) − y)| stays
within the noise and sampling errors of every one of K leading directions at once (normal law, Bonferroni). The least
and the largest Σ p h are two linear programs. Nothing is assumed but that the population is near one on these rows: the
range is far wider than the interval of the most plausible population, and is meant as the outer limit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog
from scipy.special import ndtri

from kmeanalyst.kernels.base import Array

_LEADING = 80  # directions


@dataclass(frozen=True, eq=False)
class CompatiblePopulations:
    """Rows that a population may have, as the measurement sees them.

    coordinates  (n, K) features of the rows along leading directions, less the measurement's.
    errors       (K,) standard error of the measurement along them.
    """

    coordinates: Array
    errors: Array

    def range(self, values: Array, level: float) -> tuple[float, float]:
        """(least, largest) mean of `values` (n,) over the populations compatible at this simultaneous level.

        ValueError where no population on the rows comes near the measurement.
        """
        K = min(_LEADING, len(self.errors))
        standardised = (self.coordinates[:, :K] / self.errors[:K]).T
        within = float(ndtri(1 - (1 - level) / (2 * K)))
        bounds = max(within, 1.01 * self._nearest(standardised))
        limits = [self._least(sign * values, standardised, bounds) for sign in (1, -1)]
        return limits[0], -limits[1]

    def _nearest(self, standardised: Array) -> float:
        """The smallest largest deviation, in standard errors, that any population on the rows reaches."""
        n, K = standardised.shape[1], len(standardised)
        both = np.vstack([standardised, -standardised])
        found = linprog(
            np.append(np.zeros(n), 1.0), A_ub=np.column_stack([both, -np.ones(2 * K)]), b_ub=np.zeros(2 * K),
            A_eq=np.append(np.ones(n), 0.0)[None], b_eq=[1.0], method="highs",
        )  # fmt: skip
        return float(found.fun)

    def _least(self, values: Array, standardised: Array, within: float) -> float:
        both = np.vstack([standardised, -standardised])
        found = linprog(
            values, A_ub=both, b_ub=np.full(len(both), within), A_eq=np.ones((1, len(values))), b_eq=[1.0],
            method="highs",
        )  # fmt: skip
        if found.status != 0:
            raise ValueError(
                f"the range over compatible populations was not found: {found.message} Use kind='default' for this question."
            )
        return float(found.fun)
