"""How far answers may be apart over all populations, smooth or not, that agree with a measurement: linear programs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import linprog
from scipy.special import ndtri

from kmeanalyst.kernels.base import Array

LEADING_DIRECTIONS = 80  # of the rows, along which a compatible population agrees with the measurement
_PENALTY = 1e4  # of a standard error further away, in ranges of the question
_ROWS_AT_ONCE, _MOST_ROUNDS, _AGREES = 100, 300, 1e-7  # of linear programs: rows added, rounds, what counts as nothing
_ROWS_KEPT = 200  # of a program's rows in the next one: those that have weight, and those that would lower it soonest


@dataclass(frozen=True, eq=False)
class CompatiblePopulations:
    """All populations on stated rows that agree with the measurement, and the least answer over them: an outer limit.

    A population here is any probability weights p on the rows, smooth or not. It agrees with the measurement y if
    |v_kᵀ(Σ p φ(z) − y)| is within the noise and sampling errors along all of K leading directions v_k at once (normal
    distribution, Bonferroni). The least and the largest Σ p h are two linear programs.

    coordinates  (n, K) features of the rows along leading directions, less the measurement's.
    errors       (K,) standard error of the measurement along them.
    """

    coordinates: Array
    errors: Array

    def least(self, values: Array, level: float) -> float:
        """The least mean of `values` (n,) over the populations compatible at this simultaneous level.

        Where no population on the rows agrees at the level, the nearest ones are taken. ValueError if a program fails.
        """
        within = float(ndtri(1 - (1 - level) / (2 * len(self._seen))))
        found, beyond = self._extreme(values, within)
        if beyond > _AGREES:
            found, _ = self._extreme(values, 1.01 * (within + beyond))
        return found

    @cached_property
    def _seen(self) -> Array:
        K = min(LEADING_DIRECTIONS, len(self.errors))
        return (self.coordinates[:, :K] / self.errors[:K]).T

    def _extreme(self, values: Array, within: float) -> tuple[float, float]:
        """The least mean of `values` over populations this near, and by how much the nearest ones are further away.

        Few rows have weight in a solution of a linear program: those that would lower it are added until there is none (column
        generation; Dantzig & Wolfe 1960).
        """
        K, size = len(self._seen), float(np.ptp(values)) or 1.0
        near = np.argsort(np.abs(self._seen).max(axis=0))[:_ROWS_AT_ONCE]
        chosen = np.unique([*near, *np.argsort(values, kind="stable")[:_ROWS_AT_ONCE]])
        for _ in range(_MOST_ROUNDS):
            seen, further = self._seen[:, chosen], np.full((K, 1), -1.0)
            found = linprog(
                np.append(values[chosen] / size, _PENALTY), np.block([[seen, further], [-seen, further]]), np.full(2 * K, within),
                np.append(np.ones(len(chosen)), 0.0)[None], [1.0], method="highs",
            )  # fmt: skip
            if found.status != 0:
                break
            prices = found.ineqlin.marginals
            lower = values / size - (prices[:K] - prices[K:]) @ self._seen - found.eqlin.marginals[0]
            added = np.setdiff1d(np.argsort(lower, kind="stable")[:_ROWS_AT_ONCE], chosen)
            added = added[lower[added] < -_AGREES]
            if not len(added):
                beyond = float(found.x[-1])
                return float(found.x[:-1] @ values[chosen]), beyond
            soonest = np.argsort(np.where(found.x[:-1] > 0, -np.inf, lower[chosen]), kind="stable")
            chosen = np.append(chosen[soonest[:_ROWS_KEPT]], added)
        raise ValueError(
            f"the range over compatible populations was not found: {found.message} Use kind='default' for this question."
        )
