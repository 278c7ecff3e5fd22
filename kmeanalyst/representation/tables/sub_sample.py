"""How near to a table simple random samples of its rows are: the unit in which SDNist states how good synthetic rows are.

A sample of n of N rows without replacement has hypergeometric cells, whose mean absolute deviation is known in closed form. The
expected k-marginal of a sample of any size therefore follows from the counts of the whole table, with nothing drawn, and it
includes that a sample of nearly all rows is nearly the table. The number of rows with a given score depends on the table; its share
of N is a statement about this N.

Source   Task, Bhagat & Howarth 2023, SDNist v2 (sub-sampling equivalent); Diaconis & Zabell 1991, Closed form summation for
         classical distributions, for the mean absolute deviation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from kmeanalyst.kernels.base import Array
from kmeanalyst.representation.tables.score_tables import ScoreTables


@dataclass(frozen=True, eq=False)
class SampleScores:
    """Expected k-marginals of simple random samples of a table's rows.

    n_rows     N.
    values     different numbers of rows that a cell of the compared tables has.
    cells      how many cells have each.
    n_tables   tables that are compared.

    >>> SampleScores(4, np.array([2]), np.array([2]), 1).score(np.array([1, 4]))
    array([ 500., 1000.])
    """

    n_rows: int
    values: Array
    cells: Array
    n_tables: int

    @classmethod
    def of(cls, tables: ScoreTables, counts: Array) -> SampleScores | None:
        """From the counts (int64) of all rows; None where no tables are compared, or there are no rows."""
        compared = tables.compared
        n_rows = int(counts[: tables.starts[1]].sum()) if tables.columns else 0
        if compared.start == compared.stop or not n_rows:
            return None
        values, cells = np.unique(
            counts[tables.starts[compared.start] : tables.starts[compared.stop]], return_counts=True
        )
        seen = values > 0
        return cls(n_rows, values[seen].astype(np.int64), cells[seen], compared.stop - compared.start)

    def score(self, sizes: Array) -> Array:
        """(k,) expected k-marginal of samples of these sizes (k,), whole numbers from 1 to N."""
        return np.array([self._score(int(n)) for n in sizes])

    def _score(self, n: int) -> float:
        distance = float(self.cells @ mean_absolute_deviation(self.n_rows, self.values, n)) / n / self.n_tables
        return 500 * (2 - distance)

    def rows_of(self, score: float) -> float:
        """The number of rows, from 0 to N, of samples that have this expected score; between two whole numbers linearly.

        0 for a score below that of a single row.
        """
        low, high = 1, self.n_rows
        if score < (first := self._score(1)):
            return 0.0
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._score(middle) <= score else (low, middle)
        first, last = self._score(low), self._score(high)
        return low + (high - low) * min((score - first) / (last - first), 1.0) if last > first else float(high)


def mean_absolute_deviation(n_rows: int, values: Array, n: int) -> Array:
    """E|X − nk/N| for X hypergeometric: n rows drawn of N, of which k are in the cell, for each k of `values`.

    It is 2·m(N − k − n + m)/N·P(X = m) with m = ⌊nk/N⌋ + 1: terms (x − nk/N)P(x) above the mean telescope.

    >>> mean_absolute_deviation(4, np.array([2]), 1)
    array([0.5])
    """
    k, N = values.astype(np.int64), n_rows
    m = n * k // N + 1
    possible = (m <= np.minimum(k, n)) & (N - k - n + m >= 0)  # elsewhere nothing is above the mean
    m = np.where(possible, m, np.minimum(k, n))
    log_p = _log_choose(k, m) + _log_choose(N - k, n - m) - _log_choose(N, n)
    return np.where(possible, 2 * m * ((N - k - n + m) / N) * np.exp(log_p), 0.0)


def _log_choose(n: Array | int, k: Array | int) -> Array:
    return gammaln(np.add(n, 1.0)) - gammaln(np.add(k, 1.0)) - gammaln(np.subtract(n, k) + 1.0)
